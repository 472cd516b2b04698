//! A claim back left a debt, which was written off, and the channel takes its refund back: nobody is given what they never
//! paid.

use serde_json::json;

use super::claw_back::{refund, sell, take_back};
use super::{AVAILABLE, EXPENSE};
use crate::support::TestApp;
use crate::support::books::sides;

const RECEIVABLE: &str = "USER_RECEIVABLE:demo:u1:CNY";
const MERCHANT: &str = "MERCHANT:demo:CNY";

/// (available, owed, the merchant's commissions and what it bears of debts).
async fn stands(app: &TestApp) -> (i64, i64, i64, i64) {
    (
        app.balance_of(AVAILABLE).await,
        app.balance_of(RECEIVABLE).await,
        app.balance_of(EXPENSE).await,
        app.borne().await,
    )
}

/// Clears so much of what u1 owes, or all of it; gives what came back of it by now.
async fn clear(app: &TestApp, how: &str, number: &str, amount: Option<i64>) -> i64 {
    let body = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY", "clearing_no": number,
                      "amount": amount, "reason": "the story wants it"});
    let cleared = app.admin_post(&format!("/admin/receivables/{how}"), body).await;
    assert!(matches!(cleared.status, 200 | 201), "{}", cleared.text);
    cleared.body["recovered"].as_i64().expect("a number")
}

async fn withdraw(app: &TestApp, number: &str, amount: i64) {
    let body = json!({"withdrawal_no": number, "user_id": "u1", "amount": amount, "currency": "CNY",
                      "channel": "sandbox", "account": "a"});
    app.post("/withdrawals", body).await.expect(201);
    app.run_until_idle().await;
}

#[tokio::test]
async fn what_was_written_off_comes_back_to_the_merchant_before_anything_is_given_again() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    let paid = sell(&app, "A1", 1_990).await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 59).await;
    refund(&app, "A1", "R1", 1_990).await;
    assert_eq!(stands(&app).await, (0, 59, 0, 0));
    clear(&app, "write-off", "C1", None).await;
    assert_eq!(stands(&app).await, (0, 0, 0, 59));
    // Of its sale nothing is left.
    assert_eq!(app.balance_of(MERCHANT).await, -59);

    // 99 were given, of which 59 are gone and 40 were claimed back: these are theirs again, and nothing else is.
    take_back(&app, &paid, "R1", 1_990).await;
    assert_eq!(stands(&app).await, (40, 0, 99, 0));
    let booked = sides([(EXPENSE, 99), (AVAILABLE, -40), (MERCHANT, -59)]);
    let back = format!("CLAW_BACK:{}:taken-back", app.refund_id("R1").await);
    assert_eq!(app.booking(&back).await.expect("a booking"), booked);
    assert_eq!(app.balance_of(MERCHANT).await, 1_990);
    assert_eq!(clear(&app, "write-off", "C1", None).await, 59);
    assert_eq!(app.told("receivable.recovered").await, 1);

    // The same once more, with a part that they bring themselves.
    refund(&app, "A1", "R2", 1_990).await;
    assert_eq!(stands(&app).await, (0, 59, 0, 0));
    app.top_up("T1", "u1", 39).await;
    clear(&app, "collect", "C2", None).await;
    clear(&app, "write-off", "C3", None).await;
    assert_eq!(stands(&app).await, (0, 0, 0, 20));
    take_back(&app, &paid, "R2", 1_990).await;
    assert_eq!(stands(&app).await, (40 + 39, 0, 99, 0));
    assert_eq!(clear(&app, "write-off", "C3", None).await, 20);
    app.end().await;
}

#[tokio::test]
async fn units_that_were_cut_off_by_rounding_are_given_to_nobody() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    let paid = sell(&app, "A1", 1_990).await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 99).await;
    // The first half costs 50, the second 49.
    refund(&app, "A1", "R1", 995).await;
    refund(&app, "A1", "R2", 995).await;
    assert_eq!(stands(&app).await, (0, 99, 0, 0));
    clear(&app, "write-off", "C1", None).await;
    // Taken back in this order the first half gives 49, and the second 50.
    take_back(&app, &paid, "R1", 995).await;
    assert_eq!(stands(&app).await, (0, 0, 49, 50));
    take_back(&app, &paid, "R2", 995).await;
    assert_eq!(stands(&app).await, (0, 0, 99, 0));
    assert_eq!(clear(&app, "write-off", "C1", None).await, 99);
    app.end().await;
}

#[tokio::test]
async fn what_was_written_off_before_stays_so_and_what_is_owed_is_paid_off_next() {
    let app = TestApp::start().await;
    // For usage, long ago.
    app.tokens("1").await;
    let hold_id = app.held("k1", "u1", 0).await;
    app.confirm(&hold_id, Some(30)).await.expect(200);
    clear(&app, "write-off", "C1", None).await;

    app.rebate_rule(None, "0.05").await;
    let paid = sell(&app, "A1", 1_990).await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 59).await;
    refund(&app, "A1", "R1", 1_990).await;
    clear(&app, "write-off", "C2", Some(9)).await;
    // More usage that they had nothing for.
    let hold_id = app.held("k2", "u1", 0).await;
    app.confirm(&hold_id, Some(20)).await.expect(200);
    assert_eq!(stands(&app).await, (0, 50 + 20, 0, 30 + 9));
    assert_eq!(app.open_exception().await["subject"], json!(hold_id));

    // 99 again: 9 are the merchant's, 70 pay off what is owed, which is the end of it, and the rest is theirs.
    take_back(&app, &paid, "R1", 1_990).await;
    assert_eq!(stands(&app).await, (20, 0, 99, 30));
    assert_eq!(clear(&app, "write-off", "C1", None).await, 0);
    assert_eq!(clear(&app, "write-off", "C2", None).await, 9);
    assert!(app.exceptions("status=OPEN").await.is_empty(), "nothing is owed any more");
    app.end().await;
}
