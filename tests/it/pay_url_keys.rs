//! `Idempotency-Key` on `POST /pay/url`: its effect is a link, or a channel's refusal.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::{Value, json};

use crate::support::{Cluster, Doomed, PUBLISHABLE_KEY, Reply, TestApp, TestOptions};

fn link_of(order_no: &str) -> Value {
    json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"})
}

#[track_caller]
fn assert_replayed(first: &Reply, again: &Reply) {
    assert!(again.is_replayed() && !first.is_replayed(), "{}", again.text);
    assert_eq!(again.said(), first.said());
}

#[tokio::test]
async fn a_link_is_given_again_also_when_its_order_is_paid() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let made = app.post_keyed("/pay/url", "k-1", &link_of("A1")).await.expect(200);
    let alive = app.post_keyed("/pay/url", "k-2", &link_of("A1")).await.expect(200);
    assert_eq!(alive.text_of("pay_url"), made.text_of("pay_url"));

    app.sandbox_pay(made.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.pay_url("A1").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_replayed(&made, &app.post_keyed("/pay/url", "k-1", &link_of("A1")).await);
    assert_replayed(&alive, &app.post_keyed("/pay/url", "k-2", &link_of("A1")).await);
    app.end().await;
}

#[tokio::test]
async fn a_refusal_is_kept_with_the_attempt_that_it_ended() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    let refused = app.post_keyed("/pay/url", "k", &link_of("A1")).await;
    assert_eq!(refused.problem(402), "CHANNEL_REFUSED");
    assert_replayed(&refused, &app.post_keyed("/pay/url", "k", &link_of("A1")).await);
    assert_eq!(app.attempt_statuses("A1").await, ["FAILED"]);

    app.post_keyed("/pay/url", "another", &link_of("A1")).await.expect(200);
    assert_replayed(&refused, &app.post_keyed("/pay/url", "k", &link_of("A1")).await);
    app.end().await;
}

#[tokio::test]
async fn after_a_silence_the_same_request_gets_its_link() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, None).await;
    let silent = app.post_keyed("/pay/url", "k", &link_of("A1")).await;
    assert_eq!(silent.problem(503), "CHANNEL_UNAVAILABLE");
    let link = app.post_keyed("/pay/url", "k", &link_of("A1")).await.expect(200);
    assert_replayed(&link, &app.post_keyed("/pay/url", "k", &link_of("A1")).await);
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    app.end().await;
}

#[tokio::test]
async fn a_browser_and_a_backend_do_not_share_a_key() {
    let app = TestApp::start().await;
    app.order("A1").await;
    // The longest one of a browser fits too.
    for key in ["k".to_owned(), "k".repeat(255)] {
        let link = app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", &key, &link_of("A1")).await.expect(200);
        let order = json!({"user_id": "u1", "currency": "CNY", "amount": 1990});
        let made = app.post_keyed("/orders", &key, &order).await.expect(201);
        assert_replayed(&made, &app.post_keyed("/orders", &key, &order).await);
        let again = app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", &key, &link_of("A1")).await;
        assert_eq!(again.said(), link.said());
    }
    app.end().await;
}

#[tokio::test]
async fn a_browser_leaves_no_more_than_one_answer_a_link() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let made = app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", "k-0", &link_of("A1")).await.expect(200);
    assert_replayed(&made, &app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", "k-0", &link_of("A1")).await);
    for key in 1..5 {
        let key = format!("k-{key}");
        let again = app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", &key, &link_of("A1")).await.expect(200);
        assert_eq!(again.said(), made.said());
    }
    assert_eq!(app.count("idempotency_keys").await, 1);
    app.end().await;
}

#[tokio::test]
async fn while_the_channel_is_asked_a_repeat_elsewhere_is_told_so() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let (here, there) = (cluster.turn(0), cluster.turn(1));
    here.order("A1").await;
    here.watch_calls(FaultOp::Create, 2_000).await;
    let body = link_of("A1");
    let (link, refused) = tokio::join!(here.post_keyed("/pay/url", "k", &body), async {
        here.begun_attempt_of("A1").await;
        there.post_keyed("/pay/url", "k", &body).await
    });
    assert_eq!(refused.problem(409), "REQUEST_IN_PROGRESS");
    let link = link.expect(200);
    assert_replayed(&link, &there.post_keyed_patiently("/pay/url", "k", &body).await);
    assert_eq!(here.calls_of(FaultOp::Create).await, 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_requests_are_one_call_and_one_answer_also_without_redis() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let mut cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    let app = cluster.first();
    app.order("A1").await;
    app.watch_calls(FaultOp::Create, 50).await;
    let body = link_of("A1");
    let calls = (0..50).map(|n| cluster.turn(n).post_keyed_patiently("/pay/url", "k", &body));
    let replies = join_all(calls).await;
    assert!(
        replies.iter().all(|reply| reply.status == 200 && reply.said() == replies[0].said()),
        "{replies:#?}"
    );
    assert_eq!((app.calls_of(FaultOp::Create).await, app.count("idempotency_keys").await), (1, 1));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_orders_that_race_for_a_key_one_gets_a_link_also_without_redis() {
    let mut cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    for round in 0..8 {
        app.order(&format!("A{round}")).await;
        app.order(&format!("B{round}")).await;
    }
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    for round in 0..8 {
        let key = format!("k-{round}");
        let (one, other) = (link_of(&format!("A{round}")), link_of(&format!("B{round}")));
        let (one, other) = tokio::join!(
            cluster.turn(0).post_keyed("/pay/url", &key, &one),
            cluster.turn(1).post_keyed("/pay/url", &key, &other)
        );
        let (won, lost) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!((won.status, lost.problem(422)), (200, "IDEMPOTENCY_KEY_REUSED"));
    }
    assert_eq!(cluster.first().count("idempotency_keys").await, 8);
    assert_eq!(cluster.first().count_where("pay_orders", "status = 'PAYING'").await, 8);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_is_waited_for_is_ones_own_also_without_redis() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let mut cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    let (here, there) = (cluster.turn(0), cluster.turn(1));
    here.order("A1").await;
    here.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    // The channel is asked what it knows of the attempt before that fails.
    here.watch_calls(FaultOp::Query, 1_000).await;
    let body = link_of("A1");
    let elsewhere = async |key| {
        here.begun_attempt_of("A1").await;
        there.post_keyed("/pay/url", key, &body).await
    };
    let (first, same, other) =
        tokio::join!(here.post_keyed("/pay/url", "k", &body), elsewhere("k"), elsewhere("another"));
    for refused in [&first, &same, &other] {
        assert_eq!((refused.status, refused.text_of("code")), (402, "CHANNEL_REFUSED"), "{}", refused.text);
    }
    assert_replayed(&first, &same);
    assert_eq!(here.attempt_statuses("A1").await, ["FAILED"], "of one call");
    assert_replayed(&other, &here.post_keyed("/pay/url", "another", &body).await);
    cluster.end().await;
}

#[test]
fn a_link_that_a_crash_swallowed_is_given_by_the_next_instance() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (app, doomed) = runtime.block_on(async {
        let app = TestApp::start().await;
        app.order("A1").await;
        let doomed = Doomed::beside(&app, 500).await;
        (app, doomed)
    });
    runtime.block_on(async {
        let body = link_of("A1");
        let is_kept = async {
            while app.count("idempotency_keys").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = is_kept => {}
            _ = doomed.app.post_keyed("/pay/url", "k", &body) => {}
        }
    });
    doomed.kill();
    runtime.block_on(async {
        let link = app.post_keyed_patiently("/pay/url", "k", &link_of("A1")).await.expect(200);
        assert!(link.is_replayed());
        assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
        app.end().await;
    });
}
