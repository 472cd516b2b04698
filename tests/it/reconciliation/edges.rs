//! Days that speak for one another, and differences that more than one of them finds.

use std::time::Duration;

use serde_json::{Value, json};
use time::Date;

use super::others::compare;
use super::{paid, start};
use crate::support::TestApp;
use crate::support::statements::Line;

/// A line of money that nobody here knows, like another one.
fn unknown(like: &Line, amount: i64) -> Line {
    let (our_id, channel_id) = ("po_nobody".to_owned(), "txn_nobody".to_owned());
    Line { kind: "PAYMENT".to_owned(), our_id, channel_id, amount, ..like.clone() }
}

/// The differences of a day of that class.
async fn of_class(app: &TestApp, run: &Value, class: &str) -> Vec<Value> {
    let all = app.differences(run).await.into_iter();
    all.filter(|item| item["class"] == class).collect()
}

#[tokio::test]
async fn what_a_person_dismissed_and_another_day_lists_of_another_amount_is_shown_anew() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    lines.push(unknown(&lines[0], 500));
    let run = compare(&app, day, &lines).await;
    let missing = of_class(&app, &run, "MISSING_HERE").await;
    app.decide(&missing[0], "dismiss").await.expect(200);

    for (days, amount, expected) in [(4, 500, json!({})), (5, 300, json!({"MISSING_HERE WAITING": 1}))] {
        let later = day + time::Duration::days(days);
        app.clock.advance(Duration::from_secs(4 * 86_400));
        let at = lines[0].at + time::Duration::days(days);
        let run = compare(&app, later, &[Line { at, ..unknown(&lines[0], amount) }]).await;
        assert_eq!(run["differences"], expected, "{amount}: {run:#}");
    }
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_two_days_list_and_one_does_no_longer_is_missing_here_still() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    paid(&app, "A").await;
    app.sleep_over();
    paid(&app, "B").await;
    app.sleep_over();
    let (first, second) = (app.book_lines(day).await, app.book_lines(next).await);
    // Two minutes before midnight: the next day may book it.
    let at = next.midnight().assume_utc() - Duration::from_secs(120);
    let late = Line { at, ..unknown(&first[0], 500) };
    let with = |lines: &[Line]| [lines, std::slice::from_ref(&late)].concat();

    let run = compare(&app, next, &with(&second)).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE WAITING": 1}), "{run:#}");
    let of_day = compare(&app, day, &with(&first)).await;
    assert_eq!(of_day["differences"], json!({"DUPLICATE ESCALATED": 1}), "{of_day:#}");
    let run = compare(&app, next, &second).await;
    let missing = of_class(&app, &run, "MISSING_HERE").await;
    assert_eq!(missing[0]["status"], "WAITING", "the day lists it, and it is not here: {run:#}");
    // Where that does not list it either, it is no difference.
    compare(&app, day, &first).await;
    let run = compare(&app, next, &with(&second)).await;
    assert_eq!(of_class(&app, &run, "MISSING_HERE").await[0]["status"], "WAITING");
    let run = compare(&app, next, &second).await;
    assert_eq!(of_class(&app, &run, "MISSING_HERE").await[0]["status"], "RESOLVED", "{run:#}");
    app.run_until_idle().await;
    app.end().await;
}

/// Money of ten minutes before midnight, of which we are told half an hour behind it, and whose channel says nothing of it when it
/// is asked.
async fn told_of_behind_midnight(app: &TestApp, day: Date) -> Line {
    let our_id = app.order_to_pay("LATE").await;
    let at = day.with_hms(23, 50, 0).expect("a time").assume_utc();
    let told_at = at + Duration::from_secs(2_400);
    app.clock.advance(Duration::try_from(told_at - app.clock.now()).expect("later"));
    let mut told = app.success("e-late", &our_id, "t-late", 1990);
    told["paid_at"] = json!(super::rfc3339(at));
    app.deliver(&told).await;
    let (kind, channel_id, currency) = ("PAYMENT".to_owned(), "t-late".to_owned(), "CNY".to_owned());
    Line { kind, our_id, channel_id, amount: 1990, currency, at }
}

#[tokio::test]
async fn what_the_next_day_misses_is_missed_no_longer_when_its_own_day_lists_it() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    let late = told_of_behind_midnight(&app, day).await;
    paid(&app, "B").await;
    app.sleep_over();
    app.sleep_over();
    // The statement of its own day is late.
    let run = compare(&app, next, &app.book_lines(next).await).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}), "{run:#}");
    assert_eq!(app.open_exception().await["kind"], "RECONCILIATION");

    let of_day = compare(&app, day, &[late]).await;
    assert_eq!(of_day["differences"], json!({}), "{of_day:#}");
    let missing = of_class(&app, &run, "MISSING_THERE").await;
    assert_eq!(missing[0]["status"], "RESOLVED", "{missing:#?}");
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it is explained");
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_a_statement_lists_and_the_channel_says_has_failed_is_a_persons() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let (attempt, _) = paid(&app, "A").await;
    let refund_id = app.refused_refund("R", "A", 90).await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    let made = Line {
        kind: "REFUND".to_owned(),
        our_id: refund_id.clone(),
        channel_id: "sr_made".to_owned(),
        amount: 90,
        ..lines[0].clone()
    };
    lines.push(made);
    // Asked, it says that nothing of it has gone.
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.sandbox_takes_back(&refund_id).await;
    let run = compare(&app, day, &lines).await;
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS ESCALATED": 1}), "{run:#}");
    assert_eq!(app.find_refund("R").await["status"], "FAILED");
    app.run_until_idle().await;
    app.end().await;
}
