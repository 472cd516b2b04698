//! What statements list more than once, on one day or on several: it is shown once for each time but one.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;
use time::Date;

use super::days::let_weeks_go_by;
use super::others::compare;
use super::{Fate, paid, start};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

impl TestApp {
    /// What the days show, each of which is explained.
    async fn differences_of(&self, ids: &[String]) -> Vec<Value> {
        let mut differences = Vec::new();
        for id in ids {
            let run = self.reconciliation(id).await;
            assert_explained(&run);
            differences.push(run["differences"].clone());
        }
        differences
    }
}

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

/// Two days whose statements both list a payment and two refunds of the first one's end, one of them under another number the
/// second time.
async fn listed_by_both_days(app: &TestApp) -> [(Date, Vec<Line>); 2] {
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    app.clock.advance(Duration::from_secs(14 * 3_600 - 120));
    paid(app, "LATE").await;
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
    [(day, truth), (next, again)]
}

/// Whichever statement comes first, and however often each is compared again.
#[tokio::test]
async fn what_the_day_before_lists_is_there_twice_also_when_its_statement_comes_later() {
    for is_late in [false, true] {
        let app = start("safe").await;
        let days = listed_by_both_days(&app).await;
        let first = usize::from(is_late);
        let mut ids = [String::new(), String::new()];
        for nth in [first, 1 - first] {
            let (day, lines) = &days[nth];
            let run = compare(&app, *day, lines).await;
            ids[nth] = run["reconciliation_id"].as_str().expect("an id").to_owned();
            if nth == first {
                assert_eq!(run["differences"], json!({}), "nothing else is known");
            }
        }

        // It is shown by the day that was compared last.
        let mut expected = [json!({}), json!({"DUPLICATE ESCALATED": 3})];
        if is_late {
            expected.reverse();
        }
        assert_eq!(app.differences_of(&ids).await, expected, "is late: {is_late}");
        for nth in [0, 1, 1, 0] {
            let (day, lines) = &days[nth];
            app.reconcile_file("sandbox", *day, sandbox_csv(*day, lines).as_bytes()).await;
            assert_eq!(app.differences_of(&ids).await, expected, "is late: {is_late}, {day} again");
        }
        let exceptions = app.exceptions("status=OPEN").await;
        assert_eq!(exceptions.len(), 3, "{exceptions:#?}");
        app.run_until_idle().await;
        app.end().await;
    }
}

/// A payment of noon that a later day lists in its afternoon, far from any edge; whichever statement comes first.
#[tokio::test]
async fn a_payment_that_a_later_day_lists_too_is_there_twice_at_whatever_hour_that_lists_it() {
    for (is_late, days) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        let app = start("safe").await;
        let day = app.wait_for_ten();
        let (_, trade) = paid(&app, "NOON").await;
        for _ in 0..=days {
            app.sleep_over();
        }
        let truth = app.book_lines(day).await;
        let later = time::Duration::days(days);
        let again = Line { at: truth[0].at + later + time::Duration::hours(4), ..truth[0].clone() };
        let mut statements = [(day, truth), (day + later, vec![again])];
        if is_late {
            statements.reverse();
        }
        let [(first_day, first), (second_day, second)] = &statements;

        let run = compare(&app, *first_day, first).await;
        assert_eq!(run["differences"], json!({}), "nothing else is known");
        let shown = compare(&app, *second_day, second).await;
        let once = json!({"DUPLICATE ESCALATED": 1});
        assert_eq!(shown["differences"], once, "{days} days later, is late: {is_late}: {shown:#}");
        let item = &app.differences(&shown).await[0];
        assert_eq!((&item["channel_id"], &item["theirs"]), (&json!(trade), &json!(1_990)), "{item:#}");
        assert_eq!(item["order_no"], "NOON", "{item:#}");

        // Each of them once more: it is shown where it was, and nowhere else.
        let ids = [&run, &shown].map(|run| run["reconciliation_id"].as_str().expect("an id").to_owned());
        for (day, lines) in &statements {
            let anew = sandbox_csv(*day, lines).replace("#end", "\"#end\"");
            assert_eq!(app.reconcile_file("sandbox", *day, anew.as_bytes()).await["round"], 2);
            assert_eq!(app.differences_of(&ids).await, [json!({}), once.clone()], "{day} again");
        }
        assert_eq!(app.exceptions("status=OPEN").await.len(), 1);
        app.run_until_idle().await;
        app.end().await;
    }
}

/// The day that shows it is compared once more, when the lines of both are forgotten; also while the other one was begun anew
/// and has none yet.
#[tokio::test]
async fn what_a_forgotten_day_lists_is_there_twice_as_long_as_the_other_one_lists_it() {
    for (is_late, is_begun) in [(false, false), (true, false), (false, true)] {
        let app = start("safe").await;
        let mut days = listed_by_both_days(&app).await;
        if is_late {
            days.reverse();
        }
        for (day, lines) in &days {
            compare(&app, *day, lines).await;
        }
        let_weeks_go_by(&app).await;
        assert_eq!(app.count_where("reconciliations", "forgotten_at IS NOT NULL").await, 2);
        let shown = async || {
            let open = app.exceptions("status=OPEN").await;
            open.iter().filter(|one| one["kind"] == "RECONCILIATION").count()
        };

        let anew = |(day, lines): &(Date, Vec<Line>)| sandbox_csv(*day, lines).replace("#end", "\"#end\"");
        if is_begun {
            app.bring("sandbox", days[0].0, anew(&days[0]).as_bytes()).await;
            let mut owner = app.direct_connection().await;
            let rests = "UPDATE reconciliations SET leased_until = leased_until + interval '1 day' WHERE status = 'OPEN'";
            owner.execute(rests).await.expect("it rests");
        }
        let (day, _) = &days[1];
        let anew = anew(&days[1]);
        let run = app.reconcile_file("sandbox", *day, anew.as_bytes()).await;
        assert_explained(&run);
        assert_eq!(
            (&run["round"], &run["status"], &run["differences"]),
            (&json!(2), &json!("DONE"), &json!({"DUPLICATE ESCALATED": 3})),
            "is late: {is_late}: {run:#}"
        );
        assert_eq!(shown().await, 3);
        if !is_late {
            assert_eq!(compare(&app, *day, &[]).await["differences"], json!({"DUPLICATE RESOLVED": 3}));
            assert_eq!(shown().await, 0);
        }
        app.run_until_idle().await;
        app.end().await;
    }
}

/// The first day's refund is made again on the second and on the fourth, and its statement comes last: the fourth has shown
/// its own by then.
#[tokio::test]
async fn what_several_later_days_list_is_shown_once_for_each_of_them_when_the_first_statement_comes_last() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    let truth = app.book_lines(day).await;
    let made = truth.iter().find(|line| line.kind == "REFUND").expect("a refund").clone();
    let mut ids = Vec::new();
    for days in 1..=3 {
        app.sleep_over();
        app.sleep_over();
        let later = time::Duration::days(days);
        let again = Line { channel_id: format!("sr_again{days}"), at: made.at + later, ..made.clone() };
        let foreign = Line { kind: "OTHER".to_owned(), our_id: String::new(), ..again.clone() };
        let run = compare(&app, day + later, &[if days == 2 { foreign } else { again }]).await;
        ids.push(run["reconciliation_id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(app.differences_of(&ids).await, [json!({}), json!({}), json!({"DUPLICATE ESCALATED": 1})]);
    let late = compare(&app, day, &truth).await;
    assert_eq!(late["differences"], json!({"DUPLICATE ESCALATED": 1}));
    let shown = &app.differences(&late).await[0];
    assert_eq!((&shown["channel_id"], &shown["order_no"]), (&json!("sr_again1"), &json!("A")), "{shown:#}");
    assert_eq!(app.differences_of(&ids).await, [json!({}), json!({}), json!({"DUPLICATE ESCALATED": 1})]);
    assert_eq!(app.exceptions("status=OPEN").await.len(), 2);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_has_no_number_of_theirs_is_no_repeat_of_another_that_has_none() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    for nth in 1..=2 {
        // Within the first minutes of each day, where one may list what is the other's.
        app.clock.advance(Duration::from_secs(14 * 3_600 + 60));
        for refund_no in ["R", "S"] {
            let order_no = format!("{refund_no}{nth}");
            paid(&app, &order_no).await;
            let refund = json!({"refund_no": order_no, "order_no": order_no, "amount": 90});
            app.post("/refunds", refund).await.expect(201);
        }
        app.run_until_idle().await;
        app.clock.advance(Duration::from_secs(10 * 3_600 - 60));
    }
    for days in 1..=2 {
        let day = day + time::Duration::days(days);
        let mut lines = app.book_lines(day).await;
        for line in lines.iter_mut().filter(|line| line.kind == "REFUND") {
            line.channel_id.clear();
        }
        assert_eq!(lines.len(), 4, "{lines:?}");
        if days == 2 {
            app.sleep_over();
        }
        assert_eq!(compare(&app, day, &lines).await["differences"], json!({}), "{days}");
    }
    app.end().await;
}

/// As a console numbers what is given back: anew for each trade.
#[tokio::test]
async fn what_nobody_here_knows_is_shown_each_time_whatever_its_number_was_before() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    app.sleep_over();
    let truth = app.book_lines(day).await;
    let made = truth.iter().find(|line| line.kind == "REFUND").expect("a refund").clone();
    let strange = |trade: &str, amount: i64, days: i64| Line {
        our_id: "1".to_owned(),
        channel_id: format!("{trade}:1"),
        amount,
        at: made.at + time::Duration::days(days),
        ..made.clone()
    };
    let unnumbered =
        |amount| Line { our_id: "7".to_owned(), channel_id: String::new(), ..strange("", amount, 0) };
    let strangers = vec![strange("T1", 1_000, 0), strange("T2", 1_000, 0), unnumbered(700), unnumbered(300)];
    let run = compare(&app, day, &[truth, strangers].concat()).await;
    let shown = json!({"MISSING_HERE ESCALATED": 3, "DUPLICATE ESCALATED": 1});
    assert_eq!(run["differences"], shown, "what has no number of theirs is there twice: {run:#}");
    app.sleep_over();
    let next = day + time::Duration::days(1);
    let run = compare(&app, next, &[strange("T3", 1_000, 1)]).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 1}), "{run:#}");

    let_weeks_go_by(&app).await;
    let run = compare(&app, day + time::Duration::days(20), &[strange("T4", 500_000, 20)]).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 1}), "{run:#}");
    assert_eq!(app.exceptions("status=OPEN").await.len(), 6);
    app.run_until_idle().await;
    app.end().await;
}
