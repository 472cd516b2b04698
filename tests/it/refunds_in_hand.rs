//! Refunds whose tasks are in hand from their first row on: their channel is asked without a claim, once, whatever becomes of
//! whoever had them in hand.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::{Action, Drive, Hold, Lane, Task};
use payonce::{drive, refunds};
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor, Row, raw_sql};

use crate::support::{Cluster, Reply, TestApp, TestOptions, until_waiting};

/// A shop whose workers take what is handed over, with a paid order; the sandbox tells nothing by itself.
async fn in_hand(order_no: &str) -> (TestApp, String) {
    let app = TestApp::start().await;
    let paid = app.paid(order_no).await;
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1000, None).await;
    app.instance.app.handover.open();
    (app, paid)
}

async fn ask(app: &TestApp, refund_no: &str, order_no: &str, amount: i64) -> Reply {
    app.post("/refunds", json!({"refund_no": refund_no, "order_no": order_no, "amount": amount})).await
}

/// The task of the only refund: its state, tries and takings.
async fn task(app: &TestApp) -> (String, i32, i64) {
    let task = "SELECT status, attempts, claims FROM compensations WHERE action = 'DRIVE_REFUND'";
    let row = sqlx::query(task).fetch_one(&mut app.direct_connection().await).await.expect("a task");
    (row.get("status"), row.get("attempts"), row.get("claims"))
}

/// Its history, in words.
async fn history(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar("SELECT event FROM refund_history ORDER BY refund_id, seq")
        .fetch_all(&mut app.direct_connection().await)
        .await
        .expect("a history")
}

#[tokio::test]
async fn what_is_in_hand_begins_with_its_first_row_and_is_never_claimed() {
    let (app, paid) = in_hand("A").await;
    let made = ask(&app, "R1", "A", 500).await.expect(201);
    assert_eq!(made.text_of("status"), "PROCESSING");
    assert_eq!(
        ask(&app, "R1", "A", 500).await.expect(200).text_of("status"),
        "PROCESSING",
        "a repeat takes nothing"
    );
    assert_eq!(task(&app).await, ("RUNNING".into(), 1, 1));
    app.assert_invariants().await;

    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");
    assert_eq!(task(&app).await, ("DONE".into(), 1, 1));
    assert_eq!(history(&app).await, ["ASKED", "REQUESTED", "SUCCEEDED"]);
    assert_eq!((app.gone_back(&paid).await, app.refunded("A").await.1), (500, 500));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_dies_in_hand_is_taken_over_when_its_lease_ends_and_made_once() {
    for was_made in [false, true] {
        let cluster = Cluster::start(2, TestOptions::default()).await;
        let (app, other) = (cluster.first(), cluster.turn(1));
        let paid = app.paid("A").await;
        app.fault(FaultOp::Webhook, FaultKind::Drop, 1000, None).await;
        app.instance.app.handover.open();
        assert_eq!(ask(app, "R1", "A", 500).await.expect(201).text_of("status"), "PROCESSING");
        if was_made {
            // It got as far as the channel, and no further.
            let facts = refunds::call_of(&app.instance.app, &app.refund_id("R1").await).await;
            let call = facts.expect("PostgreSQL").expect("a refund of ours");
            let channel = app.instance.app.channels.get("sandbox").expect("the sandbox").clone();
            channel.refund(&call).await.expect("made");
        }

        let lease = app.instance.app.config.task_lease;
        app.clock.advance(lease - Duration::from_secs(5));
        other.run_until_idle().await;
        assert_eq!(other.find_refund("R1").await["status"], "PROCESSING", "it is in hand");
        app.clock.advance(Duration::from_secs(5));
        other.run_until_idle().await;
        assert_eq!(other.find_refund("R1").await["status"], "SUCCEEDED");
        assert_eq!(task(app).await, ("DONE".into(), 2, 2));

        // Whoever had it in hand wakes up behind that.
        app.run_until_idle().await;
        assert_eq!((app.gone_back(&paid).await, app.count("sandbox.refunds").await), (500, 1));
        assert_eq!(history(app).await, ["ASKED", "REQUESTED", "SUCCEEDED"]);
        app.assert_books_agree_both_ways().await;
        cluster.end().await;
    }
}

#[tokio::test]
async fn who_overslept_what_it_had_in_hand_asks_for_nothing() {
    let (app, paid) = in_hand("A").await;
    ask(&app, "R1", "A", 1_990).await.expect(201);
    let refund_id = app.refund_id("R1").await;
    // Another worker takes it over, as by whose clock the lease is over.
    let taken = app.take_task(Action::DriveRefund, &refund_id).await;
    let asleep = Task { hold: Hold { claim: 1, ..taken.hold }, is_fresh: true, ..taken.clone() };
    for lease in [None, Some("claims = 1, due_at = $1"), Some("claims = 2, due_at = $1 + interval '1 day'")] {
        if let Some(lease) = lease {
            // Nobody else has it, but its lease is over; and again as before.
            let change = format!("UPDATE compensations SET {lease} WHERE action = 'DRIVE_REFUND'");
            let change = sqlx::query(AssertSqlSafe(change)).bind(app.clock.now());
            change.execute(&mut app.direct_connection().await).await.expect("a task");
        }
        let driven = refunds::drive(&app.instance.app, &asleep).await.expect("a worker");
        let is_left = matches!(&driven, Drive::Again(why) if why.contains("another worker has its task"));
        assert!(is_left, "{driven:?}");
        assert_eq!(app.gone_back(&paid).await, 0);
    }

    // It is refused, and the money goes back by another refund: the first one must not follow.
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    assert_eq!(refunds::drive(&app.instance.app, &taken).await.expect("a worker"), Drive::Done);
    assert_eq!(app.find_refund("R1").await["status"], "FAILED");
    ask(&app, "R2", "A", 1_990).await.expect(201);
    assert_eq!(refunds::drive(&app.instance.app, &asleep).await.expect("a worker"), Drive::Done);
    app.put_back(&taken).await;
    app.run_until_idle().await;
    assert_eq!((app.gone_back(&paid).await, app.count("sandbox.refunds").await), (1_990, 1));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_silent_channel_is_asked_again_by_a_worker_that_claims_it() {
    for fault in [FaultKind::TimeoutBefore, FaultKind::TimeoutAfter] {
        let (app, paid) = in_hand("A").await;
        app.fault(FaultOp::Refund, fault, 1, Some(50)).await;
        ask(&app, "R1", "A", 500).await.expect(201);
        app.run_until_idle().await;
        assert_eq!(task(&app).await, ("READY".into(), 1, 1), "{fault:?}");
        // What is asked for now waits for a worker, so that it has not begun where there is no room for it either.
        assert!(app.instance.app.handover.slot().is_none());
        app.clock.advance(Duration::from_secs(5));
        app.run_until_idle().await;
        assert_eq!(task(&app).await, ("DONE".into(), 2, 2));
        assert_eq!((app.gone_back(&paid).await, app.count("sandbox.refunds").await), (500, 1));
        app.assert_books_agree_both_ways().await;
        app.end().await;
    }
}

#[tokio::test]
async fn nothing_is_taken_in_hand_where_its_lane_rests_or_its_workers_stop() {
    let (app, _) = in_hand("A").await;
    app.admin_post("/admin/lanes/REALTIME/pause", json!({"reason": "the channel moves"})).await.expect(200);
    assert_eq!(ask(&app, "R1", "A", 500).await.expect(201).text_of("status"), "PENDING");
    assert_eq!(task(&app).await, ("READY".into(), 0, 0));
    app.admin_post("/admin/lanes/REALTIME/resume", json!({"reason": "it has moved"})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");

    app.instance.app.handover.close();
    assert_eq!(ask(&app, "R2", "A", 500).await.expect(201).text_of("status"), "PENDING");
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".into(), 1_000));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_in_hand_that_wait_for_their_order_leave_connections_to_others() {
    // Two of eight connections are for what waits.
    let vars = vec![("DATABASE_POOL_SIZE", "8".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.paid("A").await;
    app.order("B").await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1_000, None).await;
    let service = app.instance.app.clone();
    service.handover.open();
    for number in 0..40 {
        let asked = ask(&app, &format!("R{number}"), "A", 10).await.expect(201);
        assert_eq!(asked.text_of("status"), "PROCESSING");
    }
    let mut owner = app.direct_connection().await;
    let in_hand = "BEGIN; SELECT 1 FROM orders WHERE order_no = 'A' FOR UPDATE";
    owner.execute(raw_sql(in_hand)).await.expect("in hand");
    let worker = tokio::spawn(async move { drive::run_due(&service, Lane::Realtime).await });
    until_waiting(&app, 2).await;
    // All of them have been refused by now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let since = Instant::now();
    app.pay_url("B").await.expect(200);
    let took = since.elapsed();
    println!("beside 40 refusals that wait a link took {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    owner.execute("ROLLBACK").await.expect("free");
    worker.await.expect("a worker").expect("a session");

    app.clock.advance(Duration::from_secs(60));
    app.run_until_idle().await;
    assert_eq!(app.count_where("refunds", "status = 'FAILED'").await, 40);
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
