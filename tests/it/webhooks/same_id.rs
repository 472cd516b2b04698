//! Money under an id that was heard before, of an event or of a trade.

use serde_json::json;

use crate::support::{TestApp, minutes};

#[tokio::test]
async fn money_under_the_id_of_an_earlier_event_is_not_lost() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W30").await;
    app.deliver(&app.ended("e1", &id, "CLOSED")).await;
    let paid = app.success("e1", &id, "t1", 1990);
    for _ in 0..3 {
        app.deliver(&paid).await;
    }
    let order = app.find_order("W30").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(id)));
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("RECORDED"), "what it said first stands");
    assert_eq!(app.count("webhook_inbox").await, 2);

    app.deliver(&app.success("e1", &id, "t2", 1990)).await;
    app.deliver(&app.success("e1", &id, "t2", 1990)).await;
    assert_eq!(app.stray().await["reason"], "DUPLICATE_PAYMENT");
    app.deliver(&app.success("e1", "po_of_nobody", "t3", 1990)).await;
    app.deliver(&app.success("e1", "po_of_nobody", "t3", 1990)).await;
    assert_eq!(app.verdict_of("e1 t3").await.as_deref(), Some("UNMATCHED"));
    assert_eq!(app.count("webhook_inbox").await, 4);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn money_under_the_id_of_an_earlier_event_is_answered_by_its_own_verdict_however_often_it_comes() {
    let app = TestApp::start().await;
    let (wrong, right) = (app.order_to_pay("W34").await, app.order_to_pay("W35").await);
    app.deliver(&app.ended("e1", &wrong, "CLOSED")).await;
    for _ in 0..2 {
        assert_eq!(app.webhook(&app.success("e1", &wrong, "t1", 1989)).await.status, 400);
    }
    assert_eq!(app.webhook(&app.success("e2", &right, "t2", 1989)).await.status, 400);
    for _ in 0..2 {
        app.deliver(&app.success("e2", &right, "t3", 1990)).await;
        assert_eq!(app.webhook(&app.success("e2", &right, "t2", 1989)).await.status, 400);
    }
    app.end().await;
}

#[tokio::test]
async fn money_is_not_lost_either_where_the_channel_gave_its_own_id_to_another_event() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W36").await;
    for event_id in ["e1 t1", "e1"] {
        app.deliver(&app.ended(event_id, &id, "CLOSED")).await;
    }
    for _ in 0..2 {
        app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    }
    assert_eq!(app.find_order("W36").await["paid_by"], json!(id));
    assert_eq!(app.count("webhook_inbox").await, 3);

    // The other event may wait for its pay order.
    let id = app.order_to_pay("W37").await;
    app.deliver(&app.success("e2 t2", "po_of_nobody", "t3", 1990)).await;
    app.deliver(&app.ended("e2", &id, "CLOSED")).await;
    for _ in 0..2 {
        app.deliver(&app.success("e2", &id, "t2", 1990)).await;
    }
    assert_eq!(app.find_order("W37").await["paid_by"], json!(id));
    assert_eq!(app.verdict_of("e2 t2").await.as_deref(), Some("UNMATCHED"));
    app.end().await;
}

#[tokio::test]
async fn money_under_the_id_of_an_event_that_waits_for_its_pay_order_is_not_lost() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W33").await;
    for _ in 0..2 {
        app.deliver(&app.success("e1", "po_of_nobody", "t1", 1990)).await;
    }
    assert_eq!(app.count("webhook_inbox").await, 1, "a repeat waits already");
    for _ in 0..2 {
        app.deliver(&app.success("e1", &id, "t2", 1990)).await;
    }
    assert_eq!(app.status_of("W33").await, "PAID");
    assert_eq!(
        app.verdict_of("e1").await.as_deref(),
        Some("UNMATCHED"),
        "what it said first is still looked for"
    );
    assert_eq!(app.verdict_of("e1 t2").await.as_deref(), Some("APPLIED"));
    assert_eq!(app.count("webhook_inbox").await, 2);

    // The same trade in other words waits beside itself, and is nobody's once.
    let mut again = app.success("e1", "po_of_nobody", "t1", 1990);
    again["buyer"] = json!("b1");
    for _ in 0..2 {
        app.deliver(&again).await;
    }
    assert_eq!(app.verdict_of("e1 t1").await.as_deref(), Some("UNMATCHED"));
    for _ in 0..11 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    assert_eq!(app.stray().await["reason"], "UNKNOWN_ORDER");
    app.end().await;
}

#[tokio::test]
async fn a_trade_that_is_told_of_another_order_or_amount_is_shown_to_a_person() {
    let app = TestApp::start().await;
    let (id, other) = (app.order_to_pay("W31").await, app.order_to_pay("W32").await);
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    app.deliver(&app.success("e2", &id, "t1", 1990)).await;
    assert_eq!(app.exceptions("").await.len(), 0, "a repeat is none");

    app.deliver(&app.success("e3", &other, "t1", 1990)).await;
    let told = app.open_exception().await;
    assert_eq!((&told["kind"], &told["subject"]), (&json!("CONTRADICTION"), &json!("sandbox/t1")));
    assert_eq!(told["order_no"], "W32");
    assert_eq!(app.status_of("W32").await, "PENDING", "the money pays one order");
    app.resolve(&told, "NONE").await.expect(200);

    app.deliver(&app.success("e4", &id, "t1", 1989)).await;
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION");
    app.end().await;
}
