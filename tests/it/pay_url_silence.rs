//! The pay URL while the channel is silent, late, or faster than we are.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::drive;
use payonce::run::{self, Roles};
use serde_json::json;
use sqlx::Executor;

use crate::support::{
    Cluster, Reply, SECRET_KEY, TestApp, TestOptions, hang_up_once, seconds, until_waiting,
};

/// Two instances that have no Redis, so that neither waits for the other.
async fn two_without_redis() -> Cluster {
    two_of_patience_without_redis(1_000).await
}

/// The same; each waits so many milliseconds for the channel.
async fn two_of_patience_without_redis(deadline: u32) -> Cluster {
    let vars = vec![("CHANNEL_DEADLINE_MS", deadline.to_string())];
    let mut cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    cluster
}

#[tokio::test]
async fn after_a_silence_the_same_request_gets_the_link_with_the_same_number() {
    let app = TestApp::start().await;
    for (order_no, silence) in [("A1", FaultKind::TimeoutBefore), ("A2", FaultKind::TimeoutAfter)] {
        app.order(order_no).await;
        app.fault(FaultOp::Create, silence, 1, Some(1_500)).await;
        let silent = app.pay_url(order_no).await;
        assert_eq!(silent.problem(503), "CHANNEL_UNAVAILABLE");
        assert!(silent.header("retry-after").is_some());
        let attempt = app.attempts_of(order_no).await.remove(0);
        assert_eq!(attempt["status"], "INIT");
        assert_eq!(
            app.get(&format!("/pay/{}", attempt["pay_order_id"].as_str().unwrap())).await.expect(200).body["pay_url"],
            json!(null)
        );

        let link = app.pay_url(order_no).await.expect(200);
        assert_eq!(link.body["pay_order_id"], attempt["pay_order_id"]);
        assert_eq!(app.attempt_statuses(order_no).await, ["PAYING"]);
    }
    assert_eq!(app.count("sandbox.trades").await, 2);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn after_a_silence_a_task_makes_the_link_by_itself() {
    let app = TestApp::start().await;
    for (order_no, silence) in [("A1", FaultKind::TimeoutBefore), ("A2", FaultKind::TimeoutAfter)] {
        app.order(order_no).await;
        // Silent again to the task's first try.
        app.fault(FaultOp::Create, silence, 2, Some(1_200)).await;
        assert_eq!(app.pay_url(order_no).await.problem(503), "CHANNEL_UNAVAILABLE");
        let begun = app.attempts_of(order_no).await.remove(0);
        app.clock.advance(seconds(2));
        app.run_until_idle().await;
        assert_eq!(app.attempt_statuses(order_no).await, ["INIT"]);
        app.clock.advance(seconds(3));
        app.run_until_idle().await;
        assert_eq!(app.attempt_statuses(order_no).await, ["PAYING"]);
        assert_eq!(app.pay_url(order_no).await.expect(200).body["pay_order_id"], begun["pay_order_id"]);
    }
    assert_eq!(app.count("sandbox.trades").await, 2);
    app.end().await;
}

#[tokio::test]
async fn requests_that_fail_do_not_use_up_the_tries_of_their_task() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.order_to_pay("A2").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 2, Some(1_200)).await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 2, Some(1_200)).await;
    let ask = async || {
        assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
        assert_eq!(app.pay_url_by("A2", "u2").await.problem(503), "CHANNEL_UNAVAILABLE");
    };
    ask().await;
    // They were tried eight times: the next pause is of ten minutes.
    app.sql(
        "UPDATE compensations SET attempts = 8, due_at = due_at + interval '10 minutes'
         WHERE action IN ('DRIVE_PAY_ORDER', 'CLOSE_PAY_ORDER')",
    )
    .await;
    ask().await;
    app.clock.advance(seconds(500));
    app.run_until_idle().await;
    assert_eq!(app.count_where("compensations", "attempts = 8 AND status = 'READY'").await, 2);
    app.clock.advance(seconds(110));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    assert_eq!(app.attempt_statuses("A2").await, ["CLOSED"]);
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_stays_silent_until_the_order_is_over_leaves_it_closed() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    let pay_order = app.begun_attempt_of("A1").await;
    app.clock.advance(seconds(1_801));
    app.run_until_idle().await;
    assert_eq!(
        (app.status_of("A1").await, app.attempt_statuses("A1").await),
        ("CLOSED".into(), vec!["CLOSED".into()])
    );
    assert_eq!(app.sandbox_trade(&pay_order).await["status"], "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn the_second_payer_waits_for_the_first_ones_trade_to_be_closed() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    assert_eq!(app.pay_url_by("A1", "u2").await.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"], "nothing moved");
    assert_eq!(app.sandbox_trade(&first).await["status"], "OPEN");

    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED"]);
    assert_eq!(app.sandbox_trade(&first).await["status"], "CLOSED");
    app.pay_url_by("A1", "u2").await.expect(200);
    app.end().await;
}

#[tokio::test]
async fn a_link_that_is_being_closed_is_not_given_again() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 2, Some(1_200)).await;
    assert_eq!(app.close("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    // The order waits for money as before; its link will be closed by a task, so it goes first here too.
    assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"], "nothing moved");

    let second = app.pay_url("A1").await.expect(200);
    assert_ne!(second.text_of("pay_order_id"), first);
    assert_eq!(app.sandbox_trade(&first).await["status"], "CLOSED");
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"], "the task has nothing left to close");
    app.sandbox_pay(second.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_order("A1").await["paid_by"], second.body["pay_order_id"]);

    // Money that came meanwhile pays the order.
    let paid = app.order_to_pay("A2").await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    assert_eq!(app.close("A2").await.problem(503), "CHANNEL_UNAVAILABLE");
    app.sandbox_pay(&paid, json!({"notify": false})).await.expect(200);
    assert_eq!(app.pay_url("A2").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.find_order("A2").await["paid_by"], json!(paid));
    app.end().await;
}

#[tokio::test]
async fn money_that_came_while_the_channel_was_silent_is_found_by_the_same_request() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    let pay_order = app.begun_attempt_of("A1").await;

    // The channel has the trade; its buyer pays, and the callback is lost.
    app.sandbox_pay(&pay_order, json!({"notify": false})).await.expect(200);
    assert_eq!(app.pay_url("A1").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.find_order("A1").await["paid_by"], json!(pay_order));
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn money_that_came_while_the_channel_was_silent_is_found_by_the_task() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    let pay_order = app.begun_attempt_of("A1").await;
    app.sandbox_pay(&pay_order, json!({"notify": false})).await.expect(200);
    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    assert_eq!(app.find_order("A1").await["paid_by"], json!(pay_order));
    app.end().await;
}

#[tokio::test]
async fn a_callback_that_overtakes_the_link_pays_the_order() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let (app, other) = (cluster.first(), cluster.turn(1));
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(900)).await;
    let (link, ()) = tokio::join!(app.pay_url("A1"), async {
        let pay_order = app.begun_attempt_of("A1").await;
        let early = other.success("E1", &pay_order, "T1", 1990);
        other.webhook(&early).await.expect(200);
        assert_eq!(app.status_of("A1").await, "PAID");
    });
    assert_eq!(link.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.attempt_statuses("A1").await, ["PAID"]);
    app.run_until_idle().await;
    cluster.end().await;
}

#[tokio::test]
async fn an_order_that_is_closed_while_its_link_is_made_leaves_no_trade_open() {
    let cluster = two_without_redis().await;
    let (app, other) = (cluster.first(), cluster.turn(1));
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(700)).await;
    let (link, pay_order) = tokio::join!(app.pay_url("A1"), async {
        let pay_order = app.begun_attempt_of("A1").await;
        assert_eq!(other.close("A1").await.expect(200).body["status"], "CLOSED");
        pay_order
    });
    assert_eq!(link.problem(409), "ORDER_CLOSED");
    assert_eq!(app.sandbox_trade(&pay_order).await["status"], "CLOSED");
    app.run_until_idle().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_published_behind_the_answer_to_its_close_leaves_no_trade_open() {
    let cluster = two_of_patience_without_redis(5_000).await;
    let (app, other) = (cluster.first(), cluster.turn(1));
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(1_500)).await;
    let (linked, is_linked) = tokio::sync::oneshot::channel();
    let ask = async {
        let link = app.pay_url("A1").await;
        linked.send(()).expect("somebody waits for it");
        link
    };
    let close = async {
        app.begun_attempt_of("A1").await;
        // The channel may be asked, and its answer is not written down yet; a link only looks at its order.
        let mut owner = app.direct_connection().await;
        owner.execute("BEGIN; SELECT 1 FROM orders FOR NO KEY UPDATE").await.expect("held");
        let (closed, ()) = tokio::join!(other.close("A1"), async {
            until_waiting(app, 1).await;
            assert_eq!(app.count("sandbox.trades").await, 0, "it has not been seen there");
            is_linked.await.expect("a link");
            owner.execute("COMMIT").await.expect("free");
        });
        closed
    };
    let (link, closed) = tokio::join!(ask, close);
    let link = link.expect(200);
    assert_eq!(closed.expect(200).body["status"], "CLOSED");
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED"]);
    assert_eq!(app.sandbox_trade(link.text_of("pay_order_id")).await["status"], "CLOSED");
    app.run_until_idle().await;
    cluster.end().await;
}

#[tokio::test]
async fn an_order_that_is_closed_while_a_task_makes_its_link_leaves_no_trade_open() {
    let cluster = two_without_redis().await;
    let (app, other) = (cluster.first(), cluster.turn(1));
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    assert_eq!(app.pay_url("A1").await.problem(503), "CHANNEL_UNAVAILABLE");
    let pay_order = app.begun_attempt_of("A1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(700)).await;
    app.clock.advance(seconds(2));
    tokio::join!(app.run_until_idle(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(other.close("A1").await.expect(200).body["status"], "CLOSED");
    });
    app.run_until_idle().await;
    assert_eq!(app.sandbox_trade(&pay_order).await["status"], "CLOSED");
    cluster.end().await;
}

#[tokio::test]
async fn closing_waits_for_a_link_that_is_being_made_in_the_same_process() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(500)).await;
    let (link, closed) = tokio::join!(app.pay_url("A1"), async {
        app.begun_attempt_of("A1").await;
        app.close("A1").await
    });
    let link = link.expect(200);
    assert_eq!(closed.expect(200).body["status"], "CLOSED");
    assert_eq!(app.sandbox_trade(link.text_of("pay_order_id")).await["status"], "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_loses_only_the_answer() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.watch_calls(FaultOp::Create, 500).await;
    let begun = hang_up_once(app.begun_attempt_of("A1"), app.pay_url("A1")).await;
    app.eventually("the link stands", || async { app.attempt_statuses("A1").await == ["PAYING"] }).await;
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), begun);
    assert_eq!(app.calls_of(FaultOp::Create).await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_refusal_is_not_told_of_an_order_that_was_paid_meanwhile() {
    let app = TestApp::start().await;
    app.order("L9").await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    // The channel's books know nothing of the money yet when it is asked.
    app.watch_calls(FaultOp::Query, 500).await;
    let pay = async {
        let id = app.begun_attempt_of("L9").await;
        while app.calls_of(FaultOp::Query).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    };
    let (asked, ()) = tokio::join!(app.pay_url("L9"), pay);
    assert_eq!(asked.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.status_of("L9").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_repeat_that_is_refused_leaves_nothing_payable_of_the_call_before_it() {
    let app = TestApp::start().await;
    let refused_after_a_silence = async |order_no: &str| {
        app.order(order_no).await;
        app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
        assert_eq!(app.pay_url(order_no).await.problem(503), "CHANNEL_UNAVAILABLE");
        let id = app.begun_attempt_of(order_no).await;
        assert_eq!(app.sandbox_trade(&id).await["status"], "OPEN");
        app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
        id
    };
    let first = refused_after_a_silence("A1").await;
    assert_eq!(app.pay_url("A1").await.problem(402), "CHANNEL_REFUSED");
    assert_eq!(app.attempt_statuses("A1").await, ["FAILED"]);
    assert_eq!(app.sandbox_trade(&first).await["status"], "CLOSED");
    assert_ne!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), first);

    // As long as it may be payable it has not failed.
    let second = refused_after_a_silence("A2").await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    assert_eq!(app.pay_url("A2").await.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(app.attempt_statuses("A2").await, ["INIT"]);
    assert_eq!(app.pay_url("A2").await.expect(200).text_of("pay_order_id"), second);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn whoever_closes_a_paid_order_hears_so_however_silent_the_channel_of_another_attempt_is() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    app.pay_url_by("A1", "u2").await.expect(200);
    app.deliver(&app.success("e1", &first, "t1", 1990)).await;
    assert_eq!(app.attempt_statuses("A1").await, ["PAID", "PAYING"]);
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    assert_eq!(app.close("A1").await.problem(409), "ORDER_IS_ALREADY_PAID");
    // The channel is silent to the task, which comes again.
    app.run_until_idle().await;
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["PAID", "CLOSED"]);
    app.end().await;
}

#[tokio::test]
async fn an_attempt_of_a_channel_that_an_instance_does_not_know_is_closed_by_one_that_does() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    // An instance on the same stores, without the role that has the sandbox.
    let service = &app.instance.app;
    let roles = Roles { api: true, workers: true, sandbox: false };
    let beside = run::open(service.config.clone(), roles, service.ids.clone()).await.expect("an instance");
    let close = async || {
        let request = app.http.post(format!("http://{}/orders/A1/close", beside.addr));
        let request = request.bearer_auth(SECRET_KEY).json(&json!({}));
        Reply::of(request.send().await.expect("an answer")).await
    };
    assert_eq!(close().await.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(
        (app.status_of("A1").await, app.attempt_statuses("A1").await),
        ("PENDING".into(), vec!["PAYING".into()]),
        "nothing moved"
    );
    app.clock.advance(seconds(2));
    drive::run_due(&beside.app, Lane::Realtime).await.expect("a session");
    let waiting = "action = 'CLOSE_PAY_ORDER' AND status = 'READY' AND attempts = 0
                   AND last_error = 'there is no channel sandbox here: it is left to others'";
    assert_eq!(app.count_where("compensations", waiting).await, 1, "its workers cannot either");
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED"]);
    assert_eq!(app.sandbox_trade(&first).await["status"], "CLOSED");
    assert_eq!(close().await.expect(200).text_of("close_reason"), "CANCELLED");
    beside.stop().await;

    // In the way of a link of another channel it is as good as silent, too.
    app.order_to_pay("A2").await;
    app.sql("UPDATE pay_orders SET channel = 'elsewhere' WHERE order_no = 'A2'").await;
    assert_eq!(app.pay_url("A2").await.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(app.attempt_statuses("A2").await, ["PAYING"], "nothing moved");
    app.sql("UPDATE pay_orders SET channel = 'sandbox' WHERE order_no = 'A2'").await;
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A2").await, ["CLOSED"], "by the task");
    app.pay_url("A2").await.expect(200);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_for_the_order_is_given_no_link_that_is_being_closed() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(1_500)).await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    let is_begun = async || app.count_where("pay_orders", "status = 'INIT'").await == 1;
    let closing = async {
        app.eventually("it is begun", is_begun).await;
        app.close("A1").await
    };
    let another = async {
        app.eventually("it is begun", is_begun).await;
        // Behind whoever closes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let request = json!({"order_no": "A1", "payer_id": "u1", "channel": "sandbox", "subject": "another"});
        app.post("/pay/url", request).await
    };
    let (first, closed, another) = tokio::join!(app.pay_url("A1"), closing, another);
    assert_eq!(first.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!(closed.problem(503), "CHANNEL_UNAVAILABLE");
    let link = another.expect(200).text_of("pay_order_id").to_owned();
    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    assert_eq!(app.sandbox_trade(&link).await["status"], "OPEN", "its buyer can pay");
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"]);
    app.end().await;
}
