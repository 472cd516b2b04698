//! A timer says when to look, and the order when it is due.

use serde_json::json;

use super::TIMERS;
use crate::support::{TestApp, seconds};

#[tokio::test]
async fn an_order_whose_timer_comes_early_stays_open_and_closes_when_it_is_due() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    for order_no in ["T30", "T31"] {
        app.order_for(order_no, 1_800).await;
    }
    app.pay_url("T31").await.expect(200);
    for _ in 0..3 {
        for order_no in ["demo:T30", "demo:T31"] {
            let _: i64 = app.redis_command(&["ZADD", TIMERS, "0", order_no]).await;
        }
        app.run_until_idle().await;
        assert_eq!((app.open_orders().await, app.stock_of("TEA").await), (2, (10, 2)), "neither is due");
    }
    assert_eq!(app.attempt_statuses("T31").await, ["PAYING"]);
    app.pay_url("T30").await.expect(200);
    app.clock.advance(seconds(1_801));
    app.run_until_idle().await;
    let closed = app.find_order("T30").await;
    assert_eq!((&closed["status"], &closed["close_reason"]), (&json!("CLOSED"), &json!("TIMEOUT")));
    assert_eq!((app.open_orders().await, app.stock_of("TEA").await), (0, (10, 0)));
    app.end().await;
}
