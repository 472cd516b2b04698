//! The database fails right after the channel has said yes: the answer is put aside, comes back, and is applied once.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use serde_json::{Value, json};

use crate::support::{TestApp, TestOptions, minutes, seconds};

/// From here on a write fails as if the server were gone, until [`heal`].
async fn break_writes(app: &TestApp, table: &str, condition: &str) {
    app.sql(&format!(
        "CREATE FUNCTION be_gone() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '57P03'; END $$;
         CREATE TRIGGER is_gone BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION be_gone()"
    ))
    .await;
}

async fn heal(app: &TestApp, table: &str) {
    app.sql(&format!("DROP TRIGGER is_gone ON {table}; DROP FUNCTION be_gone()")).await;
}

/// One lap of the workers.
async fn work(app: &TestApp) {
    payonce::drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
}

async fn spilled(app: &TestApp) -> i64 {
    app.redis_command(&["XLEN", "spill:updates"]).await
}

const UPDATE_DONE: &str = "kind = 'REPLAY_UPDATE' AND status = 'DONE'";

#[tokio::test]
async fn a_link_that_could_not_be_written_down_is_given_out_without_asking_again() {
    let app = TestApp::start().await;
    app.order("L1").await;
    break_writes(&app, "pay_orders", "NEW.status = 'PAYING'").await;
    assert_eq!(app.pay_url("L1").await.problem(503), "DATABASE_UNAVAILABLE");
    assert_eq!((spilled(&app).await, app.attempt_statuses("L1").await), (1, vec!["INIT".to_owned()]));
    heal(&app, "pay_orders").await;
    // Whoever asks the channel now gets no answer.
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 100, Some(1_200)).await;
    app.run_until_idle().await;
    assert_eq!((spilled(&app).await, app.attempt_statuses("L1").await), (0, vec!["PAYING".to_owned()]));
    assert_eq!(app.count_where("compensations", UPDATE_DONE).await, 1);
    let link = app.pay_url("L1").await.expect(200);
    app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.status_of("L1").await, "PAID");
    app.end().await;
}

async fn withdraw(app: &TestApp) {
    app.top_up("T-u1", "u1", 1_000).await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
}

async fn status(app: &TestApp) -> Value {
    app.get("/withdrawals/W1").await.expect(200).body["status"].clone()
}

#[tokio::test]
async fn results_come_back_at_any_instance_and_twice_is_as_good_as_once() {
    let app = TestApp::start().await;
    let other = TestApp::start_with(TestOptions::over(&app)).await;
    withdraw(&app).await;
    break_writes(&app, "withdrawals", "NEW.status = 'SUCCEEDED'").await;
    work(&app).await;
    assert_eq!((spilled(&app).await, status(&app).await), (1, json!("PAYING")));
    heal(&app, "withdrawals").await;
    // The same entry again, and both instances at once.
    let entries: Vec<(String, Vec<String>)> = app.redis_command(&["XRANGE", "spill:updates", "-", "+"]).await;
    let _: String = app.redis_command(&["XADD", "spill:updates", "*", "entry", &entries[0].1[1]]).await;
    let (one, two) = tokio::join!(
        payonce::drive::drain_spilled(&app.instance.app),
        payonce::drive::drain_spilled(&other.instance.app)
    );
    one.expect("drained");
    two.expect("drained");
    assert_eq!(app.count_where("compensations", "kind = 'REPLAY_UPDATE'").await, 1);
    other.run_until_idle().await;
    assert_eq!((spilled(&app).await, status(&app).await), (0, json!("SUCCEEDED")));
    // Long after: it meets nothing.
    let _: String = app.redis_command(&["XADD", "spill:updates", "*", "entry", &entries[0].1[1]]).await;
    app.run_until_idle().await;
    assert_eq!(app.count_where("compensations", UPDATE_DONE).await, 2);
    assert_eq!((app.cny_of("u1").await, app.count("sandbox.payouts").await), ((400, 0), 1));
    other.instance.stop().await;
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_could_not_be_written_down_is_known_although_the_channel_falls_silent() {
    let app = TestApp::start().await;
    app.paid("R1").await;
    app.run_until_idle().await;
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1_000, None).await;
    app.post("/refunds", json!({"refund_no": "R1", "order_no": "R1"})).await.expect(201);
    break_writes(&app, "refunds", "NEW.status = 'SUCCEEDED'").await;
    work(&app).await;
    assert_eq!((spilled(&app).await, &app.find_refund("R1").await["status"]), (1, &json!("PROCESSING")));
    heal(&app, "refunds").await;
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn with_redis_gone_too_the_task_asks_the_channel_and_nothing_is_lost() {
    let mut app = TestApp::start().await;
    withdraw(&app).await;
    app.redis.as_mut().expect("its own").kill().await.expect("killed");
    break_writes(&app, "withdrawals", "NEW.status = 'SUCCEEDED'").await;
    app.run_until_idle_or_broken().await;
    assert_eq!(status(&app).await, "PAYING");
    heal(&app, "withdrawals").await;
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(status(&app).await, "SUCCEEDED");
    assert_eq!((app.cny_of("u1").await, app.count("sandbox.payouts").await), ((400, 0), 1));
    app.end().await;
}

async fn put_aside(app: &TestApp, update: &Value) {
    let entry = update.to_string();
    let _: String = app.redis_command(&["XADD", "spill:updates", "*", "entry", &entry]).await;
}

#[tokio::test]
async fn what_was_made_and_is_not_here_any_more_is_shown_to_a_person() {
    let app = TestApp::start().await;
    // As where a replica was promoted that lacked the last commits.
    let (refund, payout) = (app.instance.app.ids.refund(), app.instance.app.ids.withdrawal());
    put_aside(&app, &json!({"what": "REFUND_MADE", "refund_id": refund, "channel_refund_id": "R"})).await;
    put_aside(&app, &json!({"what": "PAYOUT_MADE", "withdrawal_id": payout, "channel_payout_id": "P"})).await;
    app.run_until_idle().await;
    let open = app.exceptions("status=OPEN").await;
    for (id, number) in [(refund.as_str(), "R"), (payout.as_str(), "P")] {
        let shown = open.iter().find(|one| one["subject"] == id).expect("a person must hear of it");
        let detail = shown["detail"].as_str().expect("text");
        assert!(shown["kind"] == "UNKNOWN_ORDER" && detail.contains(&format!("as {number},")), "{shown}");
        app.resolve(shown, "NONE").await.expect(200);
    }
    assert_eq!((open.len(), app.count_where("compensations", UPDATE_DONE).await), (2, 2));
    app.end().await;
}

#[tokio::test]
async fn a_payout_that_was_made_and_has_not_begun_here_any_more_is_asked_for_under_its_number_and_ends() {
    let app = TestApp::start().await;
    withdraw(&app).await;
    app.sql(
        "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
         SELECT withdrawal_id, account, amount, currency, created_at, created_at, created_at FROM withdrawals;
         UPDATE compensations SET due_at = due_at + interval '1 h' WHERE action = 'DRIVE_WITHDRAWAL'",
    )
    .await;
    let id: String = sqlx::query_scalar("SELECT withdrawal_id FROM withdrawals")
        .fetch_one(&mut app.direct_connection().await)
        .await
        .expect("its id");
    let number = format!("so_{id}");
    put_aside(&app, &json!({"what": "PAYOUT_MADE", "withdrawal_id": id, "channel_payout_id": number})).await;
    app.run_until_idle().await;
    assert_eq!(
        (status(&app).await, app.count_where("compensations", UPDATE_DONE).await),
        (json!("DEBITED"), 0)
    );
    // Its task first, then what waits for it.
    for _ in 0..2 {
        app.clock.advance(minutes(61));
        app.run_until_idle().await;
    }
    assert_eq!(
        (status(&app).await, app.count_where("compensations", UPDATE_DONE).await),
        (json!("SUCCEEDED"), 1)
    );
    assert_eq!((app.cny_of("u1").await, app.count("sandbox.payouts").await), ((400, 0), 1));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_shown_to_a_person_and_holds_nothing_up() {
    let app = TestApp::start().await;
    let nul = r#"{"what":"REFUND_MADE","refund_id":"rf_\u0000","channel_refund_id":"R"}"#;
    for nonsense in ["nonsense", nul, "{\"what\":\"ELSE\"}", "\u{0}", &"x".repeat(100_000)] {
        let _: String = app.redis_command(&["XADD", "spill:updates", "*", "entry", nonsense]).await;
    }
    let _: String =
        app.redis_command(&["XADD", "spill:updates", "*", "other", "fields", "more", "still"]).await;
    withdraw(&app).await;
    break_writes(&app, "withdrawals", "NEW.status = 'SUCCEEDED'").await;
    work(&app).await;
    heal(&app, "withdrawals").await;
    app.run_until_idle().await;
    assert_eq!((spilled(&app).await, status(&app).await), (0, json!("SUCCEEDED")));
    assert_eq!(app.count_where("compensations", "kind = 'REPLAY_UPDATE' AND status = 'DEAD'").await, 6);
    assert_eq!(app.count_where("exceptions", "kind = 'DEAD_TASK' AND status = 'OPEN'").await, 6);
    app.end().await;
}

#[tokio::test]
async fn a_redis_that_can_be_read_and_not_written_gives_each_answer_back_once() {
    let app = TestApp::start().await;
    app.paid("R1").await;
    app.run_until_idle().await;
    let refund = app.instance.app.ids.refund();
    put_aside(&app, &json!({"what": "REFUND_MADE", "refund_id": refund, "channel_refund_id": "R"})).await;
    for _ in 0..600 {
        let _: String = app.redis_command(&["XADD", "spill:updates", "*", "entry", "nonsense"]).await;
    }
    // As where its disk is full.
    let writable = async |is_writable: bool| {
        let wanted = if is_writable { "0" } else { "1" };
        let _: String = app.redis_command(&["CONFIG", "SET", "min-replicas-to-write", wanted]).await;
    };
    let drain = async || payonce::drive::drain_spilled(&app.instance.app).await.expect("drained");
    let brought_back = async || app.count_where("compensations", "kind = 'REPLAY_UPDATE'").await;
    writable(false).await;
    for lap in 0..5 {
        drain().await;
        assert_eq!(
            brought_back().await,
            if lap == 0 { 500 } else { 601 },
            "lap {lap}: what is behind comes, too"
        );
        work(&app).await;
    }
    assert_eq!(spilled(&app).await, 601);
    writable(true).await;
    drain().await;
    assert_eq!((spilled(&app).await, brought_back().await), (0, 601));
    // What comes from then on is new.
    put_aside(&app, &json!({"what": "REFUND_MADE", "refund_id": refund, "channel_refund_id": "R"})).await;
    drain().await;
    assert_eq!((spilled(&app).await, brought_back().await), (0, 602));
    app.end().await;
}
