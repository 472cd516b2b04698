//! Money that a top-up brought here and that never came: who spent it on usage is charged for it, where the product allows
//! it, once; anything else is a person's to see to.

use serde_json::{Value, json};

use super::{Fate, paid, rfc3339, start};
use crate::support::books::sides;
use crate::support::metering::hold_with;
use crate::support::refunding::told_of_refund;
use crate::support::statements::{assert_explained, sandbox_csv};
use crate::support::{TestApp, TestOptions, minutes};

/// A user's top-up that the channel knows nothing of, though somebody said so under its signature; gives its pay order and
/// its trade.
pub(super) async fn invented_top_up(app: &TestApp, order_no: &str, user_id: &str) -> (String, String) {
    let pay_order_id = app.top_up_to_pay(order_no, user_id, 1_990).await;
    let trade = format!("t-{order_no}");
    let mut callback = app.success(&format!("e-{order_no}"), &pay_order_id, &trade, 1_990);
    callback["paid_at"] = json!(rfc3339(app.clock.now()));
    app.deliver(&callback).await;
    (pay_order_id, trade)
}

/// A product at one unit of CNY.
pub(super) async fn product(app: &TestApp, code: &str, allows: bool) {
    let more = json!({"product_code": code, "allow_compensating_charge": allows});
    app.tokens_with("1", more).await.expect(200);
}

/// Uses so much of a product.
pub(super) async fn used(app: &TestApp, code: &str, user_id: &str, units: i64) {
    let body = hold_with(&format!("{code}-{user_id}"), user_id, units, json!({"product_code": code}));
    let hold_id = app.post("/usage/holds", body).await.expect(201).text_of("hold_id").to_owned();
    app.confirm(&hold_id, Some(units)).await.expect(200);
}

fn of_order<'a>(items: &'a [Value], order_no: &str) -> &'a Value {
    items.iter().find(|item| item["order_no"] == order_no).expect("a difference")
}

/// Available and owed CNY.
pub(super) async fn has_and_owes(app: &TestApp, user_id: &str) -> (i64, i64) {
    let balances = app.balances_of(user_id).await;
    balances.first().map_or((0, 0), |(_, available, _, owed)| (*available, *owed))
}

/// Open exceptions of a kind.
pub(super) async fn open_of(app: &TestApp, kind: &str) -> Vec<Value> {
    let open = app.exceptions("status=OPEN").await;
    open.into_iter().filter(|exception| exception["kind"] == kind).collect()
}

/// Compared anew, nobody is charged a second time.
async fn assert_charged_once(app: &TestApp, run: &Value, day: time::Date) {
    let again = app.reconcile(day).await;
    assert_eq!((&again["round"], &again["differences"]), (&json!(2), &run["differences"]));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'COMPENSATING_CHARGE'").await, 1);
    let (taken, _) = app.sandbox_books().await;
    assert_eq!(
        app.balance_of("CHANNEL:sandbox:CNY").await,
        taken + 4 * 1_990,
        "but for what a person sees to"
    );
}

/// The merchant hears of what its user was charged.
async fn assert_told_of_the_charge(app: &TestApp, charge_id: &str, pay_order_id: &str) {
    let told = app.get("/events?order_no=SPENT&limit=1").await.expect(200).body["data"][0].clone();
    let data = json!({"charge_id": charge_id, "user_id": "u-spent", "order_no": "SPENT", "pay_order_id": pay_order_id,
                      "amount": 1_990, "owed": 500, "currency": "CNY"});
    assert_eq!((&told["type"], &told["data"]), (&json!("compensating_charge.made"), &data));
}

#[tokio::test]
async fn usage_that_was_paid_with_money_which_never_came_is_charged_once_where_the_product_allows_it() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "willing", true).await;
    product(&app, "strict", false).await;
    paid(&app, "FINE").await;
    let (attempt, _) = invented_top_up(&app, "SPENT", "u-spent").await;
    used(&app, "willing", "u-spent", 500).await;
    invented_top_up(&app, "STRICT", "u-strict").await;
    used(&app, "strict", "u-strict", 500).await;
    invented_top_up(&app, "BOTH", "u-both").await;
    used(&app, "willing", "u-both", 100).await;
    used(&app, "strict", "u-both", 100).await;
    invented_top_up(&app, "UNUSED", "u-unused").await;
    Fate::Invented.befall(&app, "SALE").await;
    app.sleep_over();

    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1, "MISSING_THERE ESCALATED": 4}));
    let items = app.differences(&run).await;
    let charged = of_order(&items, "SPENT");
    assert_eq!(
        (&charged["action"], &charged["status"]),
        (&json!("CHARGE"), &json!("APPLIED")),
        "{charged:#}"
    );
    let id = charged["item_id"].as_str().expect("an id");
    assert_eq!(
        app.booking(&format!("COMPENSATING_CHARGE:{id}")).await.expect("a booking"),
        sides([
            ("CHANNEL:sandbox:CNY", -1_990),
            ("USER_AVAILABLE:demo:u-spent:CNY", 1_490),
            ("USER_RECEIVABLE:demo:u-spent:CNY", 500)
        ])
    );
    // What is left of it was taken, what was spent is owed.
    assert_eq!(has_and_owes(&app, "u-spent").await, (0, 500));
    let entries = app.get("/users/u-spent/entries").await.expect(200).body;
    assert_eq!(
        (&entries["data"][0]["kind"], &entries["data"][0]["order_no"]),
        (&json!("COMPENSATING_CHARGE"), &json!("SPENT"))
    );
    assert_told_of_the_charge(&app, id, &attempt).await;
    let owed = open_of(&app, "USAGE_SHORTFALL").await;
    assert_eq!(
        (owed.len(), &owed[0]["subject"], &owed[0]["order_no"]),
        (1, &json!(attempt), &json!("SPENT"))
    );
    for (order_no, user_id, available, why) in [
        ("STRICT", "u-strict", 1_490, "does not allow"),
        ("BOTH", "u-both", 1_790, "does not allow"),
        ("UNUSED", "u-unused", 1_990, "used nothing"),
    ] {
        let item = of_order(&items, order_no);
        let outcome = item["outcome"].as_str().expect("text");
        assert!(item["status"] == "ESCALATED" && outcome.contains(why), "{item:#}");
        assert_eq!(has_and_owes(&app, user_id).await, (available, 0), "{order_no}");
    }
    assert_eq!(of_order(&items, "SALE")["status"], "ESCALATED");

    assert_charged_once(&app, &run, day).await;
    app.end().await;
}

#[tokio::test]
async fn a_charge_waits_for_a_person_where_the_service_may_not_decide_or_the_cap_is_reached() {
    for (auto, cap) in [("off", "CNY:1000000"), ("safe", "CNY:1000000"), ("all", "CNY:1989")] {
        let vars = vec![("RECON_AUTO", auto.to_owned()), ("RECON_DAILY_CAP", cap.to_owned())];
        let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
        let day = app.wait_for_ten();
        product(&app, "tokens", true).await;
        paid(&app, "FINE").await;
        invented_top_up(&app, "T", "u1").await;
        used(&app, "tokens", "u1", 990).await;
        app.sleep_over();
        let run = app.reconcile(day).await;
        let mut item = app.differences(&run).await.remove(0);
        if auto == "off" {
            // Whoever has the channel asked has not had anybody charged.
            assert_eq!((&item["action"], &item["status"]), (&json!("ASK"), &json!("WAITING")));
            app.decide(&item, "approve").await.expect(200);
            app.carry_on().await;
            // Neither has who says the same again, because the answer was lost or by a second click.
            assert_eq!(app.decide(&item, "approve").await.problem(409), "DIFFERENCE_NOT_AGREED");
            item = app.differences(&run).await.remove(0);
        }
        let waits = (&json!("CHARGE"), &json!("WAITING"), &json!(true));
        assert_eq!((&item["action"], &item["status"], &item["moves_money"]), waits, "{auto}: {item:#}");
        let shown = app.open_exception().await;
        assert_eq!((&shown["kind"], &shown["subject"]), (&json!("RECONCILIATION"), &item["item_id"]));
        assert_eq!(has_and_owes(&app, "u1").await, (1_000, 0));

        // Compared anew it waits for the same decision.
        app.reconcile(day).await;
        item = app.differences(&run).await.remove(0);
        assert_eq!((&item["action"], &item["status"], &item["moves_money"]), waits, "{auto}: {item:#}");
        app.decide(&item, "approve").await.expect(200);
        app.carry_on().await;
        item = app.differences(&run).await.remove(0);
        assert!(item["status"] == "APPLIED" && item["decided_by"].is_string(), "{auto}: {item:#}");
        assert_eq!(has_and_owes(&app, "u1").await, (0, 990));
        assert_eq!(app.open_exception().await["kind"], "USAGE_SHORTFALL");
        app.end().await;
    }
}

#[tokio::test]
async fn what_is_true_when_a_charge_is_carried_out_decides_over_it() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    paid(&app, "FINE").await;
    for number in ["LATER", "FORBIDDEN"] {
        invented_top_up(&app, number, &format!("u-{number}")).await;
        used(&app, "tokens", &format!("u-{number}"), 990).await;
    }
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE WAITING": 2}));
    let items = app.differences(&run).await;
    // The channel finds it in its books meanwhile.
    app.sql(
        "UPDATE sandbox.trades SET status = 'PAID' WHERE pay_order_id IN (SELECT pay_order_id FROM pay_orders
         WHERE order_no = 'LATER');
         INSERT INTO sandbox.payments (transaction_id, pay_order_id, number, amount, currency, paid_at, created_at, updated_at)
         SELECT 't-LATER', pay_order_id, 1, amount, currency, paid_at, paid_at, paid_at FROM pay_orders
         WHERE order_no = 'LATER'",
    )
    .await;
    app.decide(of_order(&items, "LATER"), "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(of_order(&app.differences(&run).await, "LATER")["status"], "RESOLVED");
    assert_eq!(has_and_owes(&app, "u-LATER").await, (1_000, 0));
    // The merchant does not allow it any more.
    product(&app, "tokens", false).await;
    app.decide(of_order(&items, "FORBIDDEN"), "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(of_order(&app.differences(&run).await, "FORBIDDEN")["status"], "ESCALATED");
    assert_eq!(has_and_owes(&app, "u-FORBIDDEN").await, (1_000, 0));
    assert_eq!(app.open_exception().await["order_no"], "FORBIDDEN");
    app.end().await;
}

#[tokio::test]
async fn a_top_up_of_which_something_is_asked_back_is_charged_by_nobody() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    paid(&app, "FINE").await;
    invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 990).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let item = app.differences(&run).await.remove(0);
    // It waits for an operator; its money is set aside.
    app.sql("UPDATE merchants SET refund_approval_above = 1 WHERE merchant_id = 'demo'").await;
    let refund = json!({"refund_no": "R", "order_no": "T", "amount": 600});
    app.post("/refunds", refund).await.expect(201);
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    let item = app.differences(&run).await.remove(0);
    let outcome = item["outcome"].as_str().expect("text");
    assert!(item["status"] == "ESCALATED" && outcome.contains("being refunded"), "{item:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (400, 0));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'COMPENSATING_CHARGE'").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_top_up_whose_failed_refund_may_have_been_made_is_charged_when_its_channel_or_a_person_has_answered()
 {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    paid(&app, "FINE").await;
    let (attempt, _) = invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 990).await;
    let refund_id = app.refused_refund("R", "T", 600).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let item = app.differences(&run).await.remove(0);
    app.tell_in_vain(&told_of_refund("perhaps", (&refund_id, &attempt), 600, "SUCCEEDED")).await;

    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    let item = app.differences(&run).await.remove(0);
    let outcome = item["outcome"].as_str().expect("text");
    assert!(item["status"] == "APPLYING" && outcome.contains("may have been refunded"), "{item:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (1_000, 0));

    // The channel knows of none; a person has looked.
    app.resolve(&open_of(&app, "CONTRADICTION").await[0], "NONE").await.expect(200);
    app.clock.advance(minutes(60));
    app.carry_on().await;
    let item = app.differences(&run).await.remove(0);
    assert_eq!(item["status"], "APPLIED", "{item:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (0, 990));
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn money_that_a_statement_lists_after_its_user_was_charged_is_shown_to_a_person() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "tokens", true).await;
    paid(&app, "FINE").await;
    let (attempt, trade) = invented_top_up(&app, "T", "u1").await;
    used(&app, "tokens", "u1", 1_990).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}));
    let mut lines = app.book_lines(day).await;
    let like = lines[0].clone();
    lines.push(crate::support::statements::Line {
        our_id: attempt.clone(),
        channel_id: trade.clone(),
        amount: 1_990,
        ..like
    });
    let other = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&other);
    let open = open_of(&app, "CONTRADICTION").await;
    assert_eq!((open.len(), &open[0]["subject"], &open[0]["order_no"]), (1, &json!(attempt), &json!("T")));
    assert_eq!(has_and_owes(&app, "u1").await, (0, 1_990), "it is a person's to give back");
    // Whatever a person decides then, they are told again where it is compared once more.
    app.resolve(&open[0], "NONE").await.expect(200);
    let file = sandbox_csv(day, &lines);
    assert_eq!(app.reconcile_file("sandbox", day, file.as_bytes()).await["round"], 3);
    assert_eq!(open_of(&app, "CONTRADICTION").await.len(), 1);
    app.end().await;
}

#[tokio::test]
async fn however_many_charges_a_statement_lists_each_is_shown() {
    const CHARGES: i64 = 501;
    let app = start("off").await;
    let day = app.wait_for_ten();
    paid(&app, "FINE").await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let at = day.midnight().assume_utc() + std::time::Duration::from_secs(3_600);
    let (id, at) = (run["reconciliation_id"].as_str().expect("an id"), rfc3339(at));
    app.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                 transaction_id, paid_at, expires_at, created_at, updated_at)
         SELECT 'po_c' || g, 'demo', 'C' || g, 'u', 'sandbox', 'PAID', 1, 'CNY', 'c' || g, '{at}', '{at}', '{at}', '{at}'
         FROM generate_series(1, {CHARGES}) AS g;
         INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
         SELECT 'sandbox', 'c' || g, 'po_c' || g, '{at}' FROM generate_series(1, {CHARGES}) AS g;
         INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, ours,
                                           currency, at, action, moves_money, status, seen_round, due_at, created_at, updated_at)
         SELECT 'ri_c' || g, 'sandbox', '{id}', 'MISSING_THERE', 'PAYMENT', 'c' || g, 'po_c' || g, 'c' || g, 1, 'CNY', '{at}',
                'CHARGE', true, 'APPLIED', 1, '{at}', '{at}', '{at}'
         FROM generate_series(1, {CHARGES}) AS g"
    ))
    .await;
    let mut lines = app.book_lines(day).await;
    let like = lines[0].clone();
    lines.extend((1..=CHARGES).map(|number| crate::support::statements::Line {
        our_id: format!("po_c{number}"),
        channel_id: format!("c{number}"),
        amount: 1,
        ..like.clone()
    }));
    let other = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&other);
    assert_eq!(app.count_where("exceptions", "kind = 'CONTRADICTION'").await, CHARGES);
    app.sql(
        "DELETE FROM reconciliation_items; DELETE FROM exceptions; DELETE FROM trades WHERE transaction_id LIKE 'c%';
         DELETE FROM pay_orders WHERE pay_order_id LIKE 'po\\_c%'",
    )
    .await;
    app.end().await;
}

#[tokio::test]
async fn whoever_used_something_before_money_came_that_never_did_is_not_charged_for_it() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    product(&app, "willing", true).await;
    paid(&app, "FINE").await;
    app.top_up("GENUINE", "u1", 1_990).await;
    used(&app, "willing", "u1", 500).await;
    invented_top_up(&app, "INVENTED", "u1").await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    let items = app.differences(&run).await;
    let item = of_order(&items, "INVENTED");
    let outcome = item["outcome"].as_str().expect("text");
    assert!(item["status"] == "ESCALATED" && outcome.contains("used nothing"), "{item:#}");
    assert_eq!(has_and_owes(&app, "u1").await, (1_490 + 1_990, 0));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'COMPENSATING_CHARGE'").await, 0);
    app.end().await;
}
