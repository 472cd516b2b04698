//! Days: when one begins by itself, where one ends, and what belongs to the one beside it.

use std::time::Duration;

use payonce::infra::duty::Batch;
use payonce::reconciliation;
use serde_json::json;
use time::{Date, Month, OffsetDateTime};

use super::others::compare;
use super::{paid, rfc3339, start};
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::{TestApp, TestOptions};

#[tokio::test]
async fn what_is_no_day_of_four_digits_a_year_or_has_no_end_is_refused() {
    let app = start("safe").await;
    for day in [
        "-004800-01-01",
        "+020260-01-01",
        "-0001-01-01",
        "2026-W01-1",
        "2026-001",
        "2026-02-30",
        "20260101",
        "9999-12-31",
        "",
    ] {
        let body = json!({"channel": "sandbox", "day": day, "reason": "no day"});
        let begun = app.admin_post("/admin/reconciliations", body).await;
        assert_eq!(begun.problem(422), "VALIDATION_FAILED", "{day}: {}", begun.text);
        let path =
            format!("/admin/reconciliations/upload?channel=sandbox&day={}&reason=r", day.replace('+', "%2B"));
        let uploaded = app.admin_post(&path, json!({})).await;
        assert_eq!(uploaded.problem(422), "VALIDATION_FAILED", "{day}: {}", uploaded.text);
    }
    assert_eq!(app.count("reconciliations").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_day_on_which_all_is_well_adds_up_to_nothing() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.paid("A").await;
    app.paid("B").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.top_up("T", "u1", 500).await;
    let out = json!({"withdrawal_no": "W", "user_id": "u1", "amount": 300, "currency": "CNY", "channel": "sandbox",
                     "account": "a"});
    app.post("/withdrawals", out).await.expect(201);
    app.run_until_idle().await;
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "too early"});
    assert_eq!(app.admin_post("/admin/reconciliations", body).await.problem(409), "DAY_NOT_OVER");

    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["lines"], &run["differences"]), (&json!("DONE"), &json!(5), &json!({})));
    let total = |kind: &str| {
        let line =
            run["totals"].as_array().expect("totals").iter().find(|line| line["kind"] == kind).expect("it");
        (line["ours"].clone(), line["theirs"].clone(), line["drift"].clone())
    };
    assert_eq!(total("PAYMENT"), (json!(4480), json!(4480), json!(0)));
    assert_eq!(total("REFUND"), (json!(90), json!(90), json!(0)));
    assert_eq!(total("PAYOUT"), (json!(300), json!(300), json!(0)));
    let list = app.admin_get("/admin/reconciliations?channel=sandbox").await.expect(200).body;
    assert_eq!(list["data"][0]["reconciliation_id"], run["reconciliation_id"]);
    app.end().await;
}

#[tokio::test]
async fn every_day_begins_by_itself_at_its_time_also_those_that_were_missed() {
    let vars = vec![("RECON_AT", "04:30".to_owned()), ("RECON_TZ", "Asia/Shanghai".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    // A minute behind the day's end it is past half past four in Shanghai, and its statement is not there yet.
    app.wait_for_ten();
    app.clock.advance(Duration::from_secs(14 * 3600 + 60));
    reconciliation::begin_daily(&app.instance.app).await.expect("not yet");
    assert_eq!(app.count("reconciliations").await, 0);
    // The first half past four behind its end.
    app.clock.advance(Duration::from_secs(20 * 3600 + 30 * 60));
    assert_eq!(reconciliation::begin_daily(&app.instance.app).await.expect("begun"), Batch::Done);
    assert_eq!(app.count("reconciliations").await, 1);
    app.run_until_idle().await;
    assert_eq!(app.count_where("reconciliations", "status = 'DONE'").await, 1);
    app.clock.advance(Duration::from_secs(23 * 3600));
    reconciliation::begin_daily(&app.instance.app).await.expect("not yet");
    assert_eq!(app.count("reconciliations").await, 1);
    // Nobody is here for ten days more.
    app.clock.advance(Duration::from_secs((9 * 24 + 25) * 3600));
    for _ in 0..2 {
        reconciliation::begin_daily(&app.instance.app).await.expect("begun");
    }
    assert_eq!(app.count("reconciliations").await, 12, "each day once");
    app.run_until_idle().await;
    assert_eq!(app.count_where("reconciliations", "status = 'DONE'").await, 12);
    app.end().await;
}

/// In its night the clocks of Berlin change, in March and in October.
fn last_sunday(year: i32, month: Month) -> Date {
    let last = Date::from_calendar_date(year, month, 31).expect("a month of 31 days");
    last - time::Duration::days(i64::from(last.weekday().number_days_from_sunday()))
}

#[tokio::test]
async fn a_day_begins_once_also_where_its_time_does_not_come_or_comes_twice() {
    // Minutes behind midnight in UTC at which half past two comes: in March there is none in the night of the change, and
    // half past three is meant; in October there are two, and the second one is.
    for (month, due) in [(Month::March, [90, 30, 30]), (Month::October, [90, 90, 90])] {
        let vars = vec![("RECON_AT", "02:30".to_owned()), ("RECON_TZ", "Europe/Berlin".to_owned())];
        let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
        let now = app.clock.now();
        let changes = [0, 1].map(|more| last_sunday(now.year() + more, month));
        let change = changes.into_iter().find(|change| *change - now.date() > time::Duration::days(3));
        let change = change.expect("this year or next");
        let noon = (change - time::Duration::DAY).with_hms(12, 0, 0).expect("noon").assume_utc();
        app.clock.advance((noon - now).try_into().expect("forward"));
        // The days before it that nobody was here for.
        reconciliation::begin_daily(&app.instance.app).await.expect("begun");
        for _ in 0..3 * 48 {
            reconciliation::begin_daily(&app.instance.app).await.expect("a look");
            app.clock.advance(Duration::from_secs(30 * 60));
        }
        let begun = "SELECT day, created_at FROM reconciliations WHERE day >= $1 ORDER BY day";
        let begun: Vec<(Date, OffsetDateTime)> = sqlx::query_as(begun)
            .bind(change - time::Duration::DAY)
            .fetch_all(app.instance.app.db.pool())
            .await
            .expect("days");
        assert_eq!(begun.len(), due.len(), "{begun:?}");
        for ((day, at), due) in begun.into_iter().zip(due) {
            let due = (day + time::Duration::DAY).midnight().assume_utc() + time::Duration::minutes(due);
            assert!((0..29).contains(&(at - due).whole_minutes()), "{day} began at {at} and not at {due}");
        }
        assert_eq!(app.count_where("reconciliations", "round > 1").await, 0);
        app.run_until_idle().await;
        app.end().await;
    }
}

#[tokio::test]
async fn two_instances_begin_a_day_once_and_never_over_what_a_person_began() {
    let vars = vec![("RECON_AT", "04:00".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let begun = || reconciliation::begin_daily(&app.instance.app);
    let (one, other) = tokio::join!(begun(), begun());
    one.and(other).expect("begun");
    assert_eq!(app.count_where("reconciliations", "round = 1").await, 1);
    // A missed day is made up for although a later one was begun; an upload in its place is left alone.
    app.sleep_over();
    let next = day.next_day().expect("a day");
    app.upload("sandbox", next, sandbox_csv(next, &[]).as_bytes(), "").await.expect(200);
    app.sleep_over();
    app.sleep_over();
    begun().await.expect("begun");
    assert_eq!(app.count_where("reconciliations", "round = 1").await, 4, "each day, each once");
    assert_eq!(app.count_where("reconciliations", "source = 'UPLOAD'").await, 1);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn money_of_the_days_edge_is_looked_for_on_both_days() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    paid(&app, "NOON").await;
    // Two seconds before midnight here; the channel books it on the next day.
    app.clock.advance(Duration::from_secs(14 * 3600 - 2));
    let (_, late) = paid(&app, "LATE").await;
    app.clock.advance(Duration::from_secs(12 * 3600));
    let (_, other) = paid(&app, "NEXT").await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    let moved = lines.iter().position(|line| line.channel_id == late).expect("it");
    let mut moved = lines.remove(moved);
    moved.at = next.midnight().assume_utc() + time::Duration::seconds(1);

    // The next day is not here yet: no difference so far.
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({})), "{run:#}");
    // It stands on the next day's statement; and where it does not, that day misses it, also where the clock that dated this
    // comparison was ahead.
    app.sql("UPDATE reconciliations SET compared_at = compared_at + interval '1 hour'").await;
    let without = app.book_lines(next).await;
    let mut with = without.clone();
    with.push(moved);
    let missed = app.reconcile_file("sandbox", next, sandbox_csv(next, &without).as_bytes()).await;
    assert_explained(&missed);
    assert_eq!(
        missed["differences"],
        json!({"MISSING_THERE RESOLVED": 1}),
        "the channel confirms it when asked"
    );
    let found = app.reconcile_file("sandbox", next, sandbox_csv(next, &with).as_bytes()).await;
    assert_explained(&found);
    assert_eq!((&found["status"], found["lines"].as_i64()), (&json!("DONE"), Some(2)), "{other}");
    // Both days once more: neither has anything to say of it.
    let again = app
        .reconcile_file("sandbox", day, sandbox_csv(day, &lines).replace("#end", "\"#end\"").as_bytes())
        .await;
    assert_explained(&again);
    assert_eq!(again["differences"], json!({}));
    app.end().await;
}

#[tokio::test]
async fn money_that_a_clock_ahead_of_ours_dates_is_missed_by_the_day_on_which_it_was_written_down() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let mut days = vec![day];
    paid(&app, "NOON").await;
    app.clock.advance(Duration::from_secs(13 * 3600 + 45 * 60));
    for (number, ahead) in [("MINUTES", time::Duration::minutes(7)), ("DAYS", time::Duration::days(2))] {
        let attempt = app.order_to_pay(number).await;
        let mut told = app.success(number, &attempt, number, 1990);
        told["paid_at"] = json!(rfc3339(app.clock.now() + ahead));
        app.deliver(&told).await;
    }
    app.clock.advance(Duration::from_secs(12 * 3600));
    for number in ["NEXT", "THIRD", "FOURTH"] {
        paid(&app, number).await;
        app.sleep_over();
        days.push(days[days.len() - 1].next_day().expect("a day"));
    }
    for day in &days {
        assert_explained(&app.reconcile(*day).await);
    }
    let missed = "class = 'MISSING_THERE' AND status = 'ESCALATED'";
    let of_that_day = format!(
        "{missed} AND reconciliation_id IN (SELECT reconciliation_id FROM reconciliations WHERE day = '{day}')"
    );
    let items = "reconciliation_items";
    assert_eq!((app.count(items).await, app.count_where(items, &of_that_day).await), (2, 2));
    app.end().await;
}

#[tokio::test]
async fn what_one_day_lists_no_longer_and_the_next_one_lists_is_the_next_one_s() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    paid(&app, "A").await;
    app.sleep_over();
    paid(&app, "B").await;
    app.sleep_over();
    let (own, behind) = (app.book_lines(day).await, app.book_lines(next).await);
    let midnight = next.midnight().assume_utc();
    let with = |lines: &[Line], at| {
        let (our_id, channel_id) = ("po_nobody".to_owned(), "txn_nobody".to_owned());
        let unknown = Line { our_id, channel_id, amount: 500, at, ..lines[0].clone() };
        lines.iter().cloned().chain([unknown]).collect::<Vec<_>>()
    };
    let compare = async |day, lines: &[Line]| {
        let run = app.reconcile_file("sandbox", day, sandbox_csv(day, lines).as_bytes()).await;
        assert_explained(&run);
        assert_eq!(run["status"], "DONE", "{run:#}");
        run["differences"].clone()
    };
    let before = midnight - time::Duration::minutes(2);
    assert_eq!(compare(day, &with(&own, before)).await, json!({"MISSING_HERE WAITING": 1}));
    assert_eq!(compare(day, &own).await, json!({"MISSING_HERE RESOLVED": 1}));
    let after = midnight + time::Duration::minutes(1);
    assert_eq!(compare(next, &with(&behind, after)).await, json!({"MISSING_HERE WAITING": 1}));
    let shown = app.open_exception().await;
    let item = app.count_where("reconciliation_items", "status = 'WAITING' AND our_id = 'po_nobody'").await;
    assert_eq!((&shown["kind"], item), (&json!("RECONCILIATION"), 1));
    app.end().await;
}

/// A day with money at noon and two minutes before its end, and the one behind it; gives both, and the channel's number of
/// what came late.
async fn with_late_money(app: &TestApp) -> (Date, Date, String) {
    let day = app.wait_for_ten();
    paid(app, "NOON").await;
    app.clock.advance(Duration::from_secs(14 * 3600 - 120));
    let (_, late) = paid(app, "LATE").await;
    app.clock.advance(Duration::from_secs(12 * 3600));
    paid(app, "NEXT").await;
    app.sleep_over();
    (day, day.next_day().expect("a day"), late)
}

/// The lines of a day's statement that lacks one payment.
async fn without(app: &TestApp, day: Date, channel_id: &str) -> Vec<Line> {
    let mut lines = app.book_lines(day).await;
    lines.retain(|line| line.channel_id != channel_id);
    lines
}

/// More than a month, with its duties.
pub(super) async fn let_weeks_go_by(app: &TestApp) {
    for days in [9, 30] {
        app.clock.advance(Duration::from_secs(days * 86_400));
        app.run_until_idle().await;
    }
}

#[tokio::test]
async fn what_two_days_miss_is_missed_by_the_one_that_is_compared_last() {
    let app = start("safe").await;
    let (day, next, late) = with_late_money(&app).await;
    let own = without(&app, day, &late).await;
    let compare = async |day, file: &str| {
        let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
        assert_explained(&run);
        run["differences"].clone()
    };
    let file = sandbox_csv(day, &own);
    assert_eq!(compare(day, &file).await, json!({}), "the next day is not here yet");
    let behind = sandbox_csv(next, &app.book_lines(next).await);
    assert_eq!(compare(next, &behind).await, json!({"MISSING_THERE RESOLVED": 1}), "the channel confirms it");
    let again = file.replace("#end", "\"#end\"");
    assert_eq!(compare(day, &again).await, json!({"MISSING_THERE RESOLVED": 1}), "asked about once more");
    app.end().await;
}

#[tokio::test]
async fn lines_and_files_are_forgotten_and_differences_are_not() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    super::Fate::LostCallback.befall(&app, "KEEP").await;
    app.sleep_over();
    let file = sandbox_csv(day, &app.book_lines(day).await);
    app.reconcile_file("sandbox", day, file.as_bytes()).await;
    let kept = async || (app.count("statement_lines").await, app.count("statement_files").await);
    assert_eq!(kept().await, (1, 1));
    // Nobody begins the day behind: its lines wait for it for a month, and a day more for whoever counts on them.
    for (days, left) in [(8, (1, 0)), (24, (1, 0)), (2, (0, 0))] {
        app.clock.advance(Duration::from_secs(days * 86_400));
        app.run_until_idle().await;
        assert_eq!(kept().await, left, "{days} days later");
    }
    assert_eq!(app.count("reconciliation_items").await, 1);
    app.end().await;
}

#[tokio::test]
async fn the_last_minutes_of_a_day_are_missed_also_when_the_next_statement_comes_weeks_later() {
    let app = start("safe").await;
    let (day, next, late) = with_late_money(&app).await;
    let own = without(&app, day, &late).await;
    let behind = sandbox_csv(next, &app.book_lines(next).await);
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &own).as_bytes()).await;
    assert_eq!(run["differences"], json!({}), "the next day answers for it");
    // Its statement cannot be read, and the right one comes when the day before would long be forgotten.
    let cut = &behind[..behind.len() / 2];
    let refused = app.reconcile_file("sandbox", next, cut.as_bytes()).await;
    assert_eq!(refused["status"], "OPEN", "{refused:#}");
    let_weeks_go_by(&app).await;
    assert_eq!(app.count("statement_lines").await, 1, "those of the day before");
    let run = app.reconcile_file("sandbox", next, behind.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(
        run["differences"],
        json!({"MISSING_THERE RESOLVED": 1}),
        "the channel confirms it when asked"
    );
    // Nothing is waited for any more, and it is forgotten as others are.
    for _ in 0..2 {
        app.clock.advance(Duration::from_secs(2 * 86_400));
        app.run_until_idle().await;
    }
    assert_eq!(app.count("statement_lines").await, 1, "those of the next day");
    app.end().await;
}

#[tokio::test]
async fn the_last_minutes_of_a_day_are_missed_also_when_its_own_statement_comes_weeks_later() {
    let app = start("safe").await;
    let (day, next, late) = with_late_money(&app).await;
    paid(&app, "LAST").await;
    app.sleep_over();
    let own = sandbox_csv(day, &without(&app, day, &late).await);
    let refused = app.reconcile_file("sandbox", day, &own.as_bytes()[..own.len() / 2]).await;
    assert_eq!(refused["status"], "OPEN", "{refused:#}");
    for beside in [next, next.next_day().expect("a day")] {
        let file = sandbox_csv(beside, &app.book_lines(beside).await);
        let run = app.reconcile_file("sandbox", beside, file.as_bytes()).await;
        assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({})));
    }
    let_weeks_go_by(&app).await;
    let run = app.reconcile_file("sandbox", day, own.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(
        run["differences"],
        json!({"MISSING_THERE RESOLVED": 1}),
        "the channel confirms it when asked"
    );
    app.end().await;
}

/// Nobody compares the day before: what was told of behind midnight is missed by the day on which it was written down.
#[tokio::test]
async fn money_of_the_day_before_that_a_day_missed_is_missed_no_longer_once_that_day_lists_it() {
    let app = start("safe").await;
    let day = app.wait_for_ten().next_day().expect("a day");
    app.clock.advance(Duration::from_secs(14 * 3600 - 300));
    let attempt = app.order_to_pay("LATE").await;
    let mut told = app.success("LATE", &attempt, "t-LATE", 1990);
    told["paid_at"] = json!(rfc3339(app.clock.now()));
    app.clock.advance(Duration::from_secs(420));
    app.deliver(&told).await;
    app.clock.advance(Duration::from_secs(10 * 3600));
    paid(&app, "NOON").await;
    app.sleep_over();

    let own = app.book_lines(day).await;
    let run = compare(&app, day, &own).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}), "the channel denies it");
    let at = day.midnight().assume_utc() + time::Duration::seconds(30);
    let late = Line { our_id: attempt, channel_id: "t-LATE".to_owned(), at, ..own[0].clone() };
    let with: Vec<Line> = own.into_iter().chain([late]).collect();
    let run = compare(&app, day, &with).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE RESOLVED": 1}), "{run:#}");
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

/// Both days were compared and are forgotten, and the earlier one is compared once more.
#[tokio::test]
async fn the_last_minutes_of_a_day_are_missed_also_when_the_next_day_is_forgotten() {
    let app = start("safe").await;
    let (day, next, late) = with_late_money(&app).await;
    for day in [day, next] {
        let file = sandbox_csv(day, &app.book_lines(day).await);
        let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
        assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({})), "{run:#}");
    }
    let_weeks_go_by(&app).await;
    assert_eq!(app.count_where("reconciliations", "forgotten_at IS NOT NULL").await, 2);
    let shorter = sandbox_csv(day, &without(&app, day, &late).await);
    let run = app.reconcile_file("sandbox", day, shorter.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(
        run["differences"],
        json!({"MISSING_THERE RESOLVED": 1}),
        "the channel confirms it when asked"
    );
    assert_eq!(app.differences(&run).await[0]["channel_id"], json!(late));
    app.end().await;
}
