//! A charge is given back while a refund of the same top-up is asked for: whoever comes first, each happens once at most, and
//! the refund never of a top-up whose user stands charged for it.

use serde_json::{Value, json};
use sqlx::Executor;

use super::charges::{has_and_owes, invented_top_up, open_of, product, used};
use super::{paid, start, until_waiting};
use crate::support::{Reply, TestApp};

/// Top-ups whose users were charged for them, each with its difference; their money was found after all.
async fn charged(app: &TestApp, numbers: &[String]) -> Vec<Value> {
    let day = app.wait_for_ten();
    product(app, "tokens", true).await;
    paid(app, "FINE").await;
    for number in numbers {
        invented_top_up(app, number, &format!("u-{number}")).await;
        used(app, "tokens", &format!("u-{number}"), 500).await;
    }
    app.sleep_over();
    app.reconcile(day).await;
    for number in numbers {
        app.found_after_all(number).await;
    }
    let run = app.reconcile(day).await;
    assert_eq!(open_of(app, "CONTRADICTION").await.len(), numbers.len());
    let items = app.differences(&run).await;
    let of = |number: &String| items.iter().find(|item| item["order_no"] == *number).expect("one").clone();
    numbers.iter().map(of).collect()
}

async fn refund(app: &TestApp, number: &str) -> Reply {
    app.post("/refunds", json!({"refund_no": format!("R-{number}"), "order_no": number, "amount": 600})).await
}

/// It was given back once, and refunded once; where the refund came too early it is asked for again.
async fn assert_once(app: &TestApp, number: &str, given: Reply, asked: Reply) {
    assert_eq!(given.expect(200).body["status"], "REVERSED");
    if asked.status == 201 {
        asked.expect(201);
    } else {
        assert_eq!(asked.problem(409), "TOP_UP_CHARGED");
        refund(app, number).await.expect(201);
    }
    app.run_until_idle().await;
    assert_eq!(app.find_refund(&format!("R-{number}")).await["status"], "SUCCEEDED");
    assert_eq!(has_and_owes(app, &format!("u-{number}")).await, (1_490 - 600, 0));
    let of_order = format!("order_no = '{number}' AND transaction_id LIKE 'REVERSAL:COMPENSATING_CHARGE:%'");
    assert_eq!(app.count_where("ledger_transactions", &of_order).await, 1);
    assert_eq!(app.count_where("refunds", &format!("order_no = '{number}'")).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_of_both_is_under_way_the_other_waits_and_neither_happens_twice() {
    let app = start("all").await;
    let numbers = ["GIVEN".to_owned(), "ASKED".to_owned()];
    let items = charged(&app, &numbers).await;
    for (number, item) in numbers.iter().zip(&items) {
        // Somebody is at the user's balance, which both want.
        let mut other = app.direct_connection().await;
        let held = format!(
            "BEGIN; SELECT FROM accounts WHERE account_id = 'USER_AVAILABLE:demo:u-{number}:CNY' FOR UPDATE"
        );
        other.execute(sqlx::AssertSqlSafe(held)).await.expect("held");
        let is_asked_first = number == "ASKED";
        let give = async {
            until_waiting(&app, i64::from(is_asked_first)).await;
            app.decide(item, "reverse-charge").await
        };
        let ask = async {
            until_waiting(&app, i64::from(!is_asked_first)).await;
            refund(&app, number).await
        };
        let free = async {
            until_waiting(&app, 2).await;
            other.execute("COMMIT").await.expect("free");
        };
        let (given, asked, ()) = tokio::join!(give, ask, free);
        assert_once(&app, number, given, asked).await;
    }
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_same_instant_each_happens_once_whichever_is_first() {
    let app = start("all").await;
    let numbers: Vec<String> = (0..8).map(|number| format!("T{number}")).collect();
    let items = charged(&app, &numbers).await;
    for (place, (number, item)) in numbers.iter().zip(&items).enumerate() {
        // What is named first is sent first.
        let (given, asked) = if place % 2 == 0 {
            tokio::join!(app.decide(item, "reverse-charge"), refund(&app, number))
        } else {
            let (asked, given) = tokio::join!(refund(&app, number), app.decide(item, "reverse-charge"));
            (given, asked)
        };
        assert_once(&app, number, given, asked).await;
    }
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}
