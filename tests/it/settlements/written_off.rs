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

/// A shop that gives 5 % and has sold A1 for 1,990; gives what paid it.
async fn a_sale() -> (TestApp, String) {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    let paid = sell(&app, "A1", 1_990).await;
    (app, paid)
}

/// Lets u1 use so many units, for nothing that was held; gives the hold.
async fn use_up(app: &TestApp, key: &str, units: i64) -> String {
    let hold_id = app.held(key, "u1", 0).await;
    app.confirm(&hold_id, Some(units)).await.expect(200);
    hold_id
}

#[tokio::test]
async fn what_was_written_off_comes_back_to_the_merchant_before_anything_is_given_again() {
    let (app, paid) = a_sale().await;
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
    let (app, paid) = a_sale().await;
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
    use_up(&app, "k1", 30).await;
    clear(&app, "write-off", "C1", None).await;

    app.rebate_rule(None, "0.05").await;
    let paid = sell(&app, "A1", 1_990).await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 59).await;
    refund(&app, "A1", "R1", 1_990).await;
    clear(&app, "write-off", "C2", Some(9)).await;
    // More usage that they had nothing for.
    let hold_id = use_up(&app, "k2", 20).await;
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

#[tokio::test]
async fn what_a_claim_took_of_a_balance_is_given_again_whatever_another_one_of_its_order_had_left() {
    let (app, paid) = a_sale().await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 99).await;
    // The first half leaves 50 owing, which are collected. The second one finds its 49.
    refund(&app, "A1", "R1", 995).await;
    app.top_up("T1", "u1", 200).await;
    clear(&app, "collect", "C1", None).await;
    refund(&app, "A1", "R2", 995).await;
    assert_eq!(stands(&app).await, (101, 0, 0, 0));
    // Later they owe for usage, which is written off.
    withdraw(&app, "W2", 101).await;
    app.tokens("1").await;
    use_up(&app, "k1", 30).await;
    clear(&app, "write-off", "C2", None).await;
    assert_eq!(stands(&app).await, (0, 0, 0, 30));

    take_back(&app, &paid, "R2", 995).await;
    assert_eq!(stands(&app).await, (49, 0, 49, 30), "they had paid all of it");
    assert_eq!(clear(&app, "write-off", "C2", None).await, 0);
    // The first one had left a debt before it was written off: that counts for it.
    take_back(&app, &paid, "R1", 995).await;
    assert_eq!(stands(&app).await, (49 + 20, 0, 99, 0));
    assert_eq!(clear(&app, "write-off", "C2", None).await, 30);
    app.end().await;
}

#[tokio::test]
async fn what_a_refund_from_before_the_settlement_gives_again_had_been_claimed_for_another_one() {
    let (app, paid) = a_sale().await;
    refund(&app, "A1", "R1", 995).await;
    app.settle("A1").await.expect(201);
    withdraw(&app, "W1", 49).await;
    refund(&app, "A1", "R2", 995).await;
    assert_eq!(stands(&app).await, (0, 49, 0, 0));
    clear(&app, "write-off", "C1", None).await;
    // They have had what is theirs again: it was withdrawn, and nobody was paid for it.
    take_back(&app, &paid, "R1", 995).await;
    assert_eq!(stands(&app).await, (0, 0, 49, 0));
    assert_eq!(clear(&app, "write-off", "C1", None).await, 49);
    app.end().await;
}

#[tokio::test]
async fn a_claim_that_was_undone_for_another_refund_is_not_undone_again_for_its_own() {
    let (app, paid) = a_sale().await;
    refund(&app, "A1", "R1", 995).await;
    app.settle("A1").await.expect(201);
    // What the second one claims is given again for the first one, which had claimed nothing.
    refund(&app, "A1", "R2", 995).await;
    take_back(&app, &paid, "R1", 995).await;
    assert_eq!(stands(&app).await, (49, 0, 49, 0));
    withdraw(&app, "W1", 49).await;
    refund(&app, "A1", "R3", 995).await;
    assert_eq!(stands(&app).await, (0, 49, 0, 0));
    clear(&app, "write-off", "C1", None).await;
    // So what is given for the second one the third one had claimed: they had 49 of a commission of 49.
    for refund_no in ["R2", "R3"] {
        take_back(&app, &paid, refund_no, 995).await;
        assert_eq!(stands(&app).await, (0, 0, 49, 0), "after {refund_no}");
    }
    assert_eq!(clear(&app, "write-off", "C1", None).await, 49);
    app.end().await;
}
