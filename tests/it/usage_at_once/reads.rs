//! What was read of a hold or a balance is not so any more when it is written.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{AssertSqlSafe, Executor, PgConnection, raw_sql};

use crate::support::metering::hold;
use crate::support::{TestApp, until_at_the_gate, until_waiting};

/// Does that in a transaction that stays open.
pub(super) async fn begin(app: &TestApp, what: &str) -> PgConnection {
    let mut other = app.direct_connection().await;
    let begun = format!("BEGIN; {what}");
    other.execute(raw_sql(AssertSqlSafe(begun))).await.expect("in hand");
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_changes_while_it_is_written_is_decided_anew() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 500).await;
    // Another instance has heard of more, and has not committed it yet.
    let reported = format!("UPDATE usage_holds SET units = 400 WHERE hold_id = '{id}'");
    let mut other = begin(&app, &reported).await;
    let committing = async {
        until_waiting(&app, 1).await;
        other.execute("COMMIT").await.expect("committed");
    };
    let (confirmed, ()) = tokio::join!(app.confirm(&id, Some(321)), committing);
    let problem = confirmed.problem(422).to_owned();
    assert_eq!(problem, "UNITS_SHRINK");
    assert_eq!(app.standing(&id).await, ("HELD".into(), 500, 0, Some(400)));
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((500, 500), 0));

    // What was only locked in between keeps nobody from its end.
    let mut other =
        begin(&app, &format!("SELECT 1 FROM usage_holds WHERE hold_id = '{id}' FOR UPDATE")).await;
    let leaving = async {
        until_waiting(&app, 1).await;
        other.execute("ROLLBACK").await.expect("free");
    };
    let (confirmed, ()) = tokio::join!(app.confirm(&id, Some(450)), leaving);
    assert_eq!(confirmed.expect(200).body["charged"], 450);
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((550, 0), 1));
    app.end().await;
}

/// Whoever takes money from a user's balance, or gives it back, has it in hand for as long as the gate is shut.
async fn build_gate(app: &TestApp) -> PgConnection {
    app.sql(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             WHILE NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.005); END LOOP;
             RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON ledger_transactions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             WHEN (NEW.kind IN ('WITHDRAWAL', 'USAGE_RELEASE')) EXECUTE FUNCTION gate()",
    )
    .await;
    app.direct_connection().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_balance_that_changes_while_a_hold_is_made_is_looked_at_anew() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_600).await;
    app.tokens("1").await;
    let first = app.held("k1", "u1", 600).await;
    let mut gate = build_gate(&app).await;
    let shut = "SELECT pg_advisory_lock(1)";
    let open = "SELECT pg_advisory_unlock(1)";
    let wanted = async || {
        until_at_the_gate(&app).await;
        app.post("/usage/holds", hold("k2", "u1", 500)).await
    };

    // Of the 1,000 that are there 700 go out, which nobody sees yet.
    gate.execute(shut).await.expect("shut");
    let body = json!({"withdrawal_no": "W", "user_id": "u1", "amount": 700, "currency": "CNY", "channel": "sandbox",
                      "account": "u@example.com"});
    let opening = async {
        until_waiting(&app, 1).await;
        gate.execute(open).await.expect("open");
    };
    let (withdrawn, refused, ()) = tokio::join!(app.post("/withdrawals", body), wanted(), opening);
    withdrawn.expect(201);
    assert_eq!(refused.problem(422), "INSUFFICIENT_BALANCE");
    assert_eq!((app.cny_of("u1").await.0, app.count("usage_holds").await), (300, 1));

    // Nobody is refused what comes back in this moment: too little, as it is read, is looked at under its lock.
    gate.execute(shut).await.expect("shut");
    let path = format!("/usage/holds/{first}/release");
    let opening = async {
        until_waiting(&app, 1).await;
        gate.execute(open).await.expect("open");
    };
    let (released, made, ()) = tokio::join!(app.post(&path, json!({})), wanted(), opening);
    released.expect(200);
    made.expect(201);
    assert_eq!((app.cny_of("u1").await.0, app.count("usage_holds").await), (400, 2));
    app.run_until_idle().await;
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_balance_makes_strangers_wait_no_longer_than_a_lane_does() {
    let app = TestApp::start().await;
    app.tokens("1").await;
    for user in ["u1", "u2"] {
        app.top_up(&format!("T-{user}"), user, 1_000).await;
        // What is set aside has its account from then on.
        app.held("first", user, 100).await;
    }
    let mut other =
        begin(&app, "SELECT 1 FROM accounts WHERE account_id = 'USER_AVAILABLE:demo:u1:CNY' FOR UPDATE")
            .await;
    let stranger = async {
        until_waiting(&app, 1).await;
        let since = Instant::now();
        app.held("k1", "u2", 100).await;
        let took = since.elapsed();
        other.execute("ROLLBACK").await.expect("free");
        took
    };
    let (made, took) = tokio::join!(app.post("/usage/holds", hold("k1", "u1", 100)), stranger);
    made.expect(201);
    assert!(took < Duration::from_secs(1), "{took:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_while_its_hold_is_confirmed_with_it_is_heard_once() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 500).await;
    app.report(&id, "m0", 100).await.expect(200);
    // A report that says nothing new leaves its hold as it is.
    let heard = format!(
        "SELECT 1 FROM usage_holds WHERE hold_id = '{id}' FOR UPDATE;
         INSERT INTO usage_messages (hold_id, message_id, units, created_at) VALUES ('{id}', 'm1', 100, now())"
    );
    let mut other = begin(&app, &heard).await;
    let committing = async {
        until_waiting(&app, 1).await;
        other.execute("COMMIT").await.expect("committed");
    };
    let (path, body) = (format!("/usage/holds/{id}/confirm"), json!({"message_id": "m1", "units": 100}));
    let (confirmed, ()) = tokio::join!(app.post(&path, body), committing);
    assert_eq!(confirmed.expect(200).body["charged"], 100);
    assert_eq!(app.count("usage_messages").await, 2);
    app.end().await;
}
