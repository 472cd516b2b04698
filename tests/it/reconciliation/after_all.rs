//! A refund that failed here and that its channel made after all is compared as one that was made: its line is no difference,
//! and nothing of the day is explained away.

use payonce::reconciliation;
use serde_json::{Value, json};

use super::start;
use crate::support::minutes;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

/// Of the refunds of a day: how many of ours, what they come to, what theirs come to, and what is counted in another day.
fn refunds_of(run: &Value) -> (i64, i64, i64, i64) {
    let totals = run["totals"].as_array().expect("totals");
    let total = totals.iter().find(|total| total["kind"] == "REFUND").expect("a total of refunds");
    let of = |name: &str| total[name].as_i64().expect("a figure");
    (of("our_count"), of("ours"), of("theirs"), of("edges"))
}

#[tokio::test]
async fn what_was_made_after_all_matches_its_line_and_its_reversal_is_learned_from_the_statement() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let attempt = app.paid("A").await;
    let refund_id = app.refused_refund("R", "A", 990).await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.tell_refund("made", &refund_id, &attempt, 990, "SUCCEEDED").await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({}), "{run:#}");
    assert_eq!(refunds_of(&run), (1, 990, 990, 0), "{run:#}");
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION", "a person sees to the books");

    // A statement without it is asked about, and is what differs.
    let mut lines = app.book_lines(day).await;
    let made = lines.iter().find(|line| line.our_id == refund_id).expect("its line").clone();
    let without: Vec<_> = lines.iter().filter(|line| line.our_id != refund_id).cloned().collect();
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &without).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE RESOLVED": 1}), "{run:#}");
    assert_eq!(refunds_of(&run), (1, 990, 0, 0), "{run:#}");

    // It came back.
    app.sandbox_takes_back(&refund_id).await;
    lines.push(Line { kind: "REFUND_REVERSAL".to_owned(), channel_id: "back".to_owned(), ..made });
    let file = sandbox_csv(day, &lines);
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_explained(&run);
    let seen = json!({"MISSING_THERE RESOLVED": 1, "STATUS_DIFFERS APPLIED": 1});
    assert_eq!(run["differences"], seen, "{run:#}");
    assert!(app.exceptions("status=OPEN").await.is_empty(), "the books are right");
    assert_eq!(app.find_refund("R").await["status"], "FAILED");
    // As of any other that was made and taken back, both its lines are right from then on.
    app.clock.advance(minutes(1));
    let run = app.reconcile_file("sandbox", day, file.replace("#end", "\"#end\"").as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], seen, "{run:#}");

    app.post("/refunds", json!({"refund_no": "R2", "order_no": "A"})).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("REFUNDED".to_owned(), 1_990));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_only_a_statement_tells_to_have_been_made_after_all_is_a_difference_until_it_is_known() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let attempt = app.paid("A").await;
    let refund_id = app.refused_refund("R", "A", 990).await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS ESCALATED": 1}), "{run:#}");
    let open = app.exceptions("status=OPEN").await;
    let mut kinds: Vec<_> = open.iter().map(|one| one["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["CONTRADICTION", "RECONCILIATION"]);
    let again = app.post("/refunds", json!({"refund_no": "R2", "order_no": "A", "amount": 1_001})).await;
    assert_eq!(again.problem(422), "REFUND_EXCEEDS_PAID");

    // Ours is of the day on which it was learned, as of any other refund.
    app.clock.advance(minutes(1));
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"STATUS_DIFFERS RESOLVED": 1}), "{run:#}");
    assert_eq!(refunds_of(&run), (0, 0, 990, -990), "{run:#}");
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION", "it stays for a person");
    app.sleep_over();
    let run = app.reconcile(day.next_day().expect("a day")).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({})), "{run:#}");
    assert_eq!(refunds_of(&run), (1, 990, 0, 990), "{run:#}");
    app.end().await;
}

#[tokio::test]
async fn what_is_taken_back_once_more_is_learned_once_more_by_a_statement_that_comes_long_behind_the_first() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let attempt = app.paid("A").await;
    let refund_id = app.refused_refund("R", "A", 990).await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    let mut told = 0;
    // Each time the channel tells that it made it, and its statement alone that it took that back.
    for (again, day) in [day, day + time::Duration::days(36)].into_iter().enumerate() {
        app.tell_refund(&format!("made-{again}"), &refund_id, &attempt, 990, "SUCCEEDED").await;
        app.sandbox_takes_back(&refund_id).await;
        app.sleep_over();
        let line = |kind: &str, minute: u8| Line {
            kind: kind.to_owned(),
            our_id: refund_id.clone(),
            channel_id: format!("{kind}-of-{refund_id}"),
            amount: 990,
            currency: "CNY".to_owned(),
            at: day.with_hms(11, minute, 0).expect("a time").assume_utc(),
        };
        let mut lines = app.book_lines(day).await;
        lines.retain(|line| line.kind == "PAYMENT");
        lines.extend([line("REFUND", 0), line("REFUND_REVERSAL", 1)]);
        let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
        assert_explained(&run);
        assert_eq!(run["differences"], json!({"STATUS_DIFFERS APPLIED": 1}), "{again}: {run:#}");
        told += 1;
        assert_eq!(app.count_where("outbox", "event = 'refund.reversed'").await, told);
        assert!(app.exceptions("status=OPEN").await.is_empty(), "{again}");
        app.assert_books_agree_both_ways().await;

        // Long behind that its lines are forgotten, and it is made once more.
        for days in [33, 2] {
            app.clock.advance(minutes(days * 24 * 60));
            reconciliation::forget_old(&app.instance.app).await.expect("forgotten");
        }
        assert_eq!(app.count("statement_lines").await, 0);
        app.sql("UPDATE sandbox.refunds SET taken_back_at = NULL; UPDATE sandbox.payments SET refunded_amount = 990").await;
    }
    app.end().await;
}
