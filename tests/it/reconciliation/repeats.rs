//! What statements list more than once, on one day or on several: it is shown once for each time but one.

use std::time::Duration;

use serde_json::json;

use super::others::compare;
use super::{Fate, paid, start};
use crate::support::statements::{Line, assert_explained, sandbox_csv};

#[tokio::test]
async fn a_refund_that_is_made_again_on_later_days_is_shown_each_time() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    // Known here only once its day is compared: so it is of the next day here.
    Fate::LostRefund.befall(&app, "R").await;
    app.sleep_over();
    let truth = app.book_lines(day).await;
    assert_eq!(compare(&app, day, &truth).await["differences"], json!({"STATUS_DIFFERS APPLIED": 1}));
    let made = truth.into_iter().find(|line| line.kind == "REFUND").expect("a refund");
    for days in 1..=3 {
        app.sleep_over();
        let later = time::Duration::days(days);
        let again = Line { channel_id: format!("sr_again{days}"), at: made.at + later, ..made.clone() };
        let run = compare(&app, day + later, &[again]).await;
        assert_eq!(run["differences"], json!({"DUPLICATE ESCALATED": 1}), "{days} days later: {run:#}");
        assert_eq!(app.differences(&run).await[0]["channel_id"], format!("sr_again{days}"));
    }
    assert_eq!(app.exceptions("status=OPEN").await.len(), 3);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_the_day_before_lists_already_is_there_twice() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    // Two minutes before midnight: within what the days beside each other may book for one another.
    app.clock.advance(Duration::from_secs(14 * 3_600 - 120));
    paid(&app, "LATE").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "LATE", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    app.clock.advance(Duration::from_secs(12 * 3_600));
    paid(&app, "NEXT").await;
    app.sleep_over();
    let late = app.book_lines(day).await;
    assert_eq!(late.len(), 2, "{late:?}");
    assert_eq!(compare(&app, day, &late).await["differences"], json!({}));
    let at = next.midnight().assume_utc() + Duration::from_secs(60);
    let again = late.into_iter().map(|line| Line { at, ..line });
    let lines: Vec<Line> = app.book_lines(next).await.into_iter().chain(again).collect();
    let run = compare(&app, next, &lines).await;
    assert_eq!(run["differences"], json!({"DUPLICATE ESCALATED": 2}), "{run:#}");
    assert_eq!((app.strays("").await.len(), app.count("trades").await), (0, 2));
    app.end().await;
}

/// A payment and two refunds that both days list, one of them under another number the second time: whichever statement
/// comes first, and however often each is compared again.
#[tokio::test]
async fn of_what_two_days_list_the_one_that_is_compared_last_shows_the_repeat() {
    for is_late in [false, true] {
        let app = start("safe").await;
        let day = app.wait_for_ten();
        let next = day.next_day().expect("a day");
        app.clock.advance(Duration::from_secs(14 * 3_600 - 120));
        paid(&app, "LATE").await;
        for (refund_no, amount) in [("R", 90), ("S", 80)] {
            let refund = json!({"refund_no": refund_no, "order_no": "LATE", "amount": amount});
            app.post("/refunds", refund).await.expect(201);
        }
        app.run_until_idle().await;
        app.sleep_over();
        app.sleep_over();

        let truth = app.book_lines(day).await;
        assert_eq!(truth.len(), 3, "{truth:?}");
        let at = next.midnight().assume_utc() + Duration::from_secs(60);
        let mut again: Vec<Line> = truth.iter().map(|line| Line { at, ..line.clone() }).collect();
        again.iter_mut().find(|line| line.amount == 80).expect("S").channel_id = "sr_again".to_owned();
        let mut days = [(day, truth), (next, again)];
        if is_late {
            days.reverse();
        }
        let (none, all) = (json!({}), json!({"DUPLICATE ESCALATED": 3}));
        let expected = [&none, &all];
        for ((day, lines), expected) in days.iter().zip(expected) {
            assert_eq!(&compare(&app, *day, lines).await["differences"], expected, "{is_late}, {day}");
        }
        // The same bytes would not be compared again.
        for (round, nth) in [0, 1, 1, 0].into_iter().enumerate() {
            let (day, lines) = &days[nth];
            let file = sandbox_csv(*day, lines);
            let file = if round < 2 { file.replace("#end", "\"#end\"") } else { file };
            let run = app.reconcile_file("sandbox", *day, file.as_bytes()).await;
            assert_explained(&run);
            assert_eq!(&run["differences"], expected[nth], "{is_late}, {day}, again: {run:#}");
        }
        assert_eq!(app.exceptions("status=OPEN").await.len(), 3);
        app.end().await;
    }
}
