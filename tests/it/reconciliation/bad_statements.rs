//! Statements that are late, empty, cut off, of another day, channel or encoding, or that do not add up: each is named,
//! nothing of it is applied, and the day waits for the right one.

use std::time::Duration;

use payonce::reconciliation;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Executor;
use time::Date;

use super::charges::invented_top_up;
use super::interruptions::{allow, forbid};
use super::{Fate, paid, start, until_waiting};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

#[tokio::test]
async fn a_file_that_does_not_add_up_is_named_and_nothing_of_it_is_applied() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "A").await;
    Fate::Fine.befall(&app, "B").await;
    app.sleep_over();
    let right = sandbox_csv(day, &app.book_lines(day).await);
    let (before, without_end) = (app.count("trades").await, right.split("#end").next().expect("lines"));
    let other_day = right.replace(&format!("sandbox,{day}"), "sandbox,2020-01-01");
    let cases: [(&str, Vec<u8>); 9] = [
        ("TRUNCATED", without_end.into()),
        ("EMPTY", sandbox_csv(day, &[]).into()),
        ("WRONG_TOTAL", right.replace(",1990,", ",1991,").into()),
        ("OTHER_DAY", other_day.into()),
        ("OTHER_CHANNEL", "交易时间,`x\n".into()),
        ("CURRENCY", right.replace("CNY", "XXY").into()),
        ("ENCODING", right.replace("txn_", "\u{fffd}").into_bytes().iter().map(|b| b | 0x80).collect()),
        ("MALFORMED", right.replace("PAYMENT", "PRESENT").into()),
        // No database keeps a zero in a text.
        ("MALFORMED", right.replace("PAYMENT", "PAY\0MENT").into()),
    ];
    for (fault, file) in cases {
        let run = app.reconcile_file("sandbox", day, &file).await;
        let expected = if fault == "ENCODING" { vec!["ENCODING", "OTHER_CHANNEL"] } else { vec![fault] };
        assert!(expected.iter().any(|fault| run["fault"] == *fault), "{fault}: {run:#}");
        assert_eq!((&run["status"], &run["differences"]), (&json!("OPEN"), &json!({})), "{fault}");
        assert!(run["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{fault}");
        // It waits for the right file, and for nothing else.
        app.clock.advance(Duration::from_secs(3600));
        app.carry_on().await;
        assert_eq!(
            app.reconciliation(run["reconciliation_id"].as_str().expect("an id")).await["fault"],
            run["fault"]
        );
        assert_eq!(app.count("trades").await, before, "{fault}");
    }
    // Nobody else would bring another: a person is told at once, and once.
    assert_eq!(app.open_exception().await["kind"], "LATE_STATEMENT");
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({"MISSING_HERE APPLIED": 1})));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it came after all");
    // Over a day that was compared, a mistaken file changes nothing.
    for wrong in [without_end.to_owned(), sandbox_csv(day, &[]), right.replace(",1990,", ",1991,")] {
        let refused = app.upload("sandbox", day, wrong.as_bytes(), "").await;
        assert_eq!(refused.problem(422), "STATEMENT_REFUSED");
    }
    let mistyped = app.upload("sandbx", day, right.as_bytes(), "&format=sandbox").await;
    assert_eq!(mistyped.problem(422), "UNKNOWN_CHANNEL");
    let after = app.reconciliation(run["reconciliation_id"].as_str().expect("an id")).await;
    assert_eq!(
        (&after["status"], &after["round"], &after["lines"]),
        (&json!("DONE"), &run["round"], &json!(2))
    );
    app.end().await;
}

/// Whoever moves a day on to what is done about its differences waits for this lock, and has the day's row meanwhile.
const HOLD: &str = "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0
        AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
    CREATE TRIGGER hold BEFORE UPDATE ON reconciliations FOR EACH ROW
        WHEN (NEW.status = 'ACTING' AND OLD.status = 'MATCHING') EXECUTE FUNCTION hold()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistaken_file_takes_the_place_of_no_statement_that_is_being_compared() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let right = sandbox_csv(day, &app.book_lines(day).await);
    let wrong = right.replace(",1990,", ",1991,");
    let id = app.bring("sandbox", day, right.as_bytes()).await;
    app.carry_until(&id, "MATCHING").await;
    let refused = app.upload("sandbox", day, wrong.as_bytes(), "").await;
    assert_eq!(refused.problem(422), "STATEMENT_REFUSED", "its statement is here");

    // It comes when the comparison ends.
    app.sql(HOLD).await;
    let mut other = app.direct_connection().await;
    other.execute("SELECT pg_advisory_lock(1)").await.expect("held");
    let compare = async {
        while app.count_where("reconciliations", "status = 'MATCHING'").await > 0 {
            reconciliation::run_due(&app.instance.app).await.expect("carried on");
        }
    };
    let bring = async {
        until_waiting(&app, 1).await;
        app.upload("sandbox", day, wrong.as_bytes(), "").await
    };
    let free = async {
        until_waiting(&app, 2).await;
        other.execute("SELECT pg_advisory_unlock(1)").await.expect("free");
    };
    let ((), refused, ()) = tokio::join!(compare, bring, free);
    assert_eq!(refused.problem(422), "STATEMENT_REFUSED", "it is compared by now");
    app.sql("DROP TRIGGER hold ON reconciliations; DROP FUNCTION hold()").await;

    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((standing(&run), &run["round"], &run["lines"]), (("DONE", None), &json!(1), &json!(1)));
    assert_eq!(run["differences"], json!({}));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_statement_in_another_currency_is_named_and_its_day_waits_for_the_right_one() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    paid(&app, "B").await;
    Fate::LostCallback.befall(&app, "LOST").await;
    app.sleep_over();
    let right = sandbox_csv(day, &app.book_lines(day).await);
    let run = app.reconcile_file("sandbox", day, right.replace(",CNY,", ",USD,").as_bytes()).await;
    assert_eq!((&run["status"], &run["fault"]), (&json!("OPEN"), &json!("CURRENCY")), "{run:#}");
    let detail = run["detail"].as_str().expect("text");
    assert!(detail.contains("USD") && detail.contains("CNY"), "{detail}");
    assert_eq!((&run["differences"], app.count("trades").await), (&json!({}), 2));
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({"MISSING_HERE APPLIED": 1})));
    let wrong = app.upload("sandbox", day, right.replace(",CNY,", ",USD,").as_bytes(), "").await;
    assert_eq!(wrong.problem(422), "STATEMENT_REFUSED", "over a day that was compared it changes nothing");

    // Of a few payments it is the channel that is asked: others are as we know them.
    let (head, line) = right.split_once(",1990,CNY,").expect("a line");
    let mixed = format!("{head},1990,USD,{line}");
    let run = app.reconcile_file("sandbox", day, mixed.as_bytes()).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["fault"]), (&json!("DONE"), &json!(null)), "{run:#}");
    assert_eq!(run["differences"], json!({"AMOUNT_DIFFERS ESCALATED": 1, "MISSING_HERE APPLIED": 1}));
    app.end().await;
}

/// The bill of another account of the same shop, with so many payments.
fn bill_of_another_account(day: Date, like: &Line, count: usize) -> String {
    let foreign = |number| Line {
        our_id: format!("po_other{number}"),
        channel_id: format!("txn_other{number}"),
        ..like.clone()
    };
    sandbox_csv(day, &(0..count).map(foreign).collect::<Vec<_>>())
}

#[tokio::test]
async fn the_statement_of_another_account_is_named_and_nothing_of_it_is_applied_unless_a_person_says_so() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let own = app.book_lines(day).await;
    let (right, wrong) = (sandbox_csv(day, &own), bill_of_another_account(day, &own[0], 5));
    let run = app.reconcile_file("sandbox", day, wrong.as_bytes()).await;
    assert_eq!(standing(&run), ("OPEN", Some("OTHER_ACCOUNT")), "{run:#}");
    assert_eq!((&run["differences"], app.count("trades").await), (&json!({}), 1));
    assert!(run["detail"].as_str().is_some_and(|detail| detail.contains("accept_empty")), "{run:#}");
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_eq!((standing(&run), &run["differences"]), (("DONE", None), &json!({})));
    assert_eq!(app.upload("sandbox", day, wrong.as_bytes(), "").await.problem(422), "STATEMENT_REFUSED");

    // It names what was asked for here, of which nobody was told: it is ours.
    let attempt = app.order_to_pay("LOST").await;
    let named = wrong.replace("po_other0", &attempt);
    let named = app.upload("sandbox", day, named.as_bytes(), "").await.expect(200).body;
    let id = named["reconciliation"]["reconciliation_id"].as_str().expect("an id").to_owned();
    app.carry_until(&id, "MATCHING").await;

    let id = bring_accepted(&app, day, &wrong).await;
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!(standing(&run), ("DONE", None));
    assert_eq!(
        run["differences"],
        json!({"MISSING_HERE APPLIED": 5, "MISSING_THERE RESOLVED": 1}),
        "{run:#}"
    );
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn the_first_statement_of_a_shop_and_a_few_payments_of_strangers_are_compared() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.sleep_over();
    paid(&app, "A").await;
    app.sleep_over();
    let next = day.next_day().expect("a day");
    let own = app.book_lines(next).await.remove(0);
    let first = Line { at: own.at - Duration::from_secs(86_400), ..own.clone() };
    for (day, like, count) in [(day, first, 6), (next, own, 4)] {
        let file = bill_of_another_account(day, &like, count);
        let file = if day == next {
            file.replace("txn_other", "txn_next").replace("po_other", "po_next")
        } else {
            file
        };
        let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
        assert_explained(&run);
        assert_eq!(standing(&run), ("DONE", None));
        assert_eq!(run["differences"]["MISSING_HERE WAITING"], json!(count), "{run:#}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_file_is_compared_with_its_checksum_and_an_upload_must_be_of_something() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.sleep_over();
    let file = sandbox_csv(day, &[]);
    let sha256: String = Sha256::digest(file.as_bytes()).iter().map(|byte| format!("{byte:02X}")).collect();
    let wrong = app.upload("sandbox", day, file.as_bytes(), "&checksum=00").await;
    assert_eq!(wrong.problem(422), "CHECKSUM_MISMATCH");
    let fits = app.upload("sandbox", day, file.as_bytes(), &format!("&checksum={sha256}")).await.expect(200);
    assert_eq!(fits.body["sha256"], json!(sha256.to_lowercase()));
    assert_eq!(fits.body["reconciliation"]["file_sha256"], fits.body["sha256"]);
    assert_eq!(app.upload("nobody", day, b"", "").await.problem(422), "UNKNOWN_CHANNEL");
    assert_eq!(app.upload("sandbox", day, b"", "&format=pdf").await.problem(422), "VALIDATION_FAILED");
    let today = app.clock.now().date();
    assert_eq!(app.upload("sandbox", today, b"", "").await.problem(409), "DAY_NOT_OVER");
    let id = fits.body["reconciliation"]["reconciliation_id"].as_str().expect("an id").to_owned();
    assert_eq!(app.carry_out(&id).await["status"], "DONE", "an empty day is no fault where nothing moved");
    app.end().await;
}

#[tokio::test]
async fn a_channel_without_a_statement_is_asked_again_and_a_person_is_told() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "L").await;
    app.sleep_over();
    // Its books cannot be reached.
    app.sql("ALTER TABLE sandbox.payments RENAME TO hidden").await;
    let run = app.reconcile(day).await;
    assert_eq!((&run["status"], &run["fault"]), (&json!("OPEN"), &json!("LATE")));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "not yet");
    app.clock.advance(Duration::from_secs(40 * 3600));
    for _ in 0..3 {
        app.carry_on().await;
    }
    assert_eq!(app.open_exception().await["kind"], "LATE_STATEMENT");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO payments").await;
    app.clock.advance(Duration::from_secs(601));
    let id = run["reconciliation_id"].as_str().expect("an id");
    for _ in 0..60 {
        app.carry_on().await;
    }
    assert_eq!(app.reconciliation(id).await["status"], "DONE");
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it came after all");
    assert_eq!(app.status_of("L").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_begins_nothing() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.sleep_over();
    let new = reconciliation::NewUpload {
        channel: "sandbox".to_owned(),
        day,
        format: payonce::channels::bills::Format::Sandbox,
        checksum: None,
        accepts_empty: false,
    };
    let pieces = futures_util::stream::iter([Ok(vec![b'x'; 600_000]), Err("the line is dead")]);
    let broken = reconciliation::upload(&app.instance.app, &new, pieces, None).await;
    assert!(broken.is_err(), "{broken:?}");
    assert_eq!((app.count("reconciliations").await, app.count("statement_files").await), (0, 2));
    app.clock.advance(Duration::from_secs(8 * 86_400));
    app.run_until_idle().await;
    assert_eq!(app.count("statement_files").await, 0, "what nobody reads is forgotten");
    app.end().await;
}

#[tokio::test]
async fn an_empty_day_is_empty_by_the_channels_clock_however_late_its_money_was_told_of() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let before = day.previous_day().expect("a day");
    // Paid an hour before midnight, told of in the morning; and sent out then, by the channel's clock.
    let attempt = app.top_up_to_pay("T", "u1", 500).await;
    let trade = super::trade(app.sandbox_pay(&attempt, json!({"notify": false})).await.expect(200).body);
    let late = format!("{before}T23:00:00Z");
    app.sql(&format!("UPDATE sandbox.payments SET paid_at = '{late}'")).await;
    let mut callback = app.success("e-T", &attempt, &trade, 500);
    callback["paid_at"] = json!(late);
    app.deliver(&callback).await;
    let out = json!({"withdrawal_no": "W", "user_id": "u1", "amount": 300, "currency": "CNY", "channel": "sandbox",
                     "account": "a"});
    app.post("/withdrawals", out).await.expect(201);
    app.run_until_idle().await;
    app.sql(&format!("UPDATE sandbox.payouts SET paid_out_at = '{late}'")).await;
    app.sleep_over();

    let empty = app.reconcile_file("sandbox", before, sandbox_csv(before, &[]).as_bytes()).await;
    assert_eq!(
        (&empty["status"], &empty["fault"]),
        (&json!("OPEN"), &json!("EMPTY")),
        "it moved on that day"
    );
    let file = sandbox_csv(before, &app.book_lines(before).await);
    let run = app.reconcile_file("sandbox", before, file.as_bytes()).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["lines"], &run["differences"]), (&json!("DONE"), &json!(2), &json!({})));
    let rightly = app.reconcile_file("sandbox", day, sandbox_csv(day, &[]).as_bytes()).await;
    assert_explained(&rightly);
    assert_eq!((&rightly["status"], &rightly["differences"]), (&json!("DONE"), &json!({})), "{rightly:#}");
    app.end().await;
}

#[tokio::test]
async fn a_day_on_which_only_a_refund_was_made_is_not_empty() {
    let app = start("safe").await;
    app.wait_for_ten();
    app.paid("A").await;
    let day = app.wait_for_ten();
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    app.sleep_over();
    let empty = app.reconcile_file("sandbox", day, sandbox_csv(day, &[]).as_bytes()).await;
    assert_eq!((&empty["status"], &empty["fault"]), (&json!("OPEN"), &json!("EMPTY")));
    let run = app.reconcile(day).await;
    assert_eq!((&run["status"], &run["lines"], &run["differences"]), (&json!("DONE"), &json!(1), &json!({})));
    let over_it = app.upload("sandbox", day, sandbox_csv(day, &[]).as_bytes(), "").await;
    assert_eq!(over_it.problem(422), "STATEMENT_REFUSED", "what the day itself listed excuses nothing");
    let after = app.reconciliation(run["reconciliation_id"].as_str().expect("an id")).await;
    assert_eq!((&after["status"], &after["round"]), (&json!("DONE"), &run["round"]));
    app.end().await;
}

/// Brings a file that a person accepts also without a line; gives its day.
async fn bring_accepted(app: &TestApp, day: Date, file: &str) -> String {
    let uploaded = app.upload("sandbox", day, file.as_bytes(), "&accept_empty=true").await.expect(200).body;
    uploaded["reconciliation"]["reconciliation_id"].as_str().expect("an id").to_owned()
}

/// Where a day stands, and what is wrong with its statement.
fn standing(run: &Value) -> (&str, Option<&str>) {
    (run["status"].as_str().expect("a state"), run["fault"].as_str())
}

#[tokio::test]
async fn a_rightly_empty_day_is_compared_by_the_word_of_a_person_and_misses_what_we_alone_have() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let (_, trade) = invented_top_up(&app, "SHORT", "u1").await;
    app.sleep_over();
    let (empty, refused) = (sandbox_csv(day, &[]), ("OPEN", Some("EMPTY")));
    assert_eq!(standing(&app.reconcile(day).await), refused, "the channel's own word");
    let run = app.reconcile_file("sandbox", day, empty.as_bytes()).await;
    assert_eq!(standing(&run), refused, "nobody says that it is right");
    let detail = run["detail"].as_str().expect("text");
    assert!(detail.contains("accept_empty"), "{detail}");

    // Whoever dies over it leaves that word to the next one.
    forbid(&app, "MATCHING").await;
    let id = bring_accepted(&app, day, &empty).await;
    for _ in 0..3 {
        drop(reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(26));
    }
    assert_eq!(standing(&app.reconciliation(&id).await), ("FETCHING", None));
    allow(&app).await;
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((standing(&run), &run["lines"]), (("DONE", None), &json!(0)));
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}));
    assert_eq!(app.differences(&run).await[0]["channel_id"], json!(trade));
    assert_eq!(app.open_exception().await["kind"], "RECONCILIATION", "its statement is not late any more");
    let logged = format!("reason = 'a story' AND target = '{id}: sandbox {day}, accept_empty'");
    assert_eq!(app.count_where("admin_log", &logged).await, 1);

    // It was said of that upload: neither of what the channel gives, nor of the same file without it.
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    assert_eq!(app.admin_post("/admin/reconciliations", body).await.problem(422), "STATEMENT_REFUSED");
    bring_accepted(&app, day, &empty).await;
    assert_eq!(standing(&app.reconcile_file("sandbox", day, empty.as_bytes()).await), refused);
    let id = bring_accepted(&app, day, &empty).await;
    let run = app.carry_out(&id).await;
    assert_eq!(standing(&run), ("DONE", None));
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}));
    app.end().await;
}

#[tokio::test]
async fn who_accepts_a_file_without_a_line_accepts_no_other_fault_and_may_do_so_over_a_compared_day() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let (empty, right) = (sandbox_csv(day, &[]), sandbox_csv(day, &app.book_lines(day).await));
    let without_end = empty.split("#end").next().expect("a head").to_owned();
    let cases = [
        ("TRUNCATED", without_end.clone()),
        ("WRONG_TOTAL", empty.replace("#end,0,0", "#end,0,1")),
        ("OTHER_DAY", empty.replace(&format!("sandbox,{day}"), "sandbox,2020-01-01")),
        ("OTHER_CHANNEL", "交易时间,`x\n".to_owned()),
        ("CURRENCY", right.replace(",CNY,", ",USD,")),
    ];
    for (fault, file) in cases {
        let id = bring_accepted(&app, day, &file).await;
        let run = app.carry_out(&id).await;
        assert_eq!(standing(&run), ("OPEN", Some(fault)), "{run:#}");
    }
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_eq!((standing(&run), &run["differences"]), (("DONE", None), &json!({})));

    let wrong = app.upload("sandbox", day, without_end.as_bytes(), "&accept_empty=true").await;
    assert_eq!(wrong.problem(422), "STATEMENT_REFUSED");
    let silent = app.upload("sandbox", day, empty.as_bytes(), "&accept_empty=false").await;
    assert_eq!(silent.problem(422), "STATEMENT_REFUSED", "nobody says that it is right");
    assert!(silent.body["detail"].as_str().is_some_and(|text| text.contains("accept_empty")));
    let id = bring_accepted(&app, day, &empty).await;
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((standing(&run), &run["lines"]), (("DONE", None), &json!(0)));
    assert_eq!(
        run["differences"],
        json!({"MISSING_THERE RESOLVED": 1}),
        "the channel confirms it when asked"
    );
    app.end().await;
}

#[tokio::test]
async fn the_empty_file_of_a_compared_day_is_news_once_a_person_accepts_it() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    app.sleep_over();
    let empty = sandbox_csv(day, &[]);
    let run = app.reconcile_file("sandbox", day, empty.as_bytes()).await;
    assert_eq!((standing(&run), &run["round"]), (("DONE", None), &json!(1)));
    // Of that day, told of in the morning, and none that the channel has.
    let attempt = app.top_up_to_pay("SHORT", "u1", 500).await;
    let mut callback = app.success("e-SHORT", &attempt, "t-SHORT", 500);
    callback["paid_at"] = json!(format!("{day}T12:00:00Z"));
    app.deliver(&callback).await;
    app.clock.advance(Duration::from_secs(60));
    assert_eq!(app.upload("sandbox", day, empty.as_bytes(), "").await.problem(422), "STATEMENT_REFUSED");
    for round in [2, 3] {
        let id = bring_accepted(&app, day, &empty).await;
        let run = app.carry_out(&id).await;
        assert_eq!((standing(&run), &run["round"]), (("DONE", None), &json!(round)));
        assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}));
    }
    app.end().await;
}
