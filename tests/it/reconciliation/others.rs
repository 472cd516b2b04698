//! What moves beside payments, and what a statement has of another day: each kind of difference ends as it should.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use serde_json::{Value, json};
use time::Date;

use super::{paid, start};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

/// A day on which 90 of a payment went back and 300 were paid out; the clock stands on the next one.
async fn lived(app: &TestApp) -> Date {
    let day = app.wait_for_ten();
    app.paid("A").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.top_up("T", "u1", 500).await;
    withdraw(app).await;
    app.run_until_idle().await;
    app.sleep_over();
    day
}

async fn withdraw(app: &TestApp) {
    let out = json!({"withdrawal_no": "W", "user_id": "u1", "amount": 300, "currency": "CNY", "channel": "sandbox",
                     "account": "a"});
    app.post("/withdrawals", out).await.expect(201);
}

pub(super) async fn compare(app: &TestApp, day: Date, lines: &[Line]) -> Value {
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["status"], "DONE", "{run:#}");
    run
}

/// The statement of a day without its lines of that kind.
async fn without(app: &TestApp, day: Date, kind: &str) -> Vec<Line> {
    app.book_lines(day).await.into_iter().filter(|line| line.kind != kind).collect()
}

#[tokio::test]
async fn a_refund_and_a_payout_that_a_statement_lacks_are_none_where_the_channel_confirms_them() {
    let app = start("safe").await;
    let day = lived(&app).await;
    for kind in ["REFUND", "PAYOUT"] {
        let lines = without(&app, day, kind).await;
        assert_eq!(lines.len(), 3, "{lines:?}");
        let run = compare(&app, day, &lines).await;
        let items = app.differences(&run).await;
        let missed = items.iter().find(|item| item["kind"] == kind).expect("a difference");
        assert_eq!(
            (&missed["class"], &missed["action"], &missed["status"]),
            (&json!("MISSING_THERE"), &json!("ASK"), &json!("RESOLVED")),
            "{missed:#}"
        );
        let outcome = missed["outcome"].as_str().expect("text");
        assert!(outcome.contains("the channel confirms it"), "{outcome}");
    }
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_refund_and_a_payout_that_the_channel_denies_are_shown_to_a_person() {
    let app = start("all").await;
    let day = lived(&app).await;
    app.sql(
        "BEGIN; DELETE FROM sandbox.refunds; DELETE FROM sandbox.payouts;
         UPDATE sandbox.payments SET refunded_amount = 0; COMMIT",
    )
    .await;
    let run = compare(&app, day, &app.book_lines(day).await).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 2}));
    let mut kinds: Vec<_> = app.differences(&run).await.iter().map(|item| item["kind"].to_string()).collect();
    kinds.sort();
    assert_eq!(kinds, ["\"PAYOUT\"", "\"REFUND\""]);
    let open = app.exceptions("status=OPEN").await;
    assert!(open.len() == 2 && open.iter().all(|one| one["kind"] == "RECONCILIATION"), "{open:#?}");
    // Ours stands as it was.
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".to_owned(), 90));
    assert_eq!(app.cny_of("u1").await, (200, 0));
    app.end().await;
}

#[tokio::test]
async fn a_refund_and_a_payout_that_nobody_here_knows_are_a_persons_to_see_to() {
    let app = start("all").await;
    let day = lived(&app).await;
    let truth = app.book_lines(day).await;
    let unknown = truth.iter().filter(|line| line.kind != "PAYMENT").map(|line| Line {
        our_id: format!("{}x", line.our_id),
        channel_id: format!("{}x", line.channel_id),
        ..line.clone()
    });
    let lines: Vec<Line> = truth.iter().cloned().chain(unknown).collect();
    let run = compare(&app, day, &lines).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 2}));
    for item in app.differences(&run).await {
        assert_eq!((&item["action"], &item["ours"]), (&json!("ESCALATE"), &json!(null)), "{item:#}");
    }
    assert_eq!((app.count("refunds").await, app.count("withdrawals").await), (1, 1));
    app.end().await;
}

#[tokio::test]
async fn a_refund_of_ours_that_another_channel_lists_is_missing_there_whatever_its_number() {
    let app = start("all").await;
    let day = lived(&app).await;
    let id = app.refund_id("R").await;
    // As Alipay would list it, whose day has these hours too.
    let list = format!(
        "#支付宝业务明细查询\r\n\
         支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,订单金额（元）,退款批次号/请求号,服务费（元）,备注\r\n\
         2027\t,po_gone\t,退款\t,茶,{day} 18:00:00,{day} 18:00:00,-0.90,{id}\t,0.00,\r\n\
         #----业务明细列表结束----\r\n"
    );
    let run = app.reconcile_file("alipay", day, &encoding_rs::GBK.encode(&list).0).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 1}), "{run:#}");
    let item = &app.differences(&run).await[0];
    assert_eq!(
        (&item["our_id"], &item["ours"], &item["theirs"]),
        (&json!(id), &json!(null), &json!(90)),
        "{item:#}"
    );
    assert_eq!(app.find_refund("R").await["status"], "SUCCEEDED");
    app.end().await;
}

#[tokio::test]
async fn a_refund_and_a_payout_of_another_amount_are_asked_about_and_shown_to_a_person() {
    let app = start("all").await;
    let day = lived(&app).await;
    let mut lines = app.book_lines(day).await;
    for line in lines.iter_mut().filter(|line| line.kind != "PAYMENT") {
        line.amount -= 1;
    }
    let run = compare(&app, day, &lines).await;
    assert_eq!(run["differences"], json!({"AMOUNT_DIFFERS ESCALATED": 2}));
    for item in app.differences(&run).await {
        let outcome = item["outcome"].as_str().expect("text");
        assert!(
            item["action"] == "ASK" && outcome.starts_with("the channel says of it: Succeeded"),
            "{item:#}"
        );
    }
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".to_owned(), 90));
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_a_statement_says_came_back_and_the_channel_says_stands_is_shown_to_a_person() {
    let app = start("all").await;
    let day = lived(&app).await;
    let mut lines = app.book_lines(day).await;
    let made = lines.iter().find(|line| line.kind == "REFUND").expect("a refund").clone();
    lines.push(Line { kind: "REFUND_REVERSAL".to_owned(), channel_id: "back".to_owned(), ..made });
    let run = compare(&app, day, &lines).await;
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS ESCALATED": 1}), "{run:#}");
    let outcome = app.differences(&run).await[0]["outcome"].as_str().expect("text").to_owned();
    assert!(outcome.contains("stands as"), "{outcome}");
    assert_eq!(app.open_exception().await["kind"], "RECONCILIATION");
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".to_owned(), 90));
    app.end().await;
}

#[tokio::test]
async fn a_payout_that_was_made_and_whose_answer_was_lost_is_asked_about_and_ends() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.top_up("T", "u1", 500).await;
    app.fault(FaultOp::Payout, FaultKind::TimeoutAfter, 1, Some(1)).await;
    withdraw(&app).await;
    for lane in [Lane::Realtime, Lane::Sweep] {
        payonce::drive::run_due(&app.instance.app, lane).await.expect("driven");
    }
    // Its task would ask soon by itself.
    app.sql("UPDATE compensations SET due_at = due_at + interval '7 d' WHERE action = 'DRIVE_WITHDRAWAL'")
        .await;
    let status = async || app.get("/withdrawals/W").await.expect(200).text_of("status").to_owned();
    assert_eq!(status().await, "PAYING");
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS APPLIED": 1}), "{run:#}");
    assert_eq!((status().await.as_str(), app.cny_of("u1").await), ("SUCCEEDED", (200, 0)));
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_payout_that_was_given_back_and_that_its_channel_made_after_all_is_taken_from_its_user_and_no_difference_again()
 {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.top_up("T", "u1", 500).await;
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    withdraw(&app).await;
    app.run_until_idle().await;
    let withdrawal = async || app.get("/withdrawals/W").await.expect(200);
    assert_eq!(withdrawal().await.text_of("status"), "REVERSED");
    app.sql(
        "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
         SELECT withdrawal_id, account, amount, currency, updated_at, updated_at, updated_at FROM withdrawals",
    )
    .await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS APPLIED": 1}), "{run:#}");
    let told = app.open_exception().await;
    let detail = told["detail"].as_str().expect("text");
    assert!(told["kind"] == "CONTRADICTION" && detail.contains("it is taken from what they have"), "{told}");
    assert_eq!((withdrawal().await.text_of("status"), app.cny_of("u1").await), ("REVERSED", (200, 0)));
    let again = app.reconcile(day).await;
    assert_explained(&again);
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_payment_that_is_listed_for_another_order_is_shown_to_a_person() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    let (_, trade) = paid(&app, "A").await;
    let other = app.order_to_pay("B").await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    lines[0].our_id = other;
    let run = compare(&app, day, &lines).await;
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS ESCALATED": 1}));
    let item = &app.differences(&run).await[0];
    assert_eq!((&item["channel_id"], &item["action"]), (&json!(trade), &json!("ESCALATE")));
    app.run_until_idle().await;
    assert_eq!(app.status_of("B").await, "CLOSED");
    app.end().await;
}
