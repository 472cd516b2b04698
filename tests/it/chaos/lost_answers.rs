//! Whoever did something is told so although the answer to the commit was lost, and it is done once.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

use super::proxy::Proxy;
use super::proxy::tests::database;
use crate::support::metering::hold;
use crate::support::statements::sandbox_csv;
use crate::support::{TestApp, TestOptions, stores};

/// A service behind a wire that leads to its database, and the database's own URL.
pub async fn behind_a_wire() -> (TestApp, Proxy, String) {
    behind_a_wire_with(Vec::new()).await
}

async fn behind_a_wire_with(vars: Vec<(&'static str, String)>) -> (TestApp, Proxy, String) {
    let (url, port) = database().await;
    let wire = Proxy::before_postgres(port).await;
    let database_url = Some(wire.before_url(&url, port));
    let app = TestApp::start_with(TestOptions { database_url, vars, ..TestOptions::default() }).await;
    (app, wire, url)
}

#[tokio::test]
async fn who_made_a_withdrawal_is_told_so_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.top_up("T-u1", "u1", 1_000).await;
    let withdrawal = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                            "channel": "sandbox", "account": "u@example.com"});
    wire.lose_answers(1);
    let made = app.post("/withdrawals", withdrawal.clone()).await.expect(201);
    assert_eq!(wire.met().lost, 1);
    assert_eq!(app.post("/withdrawals", withdrawal).await.expect(200).body, made.body);
    assert_eq!(app.cny_of("u1").await, (400, 600), "once");
    app.run_until_idle().await;
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_made_an_order_is_told_so_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    for (times, number) in [(1, Some("A1")), (2, None)] {
        let mut order = json!({"user_id": "u1", "currency": "CNY", "amount": 1_990});
        if let Some(number) = number {
            order["order_no"] = json!(number);
        }
        wire.lose_answers(1);
        let made = app.post("/orders", order.clone()).await.expect(201);
        assert_eq!(wire.met().lost, times);
        order["order_no"] = made.body["order_no"].clone();
        assert_eq!(app.post("/orders", order).await.expect(200).body, made.body);
        let timers = async || app.redis_command::<usize>(&["ZCARD", "delay:order_timeout"]).await;
        app.eventually("its timer is set", async || timers().await == times).await;
    }
    assert_eq!(app.count("orders").await, 2, "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn an_operator_who_decided_is_told_so_although_the_answer_to_the_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    app.paid("A").await;
    for (lost, refund_no, verb, status) in [(1, "R1", "approve", "PENDING"), (2, "R2", "reject", "FAILED")] {
        let refund = json!({"refund_no": refund_no, "order_no": "A", "amount": 600});
        app.post("/refunds", refund).await.expect(201);
        wire.lose_answers(1);
        let path = format!("/admin/refunds/{refund_no}/{verb}");
        let decided = app.admin_post(&path, json!({"reason": "the story wants it"})).await.expect(200);
        assert_eq!((decided.text_of("status"), wire.met().lost), (status, lost));
    }
    let key = app.merchant("holder", "hold").await;
    app.late_money_as(&key, "B").await;
    app.run_until_idle().await;
    let held = app.open_exception().await;
    wire.lose_answers(1);
    let resolved = app.resolve(&held, "REFUND").await.expect(200);
    assert_eq!((resolved.text_of("status"), wire.met().lost), ("RESOLVED", 3));
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 600));
    assert_eq!(app.stray().await["status"], "REFUNDED");
    let logged = "action IN ('refunds.approve', 'refunds.reject', 'exceptions.resolve')";
    assert_eq!(app.count_where("admin_log", logged).await, 3, "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn an_operator_gets_a_new_merchants_keys_and_is_told_of_a_difference_although_answers_to_commits_were_lost()
 {
    let (app, wire, url) = behind_a_wire().await;
    let shop = json!({"merchant_id": "shop", "name": "Shop"});
    wire.lose_answers(1);
    let made = app.admin_post("/admin/merchants", shop.clone()).await.expect(201);
    assert_eq!(wire.met().lost, 1);
    app.order_to_pay_as(made.text_of("secret_key"), "A").await;
    assert_eq!(app.admin_post("/admin/merchants", shop).await.problem(409), "MERCHANT_EXISTS");
    for (lost, what) in [(2, "keys"), (3, "notify-secret")] {
        wire.lose_answers(1);
        let body = json!({"reason": "they are known", "overlap_seconds": 0});
        let rotated = app.admin_post(&format!("/admin/merchants/shop/{what}"), body).await.expect(201);
        assert_eq!(wire.met().lost, lost);
        if what == "keys" {
            app.order_to_pay_as(rotated.text_of("secret_key"), "C").await;
        }
    }

    let day = app.wait_for_ten();
    app.paid("B").await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    lines[0].amount -= 1;
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    let item = app.differences(&run).await.remove(0);
    assert_eq!((&item["class"], &item["status"]), (&json!("AMOUNT_DIFFERS"), &json!("ESCALATED")));
    let dismiss = format!("/admin/reconciliation-items/{}/dismiss", item["item_id"].as_str().expect("an id"));
    wire.lose_answers(1);
    for lost in [4, 4] {
        let dismissed = app.admin_post(&dismiss, json!({"reason": "put right by hand"})).await.expect(200);
        assert_eq!((dismissed.text_of("status"), wire.met().lost), ("DISMISSED", lost));
    }
    // Nobody else is told that it was their doing.
    app.sql("UPDATE reconciliation_items SET decided_by = 'somebody else'").await;
    let other = app.admin_post(&dismiss, json!({"reason": "put right by hand"})).await;
    assert_eq!(other.problem(409), "DIFFERENCE_NOT_WAITING");
    let logged = "action LIKE 'merchants.%' OR action = 'reconciliations.dismiss'";
    assert_eq!(app.count_where("admin_log", logged).await, 4, "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_settled_an_order_is_told_so_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    wire.lose_answers(1);
    let settled = app.settle("A1").await.expect(201);
    assert_eq!(wire.met().lost, 1);
    assert_eq!(app.settle("A1").await.expect(200).body, settled.body);
    assert_eq!((app.count("settlements").await, app.cny_of("u1").await), (1, (99, 0)), "once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_asked_for_a_link_waits_for_nobody_although_the_answer_to_its_beginning_was_lost() {
    // A task has what was begun for as long as a call can last, and a second.
    let most = Duration::from_secs(10);
    let vars = vec![("CHANNEL_DEADLINE_MS", most.as_millis().to_string())];
    let (app, wire, url) = behind_a_wire_with(vars).await;
    app.order("A").await;
    app.watch_calls(FaultOp::Create, 300).await;
    wire.lose_answers(1);
    let asked_at = Instant::now();
    let asked = async || app.calls_of(FaultOp::Create).await;
    let (link, lost) = tokio::join!(app.pay_url("A"), async {
        app.eventually("the channel is asked", async || asked().await == 1).await;
        wire.met().lost
    });
    let (link, took) = (link.expect(200), asked_at.elapsed());
    assert_eq!((lost, asked().await), (1, 1), "of what came before the only call");
    assert!(took < most, "{took:?}");
    assert_eq!(app.pay_url("A").await.expect(200).body, link.body);
    assert_eq!(app.attempt_statuses("A").await, ["PAYING"], "one was begun");
    assert_eq!(app.count("compensations").await, 0, "and its task was not needed");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_refusal_behind_a_silence_that_could_not_be_noted_is_closed_once_more() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned())];
    let (app, wire, url) = behind_a_wire_with(vars).await;
    app.order("A").await;
    // Long enough to be seen on a slow machine, and far from the end of the call's time.
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(4_000)).await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    let is_silent = "op = 'create' AND fault = 'timeout_before' AND times_left = 0";
    let lose_the_next = async {
        app.eventually("it is asked", async || app.count_where("sandbox.faults", is_silent).await == 1).await;
        wire.lose_answers(1);
    };
    let (refused, ()) = tokio::join!(app.pay_url("A"), lose_the_next);
    assert_eq!((refused.problem(402), wire.met().lost), ("CHANNEL_REFUSED", 1));
    assert_eq!(app.attempt_statuses("A").await, ["FAILED"]);
    let closes = "action = 'CLOSE_PAY_ORDER' AND status = 'READY'";
    assert_eq!(app.count_where("compensations", closes).await, 1, "the silent call may be at work there yet");
    app.clock.advance(Duration::from_secs(60));
    app.run_until_idle().await;
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_was_refused_a_link_is_told_so_and_nothing_else_is_begun_although_the_answer_to_its_commit_was_lost()
 {
    let (app, wire, url) = behind_a_wire().await;
    let link = |order_no| json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
    app.watch_calls(FaultOp::Query, 300).await;
    for (asked, order_no) in [(1, "A1"), (2, "A2")] {
        app.order(order_no).await;
        app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
        // The channel is asked what it knows of the attempt before that fails.
        let lose_the_next = async {
            app.eventually("it is asked", async || app.calls_of(FaultOp::Query).await == asked).await;
            wire.lose_answers(1);
        };
        let body = link(order_no);
        let refused = async {
            match order_no {
                "A1" => app.post("/pay/url", body.clone()).await,
                _ => app.post_keyed("/pay/url", "k", &body).await,
            }
        };
        let (refused, ()) = tokio::join!(refused, lose_the_next);
        assert_eq!(refused.problem(402), "CHANNEL_REFUSED");
        assert_eq!(wire.met().lost, usize::try_from(asked).expect("few"));
        assert_eq!(app.attempt_statuses(order_no).await, ["FAILED"], "and no other is begun");
    }
    let again = app.post_keyed("/pay/url", "k", &link("A2")).await;
    assert_eq!((again.status, again.text_of("code"), again.is_replayed()), (402, "CHANNEL_REFUSED", true));
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_asked_for_a_refund_is_told_so_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.paid("A").await;
    let refund = json!({"refund_no": "R1", "order_no": "A", "amount": 600});
    wire.lose_answers(1);
    let asked = app.post("/refunds", refund.clone()).await.expect(201);
    assert_eq!(wire.met().lost, 1);
    assert_eq!(app.post("/refunds", refund).await.expect(200).body, asked.body);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 600));
    assert_eq!((app.count("refunds").await, app.sandbox_books().await), (1, (1_990, 600)), "once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_callback_is_taken_in_once_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    let id = app.order_to_pay("A").await;
    let callback = app.success("e1", &id, "t1", 1_990);
    wire.lose_answers(1);
    app.deliver(&callback).await;
    assert_eq!(wire.met().lost, 1);
    app.deliver(&callback).await;
    assert_eq!((app.status_of("A").await.as_str(), app.told("order.paid").await), ("PAID", 1));
    assert_eq!((app.count("webhook_inbox").await, app.count("stray_payments").await), (1, 0));
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn who_closed_an_order_is_told_so_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.stock("TEA", 2).await;
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1_990}]);
    for (lost, order_no) in [(1, "A"), (2, "B")] {
        let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items});
        app.order_with(order).await;
        if order_no == "B" {
            // Of this one the first commit is not yet its end.
            app.pay_url("B").await.expect(200);
        }
        wire.lose_answers(1);
        let closed = app.close(order_no).await.expect(200);
        assert_eq!((closed.text_of("close_reason"), wire.met().lost), ("CANCELLED", lost));
        assert_eq!(app.close(order_no).await.expect(200).body, closed.body);
    }
    app.run_until_idle().await;
    assert_eq!((app.told("order.closed").await, app.stock_of("TEA").await), (2, (2, 0)), "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn whose_work_is_metered_is_told_so_and_charged_once_although_answers_to_commits_were_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    wire.lose_answers(1);
    let held = app.post("/usage/holds", hold("k1", "u1", 300)).await.expect(201);
    assert_eq!(wire.met().lost, 1);
    assert_eq!(app.post("/usage/holds", hold("k1", "u1", 300)).await.expect(200).body, held.body);
    assert_eq!(app.cny_of("u1").await, (700, 300), "held once");
    let id = held.text_of("hold_id");
    wire.lose_answers(1);
    let confirmed = app.confirm(id, Some(200)).await.expect(200);
    assert_eq!((confirmed.text_of("status"), wire.met().lost), ("CONFIRMED", 2));
    assert_eq!(app.confirm(id, Some(200)).await.expect(200).body, confirmed.body);
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((800, 0), 1), "charged once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn an_operator_who_cleared_a_debt_is_told_so_although_the_answer_to_the_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    app.top_up("T1", "u1", 100).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 100).await;
    app.confirm(&id, Some(350)).await.expect(200);
    app.top_up("T2", "u1", 100).await;
    for (lost, verb, amount) in [(1, "collect", 100), (2, "write-off", 150)] {
        let clearing = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY", "clearing_no": verb,
                              "reason": "the story wants it"});
        let path = format!("/admin/receivables/{verb}");
        wire.lose_answers(1);
        let cleared = app.admin_post(&path, clearing.clone()).await;
        // Its second try finds the clearing of that number, and cannot tell whose it is.
        assert!(matches!(cleared.status, 200 | 201), "{}", cleared.text);
        assert_eq!((&cleared.body["amount"], wire.met().lost), (&json!(amount), lost));
        assert_eq!(app.admin_post(&path, clearing).await.expect(200).body, cleared.body);
    }
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 0, 0, 0)]);
    assert_eq!((app.count("receivable_clearings").await, app.borne().await), (2, 150), "each once");
    let logged = "action LIKE 'receivables.%'";
    assert_eq!(app.count_where("admin_log", logged).await, 2, "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_day_is_begun_again_once_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    let day = app.wait_for_ten();
    app.paid("A").await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!((&run["status"], app.count_where("reconciliations", "round = 1").await), (&json!("DONE"), 1));
    for (lost, round) in [(1, 2), (2, 3)] {
        wire.lose_answers(1);
        assert_eq!(app.reconcile(day).await["status"], "DONE");
        assert_eq!(wire.met().lost, lost);
        assert_eq!(app.count_where("reconciliations", &format!("round = {round}")).await, 1, "once");
    }
    assert_eq!(app.count_where("admin_log", "action = 'reconciliations.begin'").await, 3, "each once");
    assert_eq!(app.count_where("reconciliation_history", "event = 'BEGUN_AGAIN'").await, 2, "each once");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_replay_says_how_its_callback_stands_although_the_answer_to_its_commit_was_lost() {
    let (app, wire, url) = behind_a_wire().await;
    let pay_order = app.order_to_pay("A").await;
    let body = app.success("e1", &pay_order, "t1", 1_990).to_string();
    app.sql(&format!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', 'e1', '{pay_order}', 'WRONG_ACCOUNT', convert_to('{body}', 'UTF8'), now(), now())"
    ))
    .await;
    app.sql(
        "CREATE FUNCTION story_waits() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END';
         CREATE TRIGGER story_waits BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION story_waits()",
    )
    .await;
    let lose_the_next = async {
        app.eventually("it was logged", async || app.count("admin_log").await == 1).await;
        wire.lose_answers(1);
    };
    let replay =
        app.admin_post("/admin/webhooks/sandbox:e1/replay", json!({"reason": "the account is right now"}));
    let (replayed, ()) = tokio::join!(replay, lose_the_next);
    let replayed = replayed.expect(200).body;
    assert_eq!((wire.met().lost, app.status_of("A").await.as_str()), (1, "PAID"));
    // That it was this very replay which did it nobody can tell any more.
    assert_eq!(
        (&replayed["earlier_verdict"], &replayed["remedy"]),
        (&json!("WRONG_ACCOUNT"), &json!("NOTHING"))
    );
    assert_eq!(replayed["webhook"]["verdict"], "APPLIED");
    app.end().await;
    stores::drop_database(&url).await;
}
