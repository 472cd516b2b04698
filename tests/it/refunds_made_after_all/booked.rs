//! What was made after all stands in the books as it does in the channel's: it leaves whoever's it was, and comes back when the
//! channel takes it back, or a person says that it was not made.

use serde_json::json;

use super::{ask, made_after_all, open_of, refused_stray, seen_by_operators};
use crate::support::{Reply, TestApp, minutes};

/// The refund of so much of a top-up of 1,000 that its channel refused: its id, and the pay order that it gives back.
async fn refused_of_top_up(app: &TestApp, number: &str, user_id: &str, amount: i64) -> (String, String) {
    app.top_up(number, user_id, 1_000).await;
    let attempt = app.find_order(number).await["paid_by"].as_str().expect("an attempt").to_owned();
    (app.refused_refund(number, number, amount).await, attempt)
}

/// Uses up so much of what a user has.
async fn spend(app: &TestApp, number: &str, user_id: &str, amount: i64) {
    let hold_id = app.held(number, user_id, 0).await;
    app.confirm(&hold_id, Some(amount)).await.expect(200);
}

async fn was_not_made(app: &TestApp, refund_no: &str) -> Reply {
    let path = format!("/admin/refunds/{refund_no}/not-made");
    app.admin_post(&path, json!({"reason": "the story wants it"})).await
}

fn cny(available: i64, receivable: i64) -> Vec<(String, i64, i64, i64)> {
    vec![("CNY".to_owned(), available, 0, receivable)]
}

#[tokio::test]
async fn a_top_up_that_went_back_after_all_is_taken_from_its_user_or_owed_and_theirs_again_when_it_is_taken_back()
 {
    let app = TestApp::start().await;
    app.tokens("1").await;
    let (refund_id, attempt) = refused_of_top_up(&app, "T", "u", 600).await;
    spend(&app, "S", "u", 700).await;
    assert_eq!(app.balances_of("u").await, cny(300, 0));

    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    for event in ["made", "made, it says again"] {
        app.tell_refund(event, &refund_id, &attempt, 600, "SUCCEEDED").await;
        assert_eq!(
            app.balances_of("u").await,
            cny(0, 300),
            "what they had is gone, and the rest is owed, once"
        );
    }
    let booking = app.admin_get(&format!("/admin/ledger/transactions/REFUND_AFTER_ALL:{refund_id}:1")).await;
    assert_eq!(booking.expect(200).body["entries"].as_array().expect("entries").len(), 3);
    let entries = app.get("/users/u/entries").await.expect(200).body;
    assert_eq!(entries["data"][0]["kind"], "REFUND_AFTER_ALL", "{entries}");
    let told = "event = 'refund.made_after_all' AND payload ->> 'owed' = '300'";
    assert_eq!(app.count_where("outbox", told).await, 1);
    // As the channel has it.
    assert_eq!(app.trial_balance().await["CHANNEL sandbox CNY"], 400);
    app.assert_books_agree_both_ways().await;

    // They have paid 100 of it off, and of 50 their merchant has thought the better.
    app.top_up("T2", "u", 100).await;
    let clear = async |how: &str, amount: i64| {
        let body = json!({"merchant_id": "demo", "user_id": "u", "currency": "CNY", "clearing_no": how, "amount": amount,
                          "reason": "the story wants it"});
        app.admin_post(&format!("/admin/receivables/{how}"), body).await.expect(201);
    };
    clear("collect", 100).await;
    clear("write-off", 50).await;
    assert_eq!(app.balances_of("u").await, cny(0, 150));
    for event in ["back", "back once more"] {
        app.take_refund_back(event, &refund_id, &attempt, 600).await;
        // What they had, and what they have paid off since; what was written off is the merchant's again.
        assert_eq!(app.balances_of("u").await, cny(400, 0));
        assert_eq!(app.borne().await, 0);
    }
    app.assert_books_agree_both_ways().await;

    // Made once more.
    app.sql(&format!("UPDATE sandbox.refunds SET taken_back_at = NULL WHERE refund_id = '{refund_id}'"))
        .await;
    app.sql(&format!("UPDATE sandbox.payments SET refunded_amount = 600 WHERE pay_order_id = '{attempt}'"))
        .await;
    app.tell_refund("made once more", &refund_id, &attempt, 600, "SUCCEEDED").await;
    assert_eq!(app.balances_of("u").await, cny(0, 200));
    let timeline = app.admin_get("/admin/orders/T/timeline").await.expect(200).text;
    for booking in [":1", ":2"].map(|times| format!("REFUND_AFTER_ALL:{refund_id}{times}")) {
        assert!(timeline.contains(&booking), "{booking}: {timeline}");
    }
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_sale_and_stray_money_that_went_back_after_all_leave_whoevers_they_were() {
    let app = TestApp::start().await;
    let (sold, attempt) = made_after_all(&app, "A", 1_200).await;
    assert_eq!(app.trial_balance().await["MERCHANT demo CNY"], -790);
    assert_eq!(app.trial_balance().await["CHANNEL sandbox CNY"], 790);
    app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    app.run_until_idle().await;

    let (stray, late) = refused_stray(&app, "S").await;
    assert_eq!(app.trial_balance().await["SUSPENSE sandbox CNY"], -1_990);
    app.sandbox_makes_after_all(&stray, &late).await;
    app.tell_refund("made", &stray, &late, 1_990, "SUCCEEDED").await;
    assert!(!app.trial_balance().await.contains_key("SUSPENSE sandbox CNY"));
    app.assert_books_agree_both_ways().await;

    app.take_refund_back("sold back", &sold, &attempt, 1_200).await;
    app.take_refund_back("stray back", &stray, &late, 1_990).await;
    assert_eq!(app.trial_balance().await["MERCHANT demo CNY"], -1_990);
    assert_eq!(app.trial_balance().await["SUSPENSE sandbox CNY"], -1_990);
    // Kept by its merchant, and made after all behind that: theirs is what is gone.
    app.resolve(&open_of(&app, "STRAY_MONEY").await, "KEEP").await.expect(200);
    app.sql(&format!("UPDATE sandbox.refunds SET taken_back_at = NULL WHERE refund_id = '{stray}'")).await;
    app.sql(&format!("UPDATE sandbox.payments SET refunded_amount = 1990 WHERE pay_order_id = '{late}'"))
        .await;
    app.tell_refund("made behind that", &stray, &late, 1_990, "SUCCEEDED").await;
    assert_eq!(app.trial_balance().await["MERCHANT demo CNY"], -1_990);
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_a_channel_told_and_knows_nothing_of_was_not_made_by_a_persons_word() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = refused_of_top_up(&app, "T", "u", 600).await;
    assert_eq!(was_not_made(&app, "T").await.problem(409), "REFUND_NOT_MADE_AFTER_ALL");
    assert_eq!(was_not_made(&app, "NONE").await.problem(404), "NOT_FOUND");
    app.tell_refund("told", &refund_id, &attempt, 600, "SUCCEEDED").await;
    assert_eq!(app.balances_of("u").await, cny(400, 0));

    // Its channel is asked first.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    assert_eq!(was_not_made(&app, "T").await.problem(503), "CHANNEL_UNAVAILABLE");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    assert_eq!(app.balances_of("u").await, cny(400, 0));
    for _ in 0..2 {
        let seen = was_not_made(&app, "T").await.expect(200).body;
        assert_eq!((&seen["status"], &seen["made_after_all_at"]), (&json!("FAILED"), &json!(null)));
        assert_eq!(app.balances_of("u").await, cny(1_000, 0));
    }
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;

    // Whoever tells it again is believed again.
    app.tell_refund("told again", &refund_id, &attempt, 600, "SUCCEEDED").await;
    assert_eq!(app.balances_of("u").await, cny(400, 0));
    was_not_made(&app, "T").await.expect(200);

    // What its channel has made is no matter of words, also where nobody has told of it; what it has taken back is.
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    for _ in 0..2 {
        assert_eq!(was_not_made(&app, "T").await.problem(409), "REFUND_IS_MADE");
        assert_eq!(app.balances_of("u").await, cny(400, 0));
    }
    assert!(seen_by_operators(&app, &refund_id).await["made_after_all_at"].is_string());
    assert!(app.find_refund("T").await["made_after_all_at"].is_string(), "its merchant sees it, too");
    assert_eq!(ask(&app, "R", "T", 401).await.problem(422), "REFUND_EXCEEDS_PAID");
    app.assert_books_agree_both_ways().await;
    app.sandbox_takes_back(&refund_id).await;
    was_not_made(&app, "T").await.expect(200);
    assert_eq!(app.balances_of("u").await, cny(1_000, 0));
    assert_eq!(app.count_where("refunds", "channel_refund_id IS NOT NULL").await, 1, "it was made once");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn stray_money_of_nobody_that_did_not_go_back_is_decided_over_once_more() {
    let app = TestApp::start().await;
    let of_others = "another-shop/4711: not one of our ids";
    app.deliver(&app.success("e1", of_others, "t1", 1_990)).await;
    for _ in 0..12 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.run_until_idle().await;
    let refunds = app.admin_get("/admin/refunds").await.expect(200).body;
    let refund_id = refunds["data"][0]["refund_id"].as_str().expect("an id");
    app.tell_refund("made", refund_id, of_others, 1_990, "SUCCEEDED").await;
    assert!(!app.trial_balance().await.contains_key("SUSPENSE sandbox CNY"));
    let open = open_of(&app, "STRAY_MONEY").await;
    assert_eq!(app.resolve(&open, "KEEP").await.problem(409), "MONEY_WENT_BACK");

    for _ in 0..2 {
        was_not_made(&app, refund_id).await.expect(200);
        assert_eq!(app.trial_balance().await["SUSPENSE sandbox CNY"], -1_990);
    }
    app.resolve(&open_of(&app, "STRAY_MONEY").await, "KEEP").await.expect(200);
    assert_eq!(app.trial_balance().await["PLATFORM_REVENUE - CNY"], -1_990);
    app.end().await;
}

/// An instance of a version before hears that the channel took it back: it takes the mark away, and leaves the booking.
async fn take_the_mark_away(app: &TestApp) {
    app.sql("UPDATE refunds SET made_after_all_at = NULL").await;
}

#[tokio::test]
async fn what_an_instance_of_a_version_before_left_booked_is_undone_before_it_is_booked_anew_or_by_a_persons_word()
 {
    let app = TestApp::start().await;
    let (refund_id, attempt) = refused_of_top_up(&app, "T", "u", 600).await;
    app.tell_refund("made", &refund_id, &attempt, 600, "SUCCEEDED").await;
    take_the_mark_away(&app).await;
    app.tell_refund("made again", &refund_id, &attempt, 600, "SUCCEEDED").await;
    assert_eq!(app.balances_of("u").await, cny(400, 0), "once");
    take_the_mark_away(&app).await;
    for _ in 0..2 {
        was_not_made(&app, "T").await.expect(200);
        assert_eq!(app.balances_of("u").await, cny(1_000, 0));
    }
    assert_eq!(app.count_where("admin_log", "action = 'refunds.not_made'").await, 1);
    app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
