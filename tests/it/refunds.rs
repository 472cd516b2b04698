//! An order's money goes back as often as it is asked for, and never more of it than was paid.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::refunding::told_of_refund;
use crate::support::service::is_full;
use crate::support::{Cluster, OPERATOR, Reply, TestApp, TestOptions, minutes, seconds};

/// The second operator of these stories.
const SECOND: &str = "second-operator-token";

fn refund(refund_no: &str, order_no: &str, amount: i64) -> Value {
    json!({"refund_no": refund_no, "order_no": order_no, "amount": amount})
}

#[tokio::test]
async fn parts_go_back_until_nothing_is_left_and_the_stock_with_the_last() {
    let app = TestApp::start().await;
    app.stock("TEA", 5).await;
    let items = json!([{"sku": "TEA", "quantity": 2, "unit_price": 995}]);
    app.order_with(json!({"order_no": "A", "user_id": "u1", "currency": "CNY", "items": items})).await;
    let paid = app.pay_url("A").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&paid, json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stock_of("TEA").await, (3, 0));

    let mut first = refund("R1", "A", 500);
    first["return_stock"] = json!(true);
    let made = app.post("/refunds", first.clone()).await.expect(201);
    assert_eq!((made.text_of("status"), made.text_of("reason")), ("PENDING", "requested"));
    assert_eq!(app.refunded("A").await, ("PAID".into(), 0), "it moves on success, not on the request");
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 500));
    assert_eq!(app.post("/refunds", first).await.expect(200).body["status"], "SUCCEEDED");

    app.post("/refunds", refund("R2", "A", 1_491)).await.problem(422);
    app.post("/refunds", refund("R2", "A", 490)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 990));
    assert_eq!(app.stock_of("TEA").await, (3, 0), "not before all of the money has gone back");
    let rest = app.post("/refunds", json!({"refund_no": "R3", "order_no": "A"})).await.expect(201);
    assert_eq!(rest.body["amount"], 1_000);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("REFUNDED".into(), 1_990));
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    assert_eq!(app.gone_back(&paid).await, 1_990);
    let nothing_left = app.post("/refunds", json!({"refund_no": "R4", "order_no": "A"})).await;
    assert_eq!(nothing_left.problem(422), "REFUND_EXCEEDS_PAID");
    app.assert_books_agree().await;

    // The channel takes that one back which wanted the stock: what is on sale again stays so.
    app.take_refund_back("back", &app.refund_id("R1").await, &paid, 500).await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 1_490));
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_refunds_of_sixty_percent_at_once_one_is_made() {
    let full = std::env::var_os("PAYONCE_FULL").is_some();
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
        for n in 0..if full { 100 } else { 10 } {
            let order_no = format!("A{n}");
            let paid = app.paid(&order_no).await;
            let bodies =
                [refund(&format!("R{n}-1"), &order_no, 1_194), refund(&format!("R{n}-2"), &order_no, 1_194)];
            let answers = join_all(bodies.map(|body| app.post("/refunds", body))).await;
            let made = answers.iter().filter(|answer| answer.status == 201).count();
            let refused =
                answers.iter().filter(|answer| answer.body["code"] == "REFUND_EXCEEDS_PAID").count();
            assert_eq!((made, refused), (1, 1), "{answers:?}");
            app.run_until_idle().await;
            assert_eq!(app.refunded(&order_no).await, ("PARTIALLY_REFUNDED".into(), 1_194));
            assert_eq!(app.gone_back(&paid).await, 1_194);
        }
        app.end().await;
    }
}

/// One of a pair on two instances at once, on an order of its own.
async fn one_of_a_pair(cluster: &Cluster, n: usize) {
    let (app, order_no) = (cluster.turn(n), format!("P{n}"));
    let paid = app.order_to_pay(&order_no).await;
    app.sandbox_pay(&paid, json!({})).await.expect(200);
    while app.get(&format!("/orders/{order_no}?wait=5")).await.expect(200).body["status"] != "PAID" {}
    let pair = [
        refund(&format!("{order_no}-1"), &order_no, 1_194),
        refund(&format!("{order_no}-2"), &order_no, 1_194),
    ];
    let [one, other] = pair;
    let answers =
        tokio::join!(cluster.turn(n).post("/refunds", one), cluster.turn(n + 1).post("/refunds", other));
    let mut told = [answers.0, answers.1].map(|answer| (answer.status, answer.body["code"].to_string()));
    told.sort();
    assert_eq!(told, [(201, "null".to_owned()), (422, "\"REFUND_EXCEEDS_PAID\"".to_owned())], "{order_no}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_each_of_many_pairs_on_two_instances_one_is_made() {
    let pairs = if is_full() { 10_000 } else { 500 };
    let cluster = Cluster::start(2, TestOptions { workers: true, ..TestOptions::default() }).await;
    stream::iter(0..pairs).for_each_concurrent(16, |n| one_of_a_pair(&cluster, n)).await;
    let app = cluster.first();
    let all_made = async || app.count_where("refunds", "status <> 'SUCCEEDED'").await == 0;
    app.eventually("every refund is made", all_made).await;
    assert_eq!(app.count("refunds").await, i64::try_from(pairs).expect("small"));
    let (taken, gone_back) = app.sandbox_books().await;
    assert_eq!((taken / 1_990, gone_back / 1_194), (gone_back / 1_194, i64::try_from(pairs).expect("small")));
    app.assert_books_agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_equal_requests_make_one_refund() {
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
        let paid = app.paid("A").await;
        let answers = join_all((0..100).map(|_| app.post("/refunds", refund("R1", "A", 700)))).await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        let repeated = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((made, repeated), (1, 99), "{:?}", answers.iter().find(|answer| answer.status > 201));
        app.run_until_idle().await;
        assert_eq!(app.gone_back(&paid).await, 700);
        app.end().await;
    }
}

#[tokio::test]
async fn a_refusal_behind_a_silence_frees_nothing_that_may_still_go_back() {
    let app = TestApp::start().await;
    let paid = app.paid("A").await;
    // The call is long on its way, and is carried out when nobody waits for it any more.
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(6_000)).await;
    app.post("/refunds", refund("R1", "A", 1_990)).await.expect(201);
    app.run_until_idle().await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    app.clock.advance(seconds(2));
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "PROCESSING", "refused, and perhaps under way");
    assert!(app.post("/refunds", refund("R2", "A", 1_990)).await.status >= 400, "its money is not free");
    app.eventually("the first call is carried out", async || app.gone_back(&paid).await == 1_990).await;
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");
    assert_eq!(app.refunded("A").await, ("REFUNDED".into(), 1_990));
    app.end().await;
}

#[tokio::test]
async fn a_key_gets_the_first_answer_again_byte_for_byte() {
    let app = TestApp::start().await;
    app.paid("A").await;
    let first = app.post_keyed("/refunds", "k1", &refund("R1", "A", 700)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.post_keyed("/refunds", "k1", &refund("R1", "A", 700)).await.expect(201).text, first.text);
    assert_eq!(
        app.post_keyed("/refunds", "k2", &refund("R1", "A", 700)).await.expect(200).body["status"],
        "SUCCEEDED"
    );
    let other = app.post_keyed("/refunds", "k1", &refund("R2", "A", 700)).await;
    assert_eq!(other.problem(422), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 700));
    app.end().await;
}

#[tokio::test]
async fn a_refusal_frees_what_it_had_asked_for_and_silence_does_not() {
    let app = TestApp::start().await;
    let paid = app.paid("A").await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    app.post("/refunds", refund("R1", "A", 1_990)).await.expect(201);
    app.run_until_idle().await;
    let refused = app.find_refund("R1").await;
    assert_eq!(refused["status"], "FAILED");
    assert!(refused["failure"].is_string(), "{refused}");
    assert_eq!(app.refunded("A").await, ("PAID".into(), 0));

    app.fault(FaultOp::Refund, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    app.post("/refunds", refund("R2", "A", 1_000)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R2").await["status"], "PROCESSING");
    assert_eq!(app.refunded("A").await, ("PAID".into(), 0));
    assert_eq!(app.post("/refunds", refund("R3", "A", 991)).await.problem(422), "REFUND_EXCEEDS_PAID");
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R2").await["status"], "SUCCEEDED");
    assert_eq!(app.gone_back(&paid).await, 1_000);
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_the_channel_takes_back_moves_its_order_back() {
    let app = TestApp::start().await;
    let paid = app.paid("A").await;
    for (number, amount) in [("R1", 990), ("R2", 1_000)] {
        app.post("/refunds", refund(number, "A", amount)).await.expect(201);
        app.run_until_idle().await;
    }
    assert_eq!(app.refunded("A").await, ("REFUNDED".into(), 1_990));

    for (number, amount, expected) in [("R1", 990, ("PARTIALLY_REFUNDED", 1_000)), ("R2", 1_000, ("PAID", 0))]
    {
        let id = app.refund_id(number).await;
        // Told twice, under two names: it moves once.
        for event in ["first", "second"] {
            app.take_refund_back(&format!("{number}-{event}"), &id, &paid, amount).await;
        }
        assert_eq!(app.find_refund(number).await["status"], "FAILED");
        assert_eq!(app.refunded("A").await, (expected.0.into(), expected.1));
        app.assert_books_balance().await;
    }
    app.end().await;
}

#[tokio::test]
async fn a_top_up_goes_back_only_as_far_as_it_was_not_spent() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    let out = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 700, "currency": "CNY",
                     "channel": "sandbox", "account": "a"});
    app.post("/withdrawals", out).await.expect(201);
    assert_eq!(app.post("/refunds", refund("R1", "T-u1", 301)).await.problem(422), "INSUFFICIENT_BALANCE");
    app.post("/refunds", refund("R2", "T-u1", 300)).await.expect(201);
    assert_eq!(app.cny_of("u1").await, (0, 1_000));
    app.assert_books_balance().await;
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (0, 0));
    assert_eq!(app.refunded("T-u1").await, ("PARTIALLY_REFUNDED".into(), 300));

    // A refusal gives it back to the user, and so does a channel that takes it back.
    app.top_up("T-u2", "u2", 1_000).await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    app.post("/refunds", refund("R3", "T-u2", 400)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u2").await, (1_000, 0));
    app.post("/refunds", refund("R4", "T-u2", 400)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u2").await, (600, 0));
    let paid_by = app.find_order("T-u2").await["paid_by"].as_str().expect("an attempt").to_owned();
    app.take_refund_back("back", &app.refund_id("R4").await, &paid_by, 400).await;
    assert_eq!(app.cny_of("u2").await, (1_000, 0));
    app.end().await;
}

async fn decide(app: &TestApp, refund_no: &str, verb: &str, token: &str) -> Reply {
    let body = json!({"reason": "the story wants it"});
    app.call(Method::POST, &format!("/admin/refunds/{refund_no}/{verb}"), token, Some(&body)).await
}

#[tokio::test]
async fn above_the_limit_an_operator_who_did_not_ask_decides() {
    let tokens = format!("operator@anna:{OPERATOR},operator@bert:{SECOND}");
    let vars = vec![("ADMIN_TOKENS", tokens)];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    let paid = app.paid("A").await;

    app.post("/refunds", refund("R1", "A", 500)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");

    let waits = app.post("/refunds", refund("R2", "A", 501)).await.expect(201);
    assert_eq!(waits.text_of("status"), "AWAITING_APPROVAL");
    let asked = json!({"refund_no": "R3", "order_no": "A", "amount": 600, "reason": "ticket 1"});
    let asked = app.admin_post("/admin/refunds", asked).await.expect(201);
    assert_eq!((asked.text_of("status"), asked.text_of("asked_by")), ("AWAITING_APPROVAL", "anna"));
    app.clock.advance(minutes(60));
    app.run_until_idle().await;
    assert_eq!(app.gone_back(&paid).await, 500, "what waits moves no money");
    assert_eq!(app.post("/refunds", refund("R4", "A", 390)).await.problem(422), "REFUND_EXCEEDS_PAID");

    assert_eq!(decide(&app, "R3", "approve", OPERATOR).await.problem(403), "SAME_OPERATOR");
    assert_eq!(decide(&app, "R3", "reject", OPERATOR).await.problem(403), "SAME_OPERATOR");
    assert_eq!(decide(&app, "R3", "approve", SECOND).await.expect(200).text_of("status"), "PENDING");
    assert_eq!(decide(&app, "R2", "reject", OPERATOR).await.expect(200).text_of("status"), "FAILED");
    // Whoever says again what they have decided is told how it stands. Nobody decides otherwise any more.
    assert_eq!(decide(&app, "R3", "approve", SECOND).await.expect(200).text_of("status"), "PENDING");
    assert_eq!(decide(&app, "R2", "reject", OPERATOR).await.expect(200).text_of("status"), "FAILED");
    for (refund_no, verb, token) in [
        ("R2", "approve", OPERATOR),
        ("R2", "approve", SECOND),
        ("R2", "reject", SECOND),
        ("R3", "approve", OPERATOR),
        ("R3", "reject", OPERATOR),
        ("R3", "reject", SECOND),
    ] {
        let late = decide(&app, refund_no, verb, token).await;
        assert_eq!(late.problem(409), "REFUND_NOT_AWAITING_APPROVAL", "{refund_no} {verb} {token}");
    }
    app.run_until_idle().await;
    assert_eq!(decide(&app, "R3", "approve", SECOND).await.expect(200).text_of("status"), "SUCCEEDED");
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 1_100));
    assert_eq!(app.gone_back(&paid).await, 1_100);
    assert_eq!(app.find_refund("R2").await["failure"], "rejected: the story wants it");
    let why = "event = 'refund.finished' AND payload ->> 'failure' = 'rejected: the story wants it'
               AND payload ->> 'pay_order_id' IS NOT NULL AND payload ->> 'stray_id' IS NULL";
    assert_eq!(app.count_where("outbox", why).await, 1);
    assert_eq!(app.count_where("admin_log", "action LIKE 'refunds.%' AND order_no = 'A'").await, 3);
    app.end().await;
}

#[tokio::test]
async fn what_was_made_although_nobody_has_approved_it_is_shown_to_a_person() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    let paid = app.paid("A").await;
    let waits = app.post("/refunds", refund("R", "A", 990)).await.expect(201);
    assert_eq!(waits.text_of("status"), "AWAITING_APPROVAL");
    let refund_id = app.refund_id("R").await;
    // Somebody had approved it, the channel made it, and the database was put back to where nobody had.
    app.sql(&format!(
        "BEGIN;
         INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at, created_at, updated_at)
         SELECT '{refund_id}', transaction_id, 990, currency, '', paid_at, paid_at, paid_at FROM sandbox.payments;
         UPDATE sandbox.payments SET refunded_amount = 990;
         COMMIT"
    ))
    .await;
    // While it cannot be asked a person is told, and the callback must come again.
    let success = told_of_refund("made", (&refund_id, &paid), 990, "SUCCEEDED");
    app.tell_in_vain(&success).await;
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION");
    for n in 0..2 {
        app.deliver(&success).await;
        assert_eq!(app.verdict_of("made").await.as_deref(), Some("RECORDED"), "{n}");
    }
    let shown = app.open_exception().await;
    let detail = shown["detail"].as_str().expect("text");
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
    assert!(
        detail.contains("nobody has approved refund R of 990 CNY") && detail.contains("has gone back"),
        "{detail}"
    );
    assert_eq!(app.find_refund("R").await["status"], "AWAITING_APPROVAL");
    assert_eq!(app.refunded("A").await, ("PAID".into(), 0));
    assert_eq!(app.resolve(&shown, "NONE").await.problem(409), "REFUND_AWAITS_APPROVAL");

    // The channel's statement says so too.
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS ESCALATED": 1}), "{run:#}");
    app.tell_in_vain(&told_of_refund("once more", (&refund_id, &paid), 990, "SUCCEEDED")).await;
    let asked_and_shown = async || {
        let asked = "action = 'QUERY_REFUND' AND status IN ('READY', 'RUNNING')";
        let shown = "kind = 'CONTRADICTION' AND status = 'OPEN'";
        (app.count_where("compensations", asked).await, app.count_where("exceptions", shown).await)
    };
    assert_eq!(asked_and_shown().await, (1, 1));
    // Approved, it is found to be made, once, and what was shown of that is over.
    decide(&app, "R", "approve", OPERATOR).await.expect(200);
    assert_eq!(asked_and_shown().await, (0, 0));
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 990));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_carried_out_moves_nothing() {
    let app = TestApp::start().await;
    app.order("OPEN").await;
    app.paid("A").await;
    app.post("/refunds", refund("R1", "A", 700)).await.expect(201);
    app.run_until_idle().await;
    let with = |field: &str, value: Value| {
        let mut body = refund("R1", "A", 700);
        body[field] = value;
        body
    };
    for (body, status, code) in [
        (with("amount", json!(701)), 422, "REFUND_PARAMS_MISMATCH"),
        (with("order_no", json!("OPEN")), 422, "REFUND_PARAMS_MISMATCH"),
        (with("reason", json!("another")), 422, "REFUND_PARAMS_MISMATCH"),
        (with("return_stock", json!(true)), 422, "REFUND_PARAMS_MISMATCH"),
        (refund("R2", "OPEN", 1), 409, "ORDER_NOT_PAID"),
        (refund("R2", "NONE", 1), 404, "ORDER_NOT_FOUND"),
        (refund("R2", "A", 0), 422, "VALIDATION_FAILED"),
        (refund("R2", "A", -1), 422, "VALIDATION_FAILED"),
        (refund("R2", "A", 1_291), 422, "REFUND_EXCEEDS_PAID"),
        (json!({"refund_no": "R2", "order_no": "A", "reason": ""}), 422, "VALIDATION_FAILED"),
        (json!({"refund_no": "R2", "order_no": "A", "surprise": 1}), 422, "VALIDATION_FAILED"),
    ] {
        assert_eq!(app.post("/refunds", body.clone()).await.problem(status), code, "{body}");
    }
    let outsider = app.merchant("other", "hold").await;
    let theirs = app.call(Method::POST, "/refunds", &outsider, Some(&refund("R2", "A", 1))).await;
    assert_eq!(theirs.problem(404), "ORDER_NOT_FOUND");
    assert_eq!(app.call(Method::GET, "/refunds/R1", &outsider, None).await.problem(404), "NOT_FOUND");
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 700));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_decisions_at_once_one_is_made() {
    let tokens = format!("operator@anna:{OPERATOR},operator@bert:{SECOND}");
    let vars = vec![("ADMIN_TOKENS", tokens)];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    app.top_up("TOP", "u1", 10_000).await;
    for n in 0..8 {
        let refund_no = format!("R{n}");
        app.post("/refunds", refund(&refund_no, "TOP", 1_000)).await.expect(201);
        let verbs = ["approve", "reject", "approve", "reject"];
        let decided = join_all(verbs.map(|verb| decide(&app, &refund_no, verb, SECOND))).await;
        let made: Vec<_> = decided.iter().filter(|reply| reply.status == 200).collect();
        let late = decided.iter().filter(|reply| reply.body["code"] == "REFUND_NOT_AWAITING_APPROVAL");
        // Both who wanted what was done are told that it is.
        assert_eq!((made.len(), late.count()), (2, 2), "{decided:?}");
        assert_eq!(made[0].body, made[1].body);
        app.run_until_idle().await;
        let ended = if made[0].text_of("status") == "PENDING" { "SUCCEEDED" } else { "FAILED" };
        assert_eq!(app.find_refund(&refund_no).await["status"], ended);
    }
    let logged = "action IN ('refunds.approve', 'refunds.reject')";
    assert_eq!(app.count_where("admin_log", logged).await, 8, "each was decided once");
    app.assert_books_agree().await;
    app.end().await;
}
