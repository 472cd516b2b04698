//! Who has a task: one worker, whatever happens to its lease.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::{Action, Lane};
use payonce::drive;
use payonce::infra::duty::Batch;
use serde_json::json;

use super::{leasing_for, patient, tries, waiting_refund};
use crate::support::TestApp;

/// A worker of the lane that somebody waits for.
fn worker(app: &TestApp) -> tokio::task::JoinHandle<Batch> {
    let app = app.instance.app.clone();
    tokio::spawn(async move { drive::run_due(&app, Lane::Realtime).await.expect("a session") })
}

#[tokio::test]
async fn a_worker_keeps_its_leases_while_it_waits_for_something_else() {
    let app = patient().await;
    // The end of a task with nothing to do takes three leases to be written.
    app.sql(
        "CREATE FUNCTION story_waits() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(7.5); RETURN NEW; END';
         CREATE TRIGGER story_waits BEFORE UPDATE ON compensations FOR EACH ROW
         WHEN (NEW.status = 'DONE' AND NEW.subject = 'po_nothing') EXECUTE FUNCTION story_waits()",
    )
    .await;
    waiting_refund(&app, "K1").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(8_500)).await;
    app.sql(
        "INSERT INTO compensations (kind, action, subject, attempts, due_at, created_at, updated_at)
         VALUES ('REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_nothing', 1, now(), now(), now())",
    )
    .await;
    let slow = worker(&app);
    app.eventually("the slow one has it", async || tries(&app).await == 1).await;
    while !slow.is_finished() {
        assert_eq!(drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a look"), Batch::Empty);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    slow.await.expect("no panic");
    assert_eq!((tries(&app).await, app.refunded("K1").await.0), (1, "REFUNDED".to_owned()));
    app.sql("DROP TRIGGER story_waits ON compensations").await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_lease_ran_out_is_taken_over_by_one_worker_and_its_first_one_ends_nothing() {
    let app = patient().await;
    waiting_refund(&app, "K2").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 2, Some(6_500)).await;
    let overslept = worker(&app);
    app.eventually("the first one has it", async || tries(&app).await == 1).await;
    app.sql("UPDATE compensations SET due_at = now() - interval '1 s' WHERE action = 'DRIVE_REFUND'").await;
    let heirs: Vec<_> = (0..4).map(|_| worker(&app)).collect();
    app.eventually("one of them has it", async || tries(&app).await == 2).await;
    overslept.await.expect("no panic");
    let one_alive = "action = 'DRIVE_REFUND' AND (status, attempts) IN (('RUNNING', 2), ('DONE', 2))";
    assert_eq!(app.count_where("compensations", one_alive).await, 1, "the first one ended nothing");
    join_all(heirs).await.into_iter().for_each(|heir| assert!(heir.is_ok()));
    app.run_until_idle().await;
    assert_eq!((tries(&app).await, app.refunded("K2").await.0), (2, "REFUNDED".to_owned()));
    assert_eq!(app.sandbox_books().await, (1990, 1990), "it was made once");
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_overslept_ends_nothing_of_who_took_the_task_after_a_person_revived_it() {
    let app = patient().await;
    waiting_refund(&app, "K3").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(6_500)).await;
    let overslept = worker(&app);
    app.eventually("the first one has it", async || tries(&app).await == 1).await;
    app.admin_post("/admin/lanes/REALTIME/pause", json!({"reason": "for the other one"})).await.expect(200);
    let heir = app.take_revived(Action::DriveRefund).await;
    overslept.await.expect("no panic");
    let has_it = "action = 'DRIVE_REFUND' AND status = 'RUNNING' AND attempts = 1";
    assert_eq!(app.count_where("compensations", has_it).await, 1, "the first one ended nothing");
    app.put_back(&heir).await;
    app.admin_post("/admin/lanes/REALTIME/resume", json!({"reason": "it is done"})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.refunded("K3").await.0, "REFUNDED");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_overslept_its_last_try_gives_nothing_up_of_who_took_the_task_since() {
    let app = patient().await;
    waiting_refund(&app, "K5").await;
    app.sql("UPDATE compensations SET attempts = 12, last_error = 'silent' WHERE action = 'DRIVE_REFUND'")
        .await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1, Some(6_500)).await;
    let overslept = worker(&app);
    app.eventually("the first one has it", async || tries(&app).await == 13).await;
    app.admin_post("/admin/lanes/REALTIME/pause", json!({"reason": "for the other one"})).await.expect(200);
    let heir = app.take_revived(Action::DriveRefund).await;
    overslept.await.expect("no panic");
    assert_eq!(app.count_where("compensations", "action = 'DRIVE_REFUND' AND status = 'RUNNING'").await, 1);
    assert!(app.exceptions("status=OPEN").await.is_empty(), "nothing was given up");
    app.put_back(&heir).await;
    app.admin_post("/admin/lanes/REALTIME/resume", json!({"reason": "it is done"})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.refunded("K5").await.0, "REFUNDED");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_while_another_ones_row_is_locked_for_long() {
    let app = patient().await;
    app.paid("K5").await;
    waiting_refund(&app, "K4").await;
    app.post("/refunds", json!({"refund_no": "K5", "order_no": "K5"})).await.expect(201);
    app.fault(FaultOp::Refund, FaultKind::Delay, 2, Some(8_500)).await;
    let slow = worker(&app);
    let flying = "action = 'DRIVE_REFUND' AND status = 'RUNNING'";
    app.eventually("both are in the air", async || app.count_where("compensations", flying).await == 2).await;
    // Three leases long, as by whoever writes down that the channel refused.
    let mut locking = app.direct_connection().await;
    let lock =
        "BEGIN; SELECT FROM compensations WHERE action = 'DRIVE_REFUND' ORDER BY id LIMIT 1 FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut locking).await.expect("locked");
    let unlocked = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(7_500)).await;
        sqlx::raw_sql("COMMIT").execute(&mut locking).await.expect("unlocked");
    });
    while !unlocked.is_finished() {
        // Right behind the COMMIT it may find the one free that was locked.
        assert_ne!(
            drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a look"),
            Batch::MoreWaiting
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let other = "id = (SELECT max(id) FROM compensations WHERE action = 'DRIVE_REFUND') AND attempts = 1";
    assert_eq!(app.count_where("compensations", other).await, 1, "nobody took the other one over");
    slow.await.expect("no panic");
    app.run_until_idle().await;
    assert_eq!(app.count_where("refunds", "status = 'SUCCEEDED'").await, 2);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_ends_of_the_same_tasks_never_wait_for_each_other_in_a_circle() {
    let app = leasing_for(1_000).await;
    const COUNT: usize = 60;
    for number in 0..COUNT {
        app.paid(&format!("D{number}")).await;
    }
    app.run_until_idle().await;
    for number in 0..COUNT {
        let no = format!("D{number}");
        app.post("/refunds", json!({"refund_no": no, "order_no": no})).await.expect(201);
    }
    // Each row of theirs takes a while, so that a renewal is under way whenever something lands. A claim takes no longer for it:
    // one that runs into its deadline ends the session, as on a machine that is busy with other stories.
    app.sql(
        "CREATE FUNCTION story_waits() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END';
         CREATE TRIGGER story_waits BEFORE UPDATE ON compensations FOR EACH ROW
         WHEN (OLD.status = 'RUNNING') EXECUTE FUNCTION story_waits()",
    )
    .await;
    worker(&app).await.expect("no panic");
    app.sql("DROP TRIGGER story_waits ON compensations").await;
    app.run_until_idle().await;
    assert_eq!(app.count_where("refunds", "status = 'SUCCEEDED'").await, COUNT as i64);
    app.end_without_deadlocks().await;
}
