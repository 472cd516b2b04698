//! What a user was charged for is given back by a person's word, once, and nobody pays for a top-up twice.

use payonce::reconciliation;
use serde_json::{Value, json};

use super::charges::{has_and_owes, invented_top_up, open_of, product, used};
use super::{Fate, paid, rfc3339, start};
use crate::support::TestApp;
use crate::support::books::sides;

async fn only_difference(app: &TestApp, run: &Value) -> Value {
    let mut items = app.differences(run).await;
    assert_eq!(items.len(), 1, "{items:#?}");
    items.remove(0)
}

#[tokio::test]
async fn a_charge_is_given_back_once_and_until_then_its_top_up_is_refunded_by_nobody() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    paid(&app, "FINE").await;
    invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 500).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let item = only_difference(&app, &run).await;
    assert_eq!((&item["status"], has_and_owes(&app, "u1").await), (&json!("APPLIED"), (0, 500)));
    // Money that the user brings themselves is not taken for it a second time.
    app.top_up("OWN", "u1", 1_000).await;
    let refund = |number: &str| json!({"refund_no": number, "order_no": "T", "amount": 600});
    assert_eq!(app.post("/refunds", refund("R1")).await.problem(409), "TOP_UP_CHARGED");
    let mut asked = refund("R2");
    asked["reason"] = json!("the story wants it");
    assert_eq!(app.admin_post("/admin/refunds", asked).await.problem(409), "TOP_UP_CHARGED");
    assert_eq!(has_and_owes(&app, "u1").await, (1_000, 500));
    assert_eq!(
        app.post("/refunds", json!({"refund_no": "R3", "order_no": "OWN", "amount": 1})).await.status,
        201
    );

    app.found_after_all("T").await;
    app.reconcile(day).await;
    assert_eq!(open_of(&app, "CONTRADICTION").await.len(), 1);
    let given = app.decide(&item, "reverse-charge").await.expect(200).body;
    assert_eq!(given["status"], "REVERSED");
    assert!(given["outcome"].as_str().expect("text").contains("the story wants it"), "{given:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (999 + 1_490, 0));
    let id = item["item_id"].as_str().expect("an id");
    assert_eq!(
        app.booking(&format!("REVERSAL:COMPENSATING_CHARGE:{id}")).await.expect("a booking"),
        sides([
            ("CHANNEL:sandbox:CNY", 1_990),
            ("USER_AVAILABLE:demo:u1:CNY", -1_490),
            ("USER_RECEIVABLE:demo:u1:CNY", -500)
        ])
    );
    assert_eq!(app.booking(&format!("CHARGE_PAID_BACK:{id}")).await, None, "nothing was paid off");
    for kind in ["CONTRADICTION", "USAGE_SHORTFALL"] {
        assert!(open_of(&app, kind).await.is_empty(), "{kind}: nothing is left to see to");
    }
    // Again, it is as it stands; and compared anew nobody is charged.
    assert_eq!(app.decide(&item, "reverse-charge").await.expect(200).body["status"], "REVERSED");
    let told = app.get("/events?order_no=T").await.expect(200).body["data"].clone();
    let told: Vec<_> = told.as_array().expect("events").iter().map(|event| &event["type"]).collect();
    assert_eq!(told, ["compensating_charge.reversed", "compensating_charge.made", "order.paid"]);
    let logged = "action = 'reconciliations.reverse_charge' AND order_no = 'T'";
    assert_eq!(app.count_where("admin_log", logged).await, 1);
    assert_eq!(app.reconcile(day).await["differences"], json!({"MISSING_THERE REVERSED": 1}));
    assert!(open_of(&app, "CONTRADICTION").await.is_empty());
    app.post("/refunds", refund("R1")).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R1").await["status"], "SUCCEEDED");
    assert_eq!(has_and_owes(&app, "u1").await, (999 + 1_490 - 600, 0));
    app.end().await;
}

#[tokio::test]
async fn only_a_charge_is_given_back_and_what_was_given_back_is_charged_by_nobody() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    Fate::LostCallback.befall(&app, "LONG").await;
    Fate::Invented.befall(&app, "SHORT").await;
    invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 500).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    let of = |order_no: &str| items.iter().find(|item| item["order_no"] == order_no).expect("one");
    assert_eq!((&of("LONG")["status"], &of("SHORT")["status"]), (&json!("APPLIED"), &json!("ESCALATED")));
    for order_no in ["LONG", "SHORT"] {
        assert_eq!(app.decide(of(order_no), "reverse-charge").await.problem(409), "DIFFERENCE_NOT_CHARGED");
    }
    app.decide(of("T"), "reverse-charge").await.expect(200);
    assert_eq!(has_and_owes(&app, "u1").await, (1_490, 0));
    for verb in ["approve", "dismiss"] {
        assert_eq!(app.decide(of("T"), verb).await.problem(409), "DIFFERENCE_NOT_WAITING");
    }
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"]["MISSING_THERE REVERSED"], 1, "compared anew, nobody is charged: {run:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (1_490, 0));
    // As if another statement had said something else of it.
    let anew = "UPDATE reconciliation_items SET status = 'APPLYING', action = 'ASK', attempts = 0 WHERE order_no = 'T'";
    app.sql(anew).await;
    reconciliation::act_due(&app.instance.app).await.expect("taken up");
    let items = app.differences(&run).await;
    let again = items.iter().find(|item| item["order_no"] == "T").expect("it");
    let outcome = again["outcome"].as_str().expect("text");
    assert!(again["status"] == "ESCALATED" && outcome.contains("given back before"), "{again:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (1_490, 0));
    app.end().await;
}

#[tokio::test]
async fn what_a_user_has_paid_off_of_a_charge_is_theirs_again() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    // A commission that was earned, and claimed back by a refund.
    let order = json!({"order_no": "O", "user_id": "u1", "currency": "CNY", "amount": 1_990, "rebate": {"rate": "0.05"}});
    app.order_with(order).await;
    let attempt = app.pay_url("O").await.expect(200).text_of("pay_order_id").to_owned();
    let trade = super::trade(app.sandbox_pay(&attempt, json!({"notify": false})).await.expect(200).body);
    let mut callback = app.success("e-O", &attempt, &trade, 1_990);
    callback["paid_at"] = json!(rfc3339(app.clock.now()));
    app.deliver(&callback).await;
    app.settle("O").await.expect(201);
    app.post("/refunds", json!({"refund_no": "R", "order_no": "O"})).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(has_and_owes(&app, "u1").await, (0, 0));
    invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 1_990).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let item = only_difference(&app, &run).await;
    assert_eq!((&item["status"], has_and_owes(&app, "u1").await), (&json!("APPLIED"), (0, 1_990)));

    // The channel takes the refund back, and the commission pays a part of the debt.
    let refund_id = app.refund_id("R").await;
    app.take_refund_back("back", &refund_id, &attempt, 1_990).await;
    assert_eq!(has_and_owes(&app, "u1").await, (0, 1_891));
    app.decide(&item, "reverse-charge").await.expect(200);
    assert_eq!(has_and_owes(&app, "u1").await, (99, 0), "what they had before, and owe nothing");
    let id = item["item_id"].as_str().expect("an id");
    assert_eq!(
        app.booking(&format!("CHARGE_PAID_BACK:{id}")).await.expect("a booking"),
        sides([("USER_AVAILABLE:demo:u1:CNY", -99), ("USER_RECEIVABLE:demo:u1:CNY", 99)])
    );
    let timeline = app.admin_get("/admin/orders/T/timeline").await.expect(200).body["data"].clone();
    for booking in ["COMPENSATING_CHARGE", "REVERSAL:COMPENSATING_CHARGE", "CHARGE_PAID_BACK"] {
        let subject = format!("{booking}:{id}");
        let entries = timeline.as_array().expect("entries");
        assert!(entries.iter().any(|entry| entry["subject"] == subject), "{subject}: {timeline:#}");
    }
    app.end().await;
}
