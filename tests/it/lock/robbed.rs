//! Who loses a lock in the middle of a request, as their client sees it.

use sqlx::{AssertSqlSafe, Executor};
use tokio::time::sleep;

use super::millis;
use crate::support::stores::fresh_redis;
use crate::support::{Reply, TestApp, TestOptions, seconds, until_waiting};

/// Empties Redis while the holder of an order's lock waits for a table, and gives the lock to an heir, if any.
async fn rob(
    app: &TestApp,
    order_no: &str,
    table: &str,
    heir: Option<&str>,
    work: impl Future<Output = Reply>,
) -> Reply {
    let key = format!("lock:ORDER:demo:{order_no}");
    let mut owner = app.direct_connection().await;
    let hold = format!("BEGIN; LOCK TABLE {table} IN SHARE MODE");
    owner.execute(AssertSqlSafe(hold)).await.expect("held");
    let (reply, ()) = tokio::join!(work, async {
        app.eventually("it is held", async || {
            app.redis_command::<Option<String>>(&["GET", &key]).await.is_some()
        })
        .await;
        let _: () = app.redis_command(&["FLUSHALL"]).await;
        if let Some(heir) = heir {
            let _: () = app.redis_command(&["SET", &key, heir]).await;
        }
        // It is looked at every third of its time.
        sleep(millis(1000)).await;
        owner.execute("COMMIT").await.expect("free");
    });
    let _: i64 = app.redis_command(&["DEL", &key]).await;
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_the_lock_leaves_the_channel_to_its_new_owner() {
    let vars = vec![("LOCK_TTL_MS", "900".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.order("L2").await;
    let robbed = rob(&app, "L2", "pay_orders", Some("another"), app.pay_url("L2")).await;
    assert_eq!(robbed.problem(409), "LOCK_BUSY");
    assert_eq!(
        (app.attempt_statuses("L2").await, app.count("sandbox.trades").await),
        (vec!["INIT".into()], 0)
    );
    let link = app.pay_url("L2").await.expect(200);
    assert_eq!(app.attempt_statuses("L2").await, ["PAYING"]);

    let robbed = rob(&app, "L2", "compensations", Some("another"), app.close("L2")).await;
    assert_eq!(robbed.problem(409), "LOCK_BUSY");
    assert_eq!(app.sandbox_trade(link.text_of("pay_order_id")).await["status"], "OPEN");
    assert_eq!(app.close("L2").await.expect(200).body["status"], "CLOSED");
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_the_lock_is_not_told_that_nothing_was_done() {
    let vars = vec![("LOCK_TTL_MS", "900".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let assert_told = |reply: &Reply| {
        assert_eq!(reply.problem(409), "LOCK_BUSY");
        assert!(reply.header("retry-after").is_some());
        assert!(reply.text_of("detail").contains("what was done until then stands"), "{}", reply.text);
    };
    app.order("L3").await;
    assert_told(&rob(&app, "L3", "pay_orders", Some("another"), app.pay_url("L3")).await);
    let begun = app.attempts_of("L3").await.remove(0);
    assert_eq!(begun["status"], "INIT");
    assert_eq!(app.pay_url("L3").await.expect(200).body["pay_order_id"], begun["pay_order_id"]);

    assert_told(&rob(&app, "L3", "compensations", Some("another"), app.close("L3")).await);
    assert_eq!(app.attempt_statuses("L3").await, ["PAYING"]);
    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("L3").await, ["CLOSED"], "its task had been written");
    assert_eq!(app.close("L3").await.expect(200).body["status"], "CLOSED");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_the_lock_when_all_of_redis_is_emptied_is_answered_as_ever() {
    let vars = vec![("LOCK_TTL_MS", "2400".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.order("L4").await;
    rob(&app, "L4", "pay_orders", None, app.pay_url("L4")).await.expect(200);
    assert_eq!(app.attempt_statuses("L4").await, ["PAYING"]);
    rob(&app, "L4", "compensations", None, app.close("L4")).await.expect(200);
    assert_eq!(app.attempt_statuses("L4").await, ["CLOSED"]);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_lock_runs_out_while_redis_is_away_is_answered_as_ever() {
    let mut redis = fresh_redis().await;
    let (vars, redis_url) = (vec![("LOCK_TTL_MS", "900".to_owned())], Some(redis.url()));
    let app = TestApp::start_with(TestOptions { vars, redis_url, ..TestOptions::default() }).await;
    app.order("L5").await;
    let mut owner = app.direct_connection().await;
    owner.execute("BEGIN; LOCK TABLE pay_orders IN SHARE MODE").await.expect("held");
    let (link, ()) = tokio::join!(app.pay_url("L5"), async {
        until_waiting(&app, 1).await;
        redis.kill().await.expect("killed");
        // It runs out.
        sleep(millis(1_500)).await;
        owner.execute("COMMIT").await.expect("free");
    });
    link.expect(200);
    assert_eq!(app.attempt_statuses("L5").await, ["PAYING"]);
    app.run_until_idle().await;
    app.end().await;
}
