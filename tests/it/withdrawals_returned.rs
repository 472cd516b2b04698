//! A withdrawal whose money had gone out, and came back or never went: its user has it again, once, by their channel's word or a
//! person's.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::withdrawals;
use serde_json::{Value, json};

use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::{Reply, TestApp, TestOptions};

async fn withdraw(app: &TestApp, number: &str, amount: i64) -> String {
    let body = json!({"withdrawal_no": number, "user_id": "u1", "amount": amount, "currency": "CNY", "channel": "sandbox",
                      "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    let id =
        sqlx::query_scalar("SELECT withdrawal_id FROM withdrawals WHERE withdrawal_no = $1").bind(number);
    id.fetch_one(&mut app.direct_connection().await).await.expect("its id")
}

/// A user of 1,000, of which 600 have gone out; gives the number that the channel knows that by.
async fn sent_out(app: &TestApp) -> String {
    app.top_up("T", "u1", 1_000).await;
    let id = withdraw(app, "W", 600).await;
    app.run_until_idle().await;
    assert_eq!((app.cny_of("u1").await, seen(app).await["status"].clone()), ((400, 0), json!("SUCCEEDED")));
    id
}

/// The same, where the channel refused it.
async fn refused(app: &TestApp) -> String {
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    app.top_up("T", "u1", 1_000).await;
    let id = withdraw(app, "W", 600).await;
    app.run_until_idle().await;
    assert_eq!((app.cny_of("u1").await, seen(app).await["status"].clone()), ((1_000, 0), json!("REVERSED")));
    id
}

/// The channel makes W, or makes it once more.
const MADE: &str =
    "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
     SELECT withdrawal_id, account, amount, currency, updated_at, updated_at, updated_at FROM withdrawals
     WHERE withdrawal_no = 'W' ON CONFLICT ON CONSTRAINT sandbox_payouts_pkey DO UPDATE SET taken_back_at = NULL";

/// The channel makes it all the same, or once more, and it is heard of.
async fn make_after_all(app: &TestApp, id: &str, number: &str) {
    app.sql(MADE).await;
    // Its channel was asked just now.
    let (seen, _) =
        withdrawals::ask_about(&app.instance.app, id).await.expect("a look").expect("it is there");
    withdrawals::note_made(&app.instance.app, &seen, number.to_owned()).await.expect("heard");
}

async fn take_back(app: &TestApp) {
    app.sql("UPDATE sandbox.payouts SET taken_back_at = now()").await;
}

async fn seen(app: &TestApp) -> Value {
    app.get("/withdrawals/W").await.expect(200).body
}

fn legs(withdrawal: &Value) -> Vec<String> {
    let legs = withdrawal["legs"].as_array().expect("legs").iter();
    legs.map(|leg| format!("{} {}", leg["leg"].as_str().unwrap(), leg["status"].as_str().unwrap())).collect()
}

async fn was_returned(app: &TestApp, number: &str) -> Reply {
    let path = format!("/admin/withdrawals/{number}/returned");
    app.admin_post(&path, json!({"reason": "the story wants it"})).await
}

async fn told(app: &TestApp, event: &str) -> i64 {
    app.count_where("outbox", &format!("event = 'withdrawal.{event}'")).await
}

fn cny(available: i64, receivable: i64) -> Vec<(String, i64, i64, i64)> {
    vec![("CNY".to_owned(), available, 0, receivable)]
}

#[tokio::test]
async fn what_came_back_is_its_users_again_once_by_a_persons_word_that_the_channel_says_nothing_against() {
    let app = TestApp::start().await;
    let id = sent_out(&app).await;
    assert_eq!(was_returned(&app, "NONE").await.problem(404), "NOT_FOUND");
    withdraw(&app, "W2", 100).await;
    assert_eq!(was_returned(&app, "W2").await.problem(409), "WITHDRAWAL_NOT_SENT_OUT");
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    app.run_until_idle().await;
    assert_eq!(was_returned(&app, "W2").await.problem(409), "WITHDRAWAL_NOT_SENT_OUT", "it never went");

    assert_eq!(was_returned(&app, "W").await.problem(409), "WITHDRAWAL_IS_MADE");
    app.sql("ALTER TABLE sandbox.payouts RENAME TO hidden").await;
    assert_eq!(was_returned(&app, "W").await.problem(503), "CHANNEL_UNAVAILABLE");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO payouts").await;
    assert_eq!((app.balances_of("u1").await, told(&app, "returned").await), (cny(400, 0), 0));
    assert_eq!(seen(&app).await["returned_at"], json!(null));

    take_back(&app).await;
    let first = was_returned(&app, "W").await.expect(200).body;
    assert_eq!(
        (&first["status"], &first["channel_payout_id"]),
        (&json!("SUCCEEDED"), &json!(format!("so_{id}")))
    );
    assert!(first["returned_at"].is_string(), "{first}");
    assert_eq!(legs(&first), ["DEBIT SUCCEEDED", "PAYOUT SUCCEEDED", "REVERSAL SUCCEEDED"]);
    assert_eq!(was_returned(&app, "W").await.expect(200).body, first);
    assert_eq!(seen(&app).await, first, "its merchant sees it, too");
    assert_eq!((app.balances_of("u1").await, told(&app, "returned").await), (cny(1_000, 0), 1));
    assert_eq!(app.trial_balance().await["CHANNEL sandbox CNY"], 1_000);
    assert_eq!(app.count_where("admin_log", "action = 'withdrawals.returned'").await, 1);
    app.assert_books_agree_both_ways().await;

    // What was answered before it came back, and is written only now, is known.
    withdrawals::replay(&app.instance.app, &id, format!("so_{id}")).await.expect("heard");
    assert_eq!((app.balances_of("u1").await, told(&app, "made_after_all").await), (cny(1_000, 0), 0));
    // The money can go out again, under a number of its own.
    withdraw(&app, "W3", 1_000).await;
    app.run_until_idle().await;
    assert_eq!(app.balances_of("u1").await, cny(0, 0));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_was_said_to_be_made_after_all_and_was_not_is_owed_no_more_and_what_was_paid_of_it_is_theirs() {
    let app = TestApp::start().await;
    app.tokens("1").await;
    let id = refused(&app).await;
    app.confirm(&app.held("S", "u1", 0).await, Some(700)).await.expect(200);
    withdrawals::replay(&app.instance.app, &id, "told".to_owned()).await.expect("heard");
    assert_eq!(app.balances_of("u1").await, cny(0, 300));
    // They have paid 100 of it off, and of 50 their merchant has thought the better.
    app.top_up("T2", "u1", 100).await;
    for (how, amount) in [("collect", 100), ("write-off", 50)] {
        let body = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY", "clearing_no": how, "amount": amount,
                          "reason": "the story wants it"});
        app.admin_post(&format!("/admin/receivables/{how}"), body).await.expect(201);
    }
    assert_eq!(app.balances_of("u1").await, cny(0, 150));
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION");

    // The channel knows of no such payout.
    for _ in 0..2 {
        let seen = was_returned(&app, "W").await.expect(200).body;
        assert_eq!((&seen["status"], seen["returned_at"].is_string()), (&json!("REVERSED"), true));
        assert_eq!(legs(&seen), ["DEBIT SUCCEEDED", "PAYOUT FAILED", "REVERSAL SUCCEEDED"]);
        assert_eq!((app.balances_of("u1").await, app.borne().await), (cny(400, 0), 0));
    }
    assert_eq!((told(&app, "made_after_all").await, told(&app, "returned").await), (1, 1));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "who said so has seen to it");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn however_often_it_goes_out_after_all_and_comes_back_each_time_is_booked_and_told() {
    for begin in ["refused", "sent out"] {
        let app = TestApp::start().await;
        let id = if begin == "refused" { refused(&app).await } else { sent_out(&app).await };
        if begin == "sent out" {
            take_back(&app).await;
            was_returned(&app, "W").await.expect(200);
        }
        let before = told(&app, "returned").await;
        for turn in 1..=3 {
            make_after_all(&app, &id, &format!("out {turn}")).await;
            let out = seen(&app).await;
            assert_eq!(
                (&out["returned_at"], app.cny_of("u1").await),
                (&json!(null), (400, 0)),
                "{begin} {turn}"
            );
            assert_eq!(out["channel_payout_id"], format!("out {turn}"), "{begin}");
            assert_eq!(app.open_exception().await["kind"], "CONTRADICTION");
            app.assert_books_agree_both_ways().await;
            // Heard once more, it is not taken again.
            withdrawals::replay(&app.instance.app, &id, format!("out {turn}")).await.expect("heard");
            assert_eq!(app.cny_of("u1").await, (400, 0), "{begin} {turn}");

            take_back(&app).await;
            was_returned(&app, "W").await.expect(200);
            assert_eq!(app.cny_of("u1").await, (1_000, 0), "{begin} {turn}");
            assert_eq!(
                (told(&app, "made_after_all").await, told(&app, "returned").await),
                (turn, before + turn)
            );
            assert!(app.exceptions("status=OPEN").await.is_empty(), "{begin} {turn}");
            app.assert_books_agree_both_ways().await;
        }
        // A word from long ago, which nobody has asked for by now, takes nothing: a person is shown it.
        withdrawals::replay(&app.instance.app, &id, "out 1".to_owned()).await.expect("heard");
        assert_eq!((app.cny_of("u1").await, told(&app, "made_after_all").await), ((1_000, 0), 3), "{begin}");
        assert_eq!(app.open_exception().await["kind"], "CONTRADICTION", "{begin}");
        app.assert_books_agree_both_ways().await;
        app.end().await;
    }
}

#[tokio::test]
async fn many_words_at_once_give_it_back_once_beside_whoever_spends_and_tells() {
    for begin in ["refused", "sent out"] {
        let app = TestApp::start().await;
        let id = if begin == "refused" { refused(&app).await } else { sent_out(&app).await };
        if begin == "refused" {
            make_after_all(&app, &id, &format!("so_{id}")).await;
        }
        take_back(&app).await;
        let words = join_all((0..6).map(|_| was_returned(&app, "W")));
        let tell = || withdrawals::replay(&app.instance.app, &id, format!("so_{id}"));
        let (words, tales, _) =
            tokio::join!(words, join_all((0..4).map(|_| tell())), withdraw(&app, "W2", 300));
        assert!(tales.iter().all(Result::is_ok), "{tales:?}");
        for word in words {
            assert_eq!(word.status, 200, "{begin}: {}", word.text);
        }
        app.run_until_idle().await;
        assert_eq!((app.balances_of("u1").await, told(&app, "returned").await), (cny(700, 0), 1), "{begin}");
        app.assert_books_agree_both_ways().await;
        app.end().await;
    }
}

#[tokio::test]
async fn a_number_of_two_merchants_is_nobodys_and_each_has_their_own() {
    let app = TestApp::start().await;
    sent_out(&app).await;
    take_back(&app).await;
    app.merchant("other", "hold").await;
    app.sql(
        "INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status,
                                  created_at, updated_at, version)
         VALUES ('wd_other', 'other', 'W', 'u1', 1, 'CNY', 'sandbox', 'a', 'DEBITED', now(), now(), 2)",
    )
    .await;
    assert_eq!(was_returned(&app, "W").await.problem(409), "AMBIGUOUS_NUMBER");
    let word = async |merchant: &str| {
        let path = format!("/admin/withdrawals/W/returned?merchant_id={merchant}");
        app.admin_post(&path, json!({"reason": "the story wants it"})).await
    };
    assert_eq!(word("nobody").await.problem(404), "NOT_FOUND");
    assert_eq!(word("other").await.problem(409), "WITHDRAWAL_NOT_SENT_OUT");
    word("demo").await.expect(200);
    app.sql("DELETE FROM withdrawals WHERE withdrawal_id = 'wd_other'").await;
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

/// The day's lines, without payouts.
async fn without_payouts(app: &TestApp, day: time::Date) -> Vec<Line> {
    app.book_lines(day).await.into_iter().filter(|line| line.kind != "PAYOUT").collect()
}

#[tokio::test]
async fn a_payout_that_a_statement_lacks_and_of_which_its_channel_says_that_it_came_to_nothing_is_its_users_again()
 {
    let vars = vec![("RECON_AUTO", "safe".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    sent_out(&app).await;
    take_back(&app).await;
    app.sleep_over();
    // Its line is there: it was made on that day, whatever became of it.
    let listed = app.reconcile(day).await;
    assert_eq!((&listed["differences"], app.cny_of("u1").await), (&json!({}), (400, 0)), "{listed:#}");

    let csv = sandbox_csv(day, &without_payouts(&app, day).await);
    let run = app.reconcile_file("sandbox", day, csv.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}), "{run:#}");
    let item = &app.differences(&run).await[0];
    assert!(item["outcome"].as_str().is_some_and(|said| said.contains("TAKEN_BACK")), "{item:#}");
    assert_eq!((app.balances_of("u1").await, told(&app, "returned").await), (cny(1_000, 0), 1));
    assert!(seen(&app).await["returned_at"].is_string());
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;

    // As the channel lists it, nothing differs.
    let lines = app.book_lines(day).await;
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(
        (&run["differences"], app.cny_of("u1").await),
        (&json!({"MISSING_THERE APPLIED": 1}), (1_000, 0)),
        "{run:#}"
    );
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_payout_after_all_that_never_was_is_missed_by_no_statement_once_that_is_said() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    let id = refused(&app).await;
    withdrawals::replay(&app.instance.app, &id, "told".to_owned()).await.expect("heard");
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}), "{run:#}");
    was_returned(&app, "W").await.expect(200);
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE RESOLVED": 1}), "{run:#}");
    assert!(app.exceptions("status=OPEN").await.is_empty());

    // The channel's books have it after all, and so it counts.
    withdrawals::replay(&app.instance.app, &id, "told".to_owned()).await.expect("heard");
    assert_eq!(app.cny_of("u1").await, (1_000, 0), "a late word of the same payout is none");
    app.sql(MADE).await;
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(app.cny_of("u1").await, (400, 0), "{run:#}");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_came_back_and_is_listed_or_confirmed_after_all_is_taken_from_its_user_once_more() {
    for another in ["listed later", "listed under another number", "confirmed", "said again"] {
        let app = TestApp::start().await;
        let day = app.wait_for_ten();
        let id = sent_out(&app).await;
        take_back(&app).await;
        was_returned(&app, "W").await.expect(200);
        app.sleep_over();
        let listed =
            app.book_lines(day).await.into_iter().find(|line| line.kind == "PAYOUT").expect("its line");
        // Its channel knows by now that it is out.
        app.sql("UPDATE sandbox.payouts SET taken_back_at = NULL").await;
        let mut lines = without_payouts(&app, day).await;
        let expected = match another {
            "listed later" => {
                lines.push(Line { at: listed.at + time::Duration::hours(3), ..listed });
                json!({"STATUS_DIFFERS APPLIED": 1})
            }
            "listed under another number" => {
                lines.push(Line { channel_id: "P2".to_owned(), ..listed });
                json!({"STATUS_DIFFERS APPLIED": 1})
            }
            "confirmed" => json!({"MISSING_THERE RESOLVED": 1}),
            _ => {
                assert_eq!(was_returned(&app, "W").await.problem(409), "WITHDRAWAL_IS_MADE");
                lines.push(listed);
                json!({})
            }
        };
        let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
        assert_explained(&run);
        assert_eq!(run["differences"], expected, "{another}: {run:#}");
        assert_eq!(
            (app.balances_of("u1").await, told(&app, "made_after_all").await),
            (cny(400, 0), 1),
            "{another}"
        );
        assert_eq!(seen(&app).await["returned_at"], json!(null), "{another}");
        assert_eq!(app.open_exception().await["kind"], "CONTRADICTION", "{another}");
        app.assert_books_agree_both_ways().await;

        // It comes back for good; whoever heard before that it was made, and says so only now, is late.
        let (late, _) =
            withdrawals::ask_about(&app.instance.app, &id).await.expect("a look").expect("it is there");
        take_back(&app).await;
        was_returned(&app, "W").await.expect(200);
        withdrawals::note_made(&app.instance.app, &late, format!("so_{id}")).await.expect("heard");
        assert_eq!(app.balances_of("u1").await, cny(1_000, 0), "{another}");
        app.assert_books_agree_both_ways().await;
        app.end().await;
    }
}

#[tokio::test]
async fn what_was_made_after_all_listed_and_came_back_is_nobodys_to_see_to() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    let id = refused(&app).await;
    make_after_all(&app, &id, &format!("so_{id}")).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({}), "{run:#}");
    take_back(&app).await;
    was_returned(&app, "W").await.expect(200);
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS RESOLVED": 1}), "{run:#}");
    assert!(app.exceptions("status=OPEN").await.is_empty());
    assert_eq!(app.cny_of("u1").await, (1_000, 0));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn each_time_that_it_goes_out_and_no_statement_lists_it_is_missed_by_itself() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    let id = sent_out(&app).await;
    take_back(&app).await;
    app.sleep_over();
    let run = app
        .reconcile_file("sandbox", day, sandbox_csv(day, &without_payouts(&app, day).await).as_bytes())
        .await;
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}), "{run:#}");

    let later = app.wait_for_ten();
    app.top_up("T2", "u2", 5).await;
    make_after_all(&app, &id, "out again").await;
    assert_eq!(app.cny_of("u1").await, (400, 0));
    take_back(&app).await;
    app.sleep_over();
    let lines = without_payouts(&app, later).await;
    let run = app.reconcile_file("sandbox", later, sandbox_csv(later, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}), "{run:#}");
    assert_eq!((app.cny_of("u1").await, told(&app, "returned").await), ((1_000, 0), 2));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_is_said_to_have_gone_out_once_more_is_missed_although_it_was_listed_the_first_time() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    let id = sent_out(&app).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"], json!({}), "{run:#}");
    take_back(&app).await;
    was_returned(&app, "W").await.expect(200);

    let later = app.wait_for_ten();
    app.top_up("T2", "u2", 5).await;
    let (seen, _) =
        withdrawals::ask_about(&app.instance.app, &id).await.expect("a look").expect("it is there");
    withdrawals::note_made(&app.instance.app, &seen, "never was".to_owned()).await.expect("heard");
    assert_eq!(app.cny_of("u1").await, (400, 0));
    app.sleep_over();
    let run = app.reconcile(later).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}), "{run:#}");
    assert_eq!((app.cny_of("u1").await, told(&app, "returned").await), ((1_000, 0), 2));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
