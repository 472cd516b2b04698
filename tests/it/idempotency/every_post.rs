//! Every POST of a merchant honours the key, and its answer is kept with its effect.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use super::assert_replayed;
use crate::support::metering::hold;
use crate::support::{Chance, Cluster, TestApp, TestOptions, until_waiting};

/// What the document says that a merchant's backend may POST to.
async fn posts_of_merchants(app: &TestApp) -> Vec<String> {
    let document = app.call(Method::GET, "/openapi.json", "", None).await.expect(200).body;
    let takes_secret = |told: &Value| {
        told["security"].as_array().is_some_and(|all| all.iter().any(|one| one.get("secret_key").is_some()))
    };
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.filter(|(_, told)| takes_secret(&told["post"])).map(|(path, _)| path.clone()).collect()
}

/// What is asked of a route, so that it comes to something: which path, and which body.
async fn asked_of(app: &TestApp, path: &str) -> (String, Value) {
    let order = json!({"order_no": "NEW", "user_id": "u1", "currency": "CNY", "amount": 1990});
    let of_hold = async |key: &str| path.replace("{hold_id}", &app.held(key, "u1", 100).await);
    match path {
        "/orders" => (path.to_owned(), order),
        "/orders/{order_no}/close" => {
            app.order("CLOSING").await;
            (path.replace("{order_no}", "CLOSING"), json!({}))
        }
        "/pay/url" => {
            app.order("PAYING").await;
            (path.to_owned(), json!({"order_no": "PAYING", "payer_id": "u1", "channel": "sandbox"}))
        }
        "/settlements" => {
            app.paid("SETTLING").await;
            (path.to_owned(), json!({"order_no": "SETTLING"}))
        }
        "/withdrawals" => (path.to_owned(), withdrawal("W")),
        "/refunds" => {
            app.paid("REFUNDING").await;
            (path.to_owned(), refund("R", "REFUNDING"))
        }
        "/usage/holds" => (path.to_owned(), hold("k", "u1", 100)),
        "/usage/holds/{hold_id}/progress" => {
            (of_hold("told").await, json!({"message_id": "m1", "cumulative_units": 120}))
        }
        "/usage/holds/{hold_id}/confirm" => (of_hold("confirmed").await, json!({"units": 50})),
        "/usage/holds/{hold_id}/release" => (of_hold("released").await, json!({})),
        _ => panic!("what is asked of POST {path} is not told here"),
    }
}

fn withdrawal(number: &str) -> Value {
    json!({"withdrawal_no": number, "user_id": "u1", "amount": 10, "currency": "CNY", "channel": "sandbox",
           "account": "a"})
}

fn refund(number: &str, order_no: &str) -> Value {
    json!({"refund_no": number, "order_no": order_no, "amount": 10})
}

#[tokio::test]
async fn every_post_of_a_merchant_gives_its_first_answer_again_whatever_became_of_it_meanwhile() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let posts = posts_of_merchants(&app).await;
    assert!(posts.len() >= 10, "{posts:?}");
    let mut answered = Vec::new();
    for (place, post) in posts.iter().enumerate() {
        let (path, body) = asked_of(&app, post).await;
        let key = format!("key-{place}");
        let first = app.post_keyed(&path, &key, &body).await;
        assert!(first.status < 300 && !first.is_replayed(), "{post}: {}", first.text);
        answered.push((path, key, body, first));
    }
    // What was asked for goes its way.
    app.run_until_idle().await;
    let rows = app.row_counts().await;
    for (path, key, body, first) in &answered {
        assert_replayed(first, &app.post_keyed(path, key, body).await);
        let elsewhere = app.post_keyed("/orders", key, &super::order("ELSEWHERE")).await;
        assert_eq!(elsewhere.problem(422), "IDEMPOTENCY_KEY_REUSED", "{path}");
    }
    assert_eq!(app.row_counts().await, rows, "nothing comes of it");
    app.end().await;
}

/// Two requests race for a key, and no lock keeps them apart: where they are equal both get one answer, and where they
/// are not one of them is refused. Gives the numbers that had an effect.
async fn race(cluster: &Cluster, path: &str, body_of: impl Fn(&str) -> Value) -> Vec<String> {
    let (mut chance, mut done) = (Chance::new(), Vec::new());
    for round in 0..12 {
        let (key, pause) = (format!("{path}-{round}"), chance.pause(4_000));
        let numbers =
            [format!("N{round}"), format!("N{round}{}", if round % 2 == 0 { "" } else { "-other" })];
        let bodies = numbers.clone().map(|number| body_of(&number));
        let (here, there) =
            tokio::join!(cluster.turn(0).post_keyed_patiently(path, &key, &bodies[0]), async {
                tokio::time::sleep(pause).await;
                cluster.turn(1).post_keyed_patiently(path, &key, &bodies[1]).await
            });
        let [number, other] = numbers;
        if number == other {
            assert_eq!((here.status, here.said()), (201, there.said()));
            assert_eq!(usize::from(here.is_replayed()) + usize::from(there.is_replayed()), 1);
            done.push(number);
        } else {
            let (won, lost, number) =
                if here.status == 201 { (here, there, number) } else { (there, here, other) };
            assert_eq!((won.status, lost.problem(422)), (201, "IDEMPOTENCY_KEY_REUSED"));
            done.push(number);
        }
    }
    done.sort_unstable();
    done
}

async fn numbers(app: &TestApp, column: &str, table: &str) -> Vec<String> {
    let all = format!("SELECT {column} FROM {table} ORDER BY {column} COLLATE \"C\"");
    sqlx::query_scalar(AssertSqlSafe(all)).fetch_all(app.instance.app.db.pool()).await.expect("numbers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_withdrawals_and_of_two_refunds_that_race_for_a_key_one_has_an_effect_also_without_redis() {
    let mut cluster = Cluster::start(2, TestOptions::default()).await;
    cluster.first().top_up("T", "u1", 1_000).await;
    cluster.first().paid("A").await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    let withdrawn = race(&cluster, "/withdrawals", withdrawal).await;
    let refunded = race(&cluster, "/refunds", |number| refund(number, "A")).await;
    let app = cluster.first();
    assert_eq!(numbers(app, "withdrawal_no", "withdrawals").await, withdrawn);
    assert_eq!(numbers(app, "refund_no", "refunds").await, refunded);
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (1_000 - 12 * 10, 0));
    assert_eq!(app.find_order("A").await["refunded_amount"], 12 * 10);
    cluster.end().await;
}

/// Without any lock the key's row decides; but of what is refused nothing is kept that could meet it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_heard_and_refused_is_told_so_also_where_another_request_has_its_key_by_then() {
    let mut cluster = Cluster::start(2, TestOptions::default()).await;
    cluster.first().top_up("T", "u1", 100).await;
    cluster.first().tokens("1").await;
    let id = cluster.first().held("h", "u1", 50).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");

    let path = format!("/usage/holds/{id}/progress");
    let told = |message_id: &str, units: i64| json!({"message_id": message_id, "cumulative_units": units});
    let (small, large) = (told("m1", 60), told("m2", 500));
    let app = cluster.first();
    let mut holding = app.direct_connection().await;
    holding.execute("BEGIN; SELECT 1 FROM usage_holds FOR UPDATE").await.expect("the hold is locked");
    let (first, second, ()) = tokio::join!(
        cluster.turn(0).post_keyed(&path, "k", &small),
        async {
            until_waiting(app, 1).await;
            // It waits briefly at first, in company, and goes back to wait alone: behind that nobody comes before it.
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.turn(1).post_keyed(&path, "k", &large).await
        },
        async {
            until_waiting(app, 2).await;
            holding.execute("COMMIT").await.expect("the hold is free");
        }
    );
    first.expect(200);
    assert_eq!(second.problem(422), "INSUFFICIENT_BALANCE");
    assert_eq!(app.standing(&id).await, ("HELD".into(), 100, 0, Some(500)), "it was heard");
    let again = cluster.turn(1).post_keyed(&path, "k", &large).await;
    assert_eq!(again.problem(422), "IDEMPOTENCY_KEY_REUSED");
    cluster.end().await;
}
