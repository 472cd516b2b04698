//! A charge left its user a debt, which was written off or collected, and the charge is given back: the user gets what they
//! paid of it, and not what they never paid.

use serde_json::{Value, json};

use super::charges::{has_and_owes, invented_top_up, open_of, product, used};
use super::{paid, start};
use crate::support::TestApp;
use crate::support::books::sides;

/// A user who was charged 1990 for a top-up whose money never came, of which 500 were spent and are owed; the money was found
/// after all. Gives the difference.
async fn charged(app: &TestApp) -> Value {
    let day = app.wait_for_ten();
    product(app, "tokens", true).await;
    paid(app, "FINE").await;
    invented_top_up(app, "T", "u1").await;
    used(app, "tokens", "u1", 500).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!(has_and_owes(app, "u1").await, (0, 500));
    app.found_after_all("T").await;
    app.reconcile(day).await;
    app.differences(&run).await.remove(0)
}

async fn clear(app: &TestApp, how: &str, number: &str, amount: Option<i64>) -> Value {
    let body = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY", "clearing_no": number,
                      "amount": amount, "reason": "the story wants it"});
    let cleared = app.admin_post(&format!("/admin/receivables/{how}"), body).await;
    assert!(matches!(cleared.status, 200 | 201), "{}", cleared.text);
    cleared.body
}

#[tokio::test]
async fn what_was_written_off_of_a_charge_is_not_given_back_to_its_user() {
    let app = start("all").await;
    let item = charged(&app).await;
    assert_eq!(open_of(&app, "USAGE_SHORTFALL").await.len(), 1);
    let before = app.trial_balance().await["MERCHANT demo CNY"];
    clear(&app, "write-off", "C1", None).await;
    assert!(open_of(&app, "USAGE_SHORTFALL").await.is_empty(), "nothing is owed any more");
    assert_eq!((app.trial_balance().await["MERCHANT demo CNY"], app.borne().await), (before + 500, 500));

    app.decide(&item, "reverse-charge").await.expect(200);
    assert_eq!(has_and_owes(&app, "u1").await, (1_490, 0), "what was taken of it, and no cent more");
    assert_eq!((app.trial_balance().await["MERCHANT demo CNY"], app.borne().await), (before, 0));
    let id = item["item_id"].as_str().expect("an id");
    assert_eq!(
        app.booking(&format!("CHARGE_PAID_BACK:{id}")).await.expect("a booking"),
        sides([("MERCHANT:demo:CNY", -500), ("USER_RECEIVABLE:demo:u1:CNY", 500)])
    );
    assert_eq!(clear(&app, "write-off", "C1", None).await["recovered"], 500);
    assert_eq!((app.told("receivable.written_off").await, app.told("receivable.recovered").await), (1, 1));
    // Again it is as it stands.
    app.decide(&item, "reverse-charge").await.expect(200);
    assert_eq!(app.told("receivable.recovered").await, 1);
    app.end().await;
}

#[tokio::test]
async fn of_a_charge_that_is_given_back_what_was_collected_is_its_users_again() {
    let app = start("all").await;
    let item = charged(&app).await;
    app.top_up("OWN", "u1", 1_000).await;
    clear(&app, "collect", "C1", Some(200)).await;
    clear(&app, "write-off", "C2", Some(100)).await;
    assert_eq!(has_and_owes(&app, "u1").await, (800, 200));
    app.decide(&item, "reverse-charge").await.expect(200);
    // As if nothing had been charged: 1990 of the top-up and 1000 of their own, less 500 of usage.
    assert_eq!(has_and_owes(&app, "u1").await, (2_490, 0));
    assert_eq!(app.borne().await, 0);
    app.end().await;
}

#[tokio::test]
async fn what_is_owed_for_something_else_goes_on_being_owed() {
    let app = start("all").await;
    let item = charged(&app).await;
    clear(&app, "write-off", "C1", None).await;
    // For usage since, which nobody has undone.
    let hold_id = app.held("later", "u1", 0).await;
    app.confirm(&hold_id, Some(70)).await.expect(200);
    assert_eq!(has_and_owes(&app, "u1").await, (0, 70));
    app.decide(&item, "reverse-charge").await.expect(200);
    assert_eq!(has_and_owes(&app, "u1").await, (1_490, 70));
    assert_eq!(open_of(&app, "USAGE_SHORTFALL").await[0]["subject"], json!(hold_id));
    clear(&app, "collect", "C2", None).await;
    assert_eq!(has_and_owes(&app, "u1").await, (1_420, 0));
    app.end().await;
}
