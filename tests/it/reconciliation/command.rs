//! `payonce reconcile`, as an operator types it.

use std::path::PathBuf;
use std::process::Stdio;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::clock::Clock;
use serde_json::json;
use time::Date;

use super::trade;
use crate::commands::{environment, errors, json_of, run};
use crate::support::TestApp;
use crate::support::statements::{Line, sandbox_csv};

/// The day before, by the clock of the command: it has the machine's.
pub(super) fn yesterday() -> Date {
    Clock::system().now().date().previous_day().expect("a day")
}

/// An order that is paid, on that day's noon by the channel's clock; who is not told has to read it in the statement.
async fn paid_on(app: &TestApp, day: Date, number: &str, is_told: bool) {
    let id = app.order_to_pay(number).await;
    let trade = trade(app.sandbox_pay(&id, json!({"notify": false})).await.expect(200).body);
    app.sql(&format!(
        "UPDATE sandbox.payments SET paid_at = '{day} 12:00Z' WHERE transaction_id = '{trade}'"
    ))
    .await;
    if is_told {
        let mut callback = app.success(&format!("e-{number}"), &id, &trade, 1990);
        callback["paid_at"] = json!(format!("{day}T12:00:00Z"));
        app.deliver(&callback).await;
    }
}

pub(super) fn file(app: &TestApp, name: &str, text: &str) -> PathBuf {
    let database = app.database_url.rsplit('/').next().expect("a name");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{database}-{name}"));
    std::fs::write(&path, text).expect("a file");
    path
}

pub(super) const ROLES: [&str; 4] = ["--roles", "api,workers,sandbox", "--reason", "ticket 4711"];

#[tokio::test]
async fn a_day_is_compared_from_a_terminal_with_its_totals_and_its_differences() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "KNOWN", true).await;
    paid_on(&app, day, "LOST", false).await;
    let (environment, date) = (environment(&app.database_url, &app.redis_url), day.to_string());
    let csv = file(&app, "differences.csv", "");
    let csv_path = csv.to_str().expect("text");
    let words = ["-o", "json", "reconcile", "--channel", "sandbox", "--date", &date, "--csv", csv_path];
    let done = run(&[&words[..], &ROLES].concat(), &environment).await;
    assert_eq!(done.status.code(), Some(0), "{}", errors(&done));
    let report = json_of(&done);
    assert_eq!(
        (&report["status"], &report["lines"], &report["differences"]),
        (&json!("DONE"), &json!(2), &json!({"MISSING_HERE APPLIED": 1})),
        "{report:#}"
    );
    let total = &report["totals"][0];
    assert_eq!(
        (&total["kind"], &total["currency"], &total["ours"], &total["theirs"]),
        (&json!("PAYMENT"), &json!("CNY"), &json!(1990), &json!(3980))
    );
    assert_eq!((&total["drift"], &total["unexplained"]), (&json!(-1990), &json!(0)));
    assert_eq!(app.status_of("LOST").await, "PAID");
    let rows = std::fs::read_to_string(&csv).expect("the differences");
    assert!(rows.lines().count() == 2 && rows.contains(",LOST,,1990,CNY,"), "{rows}");
    let logged = "action = 'reconciliations.begin' AND reason = 'ticket 4711'";
    assert_eq!(app.count_where("admin_log", logged).await, 1);

    // Once more, as people read it: there is no drift any more.
    let again =
        run(&[&["reconcile", "--channel", "sandbox", "--date", &date][..], &ROLES].concat(), &environment)
            .await;
    let table = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(again.status.code(), Some(0), "{}", errors(&again));
    let row = table.lines().find(|line| line.starts_with("PAYMENT")).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["PAYMENT", "CNY", "3980", "3980", "0", "0", "0", "0"], "{table}");
    assert!(table.contains("DONE, 2 lines") && table.contains("unexplained"), "{table}");
    std::fs::remove_file(csv).ok();
    app.end().await;
}

#[tokio::test]
async fn a_file_from_a_terminal_is_refused_with_its_fault_and_the_right_one_is_taken() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "KNOWN", true).await;
    let (environment, date) = (environment(&app.database_url, &app.redis_url), day.to_string());
    let reconcile = async |path: &PathBuf, more: &[&str]| {
        let path = path.to_str().expect("text");
        let words = ["reconcile", "--channel", "sandbox", "--date", &date, "--file", path];
        run(&[&words[..], more, &ROLES].concat(), &environment).await
    };
    let lines = app.book_lines(day).await;
    let right = sandbox_csv(day, &lines);
    let cut = file(&app, "cut.csv", right.split("#end").next().expect("lines"));
    let refused = reconcile(&cut, &[]).await;
    let table = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{}", errors(&refused));
    assert!(table.contains("OPEN") && table.contains("the statement is not used, TRUNCATED"), "{table}");

    let whole = file(&app, "whole.csv", &right);
    let wrong = reconcile(&whole, &["--checksum", "00"]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", errors(&wrong));
    assert!(errors(&wrong).contains("does not fit its checksum"), "{}", errors(&wrong));
    let taken = reconcile(&whole, &["--format", "sandbox"]).await;
    assert_eq!(taken.status.code(), Some(0), "{}", errors(&taken));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it came after all");

    // Without a line it takes that one's place by the word of a person only.
    let empty = file(&app, "empty.csv", &sandbox_csv(day, &[]));
    let refused = reconcile(&empty, &[]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    assert!(errors(&refused).contains("EMPTY") && errors(&refused).contains("accept_empty"));
    let accepted = reconcile(&empty, &["--accept-empty"]).await;
    assert_eq!(accepted.status.code(), Some(0), "{}", errors(&accepted));
    let table = String::from_utf8_lossy(&accepted.stdout).into_owned();
    assert!(table.contains("1  MISSING_THERE RESOLVED"), "the channel confirms it when asked: {table}");
    let logged = format!("action = 'reconciliations.upload' AND target LIKE '%sandbox {day}, accept_empty'");
    assert_eq!(app.count_where("admin_log", &logged).await, 1);

    // What waits for a person is a problem found.
    let (our_id, channel_id) = ("po_nobody".to_owned(), "txn_nobody".to_owned());
    let foreign = Line { our_id, channel_id, amount: 5, ..lines[0].clone() };
    let more = file(&app, "more.csv", &sandbox_csv(day, &[lines, vec![foreign]].concat()));
    let found = reconcile(&more, &[]).await;
    assert_eq!(found.status.code(), Some(3), "{}", errors(&found));
    let table = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(table.contains("1  MISSING_HERE WAITING"), "{table}");
    for path in [cut, whole, empty, more] {
        std::fs::remove_file(path).ok();
    }
    app.end().await;
}

#[tokio::test]
async fn who_looks_on_is_told_when_nothing_moves_any_more_and_is_known_by_the_name_that_was_given() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "KNOWN", true).await;
    let (environment, date) = (environment(&app.database_url, &app.redis_url), day.to_string());
    let empty = file(&app, "silent.csv", &sandbox_csv(day, &[]));
    let path = empty.to_str().expect("text");
    let words = ["reconcile", "--channel", "sandbox", "--date", &date, "--file", path, "--accept-empty"];
    let more = ["--patience", "1", "--as", "night-job"];
    app.fault(FaultOp::Query, FaultKind::TimeoutBefore, 1_000, Some(50)).await;
    let left = run(&[&words[..], &more, &ROLES].concat(), &environment).await;
    assert_eq!(left.status.code(), Some(3), "{}", errors(&left));
    let table = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(table.contains("ACTING"), "its channel does not answer: {table}");
    assert_eq!(app.count_where("admin_log", "actor = 'night-job'").await, 1);
    std::fs::remove_file(empty).ok();
    app.end().await;
}

#[tokio::test]
async fn who_looks_on_sees_how_far_it_is() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "KNOWN", true).await;
    let binary = env!("CARGO_BIN_EXE_payonce");
    let words = format!(
        "{binary} reconcile --channel sandbox --date {day} --roles api,workers,sandbox --reason 'ticket 4711'"
    );
    // A terminal of its own.
    let output = tokio::process::Command::new("script")
        .args(["-qec", &words, "/dev/null"])
        .env_clear()
        .envs(environment(&app.database_url, &app.redis_url))
        .env("PATH", std::env::var("PATH").expect("a path"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .await
        .expect("a terminal");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("FETCHING, ") || shown.contains("MATCHING, "), "{shown}");
    assert!(shown.contains("1 lines, 0 differences") && shown.contains("DONE, 1 lines"), "{shown}");
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_compared_is_told_at_once() {
    let app = TestApp::start().await;
    let environment = environment(&app.database_url, &app.redis_url);
    let today = Clock::system().now().date().to_string();
    for (arguments, code, said) in [
        (&["--channel", "sandbox", "--date", "20-11"][..], 2, "YYYY-MM-DD"),
        (&["--channel", "sandbox"][..], 2, "--date"),
        (&["--channel", "sandbox", "--date", "2026-01-01", "--format", "sandbox"][..], 2, "--file"),
        (&["--channel", "sandbox", "--date", "2026-01-01", "--accept-empty"][..], 2, "--file"),
        (&["--channel", "nobody", "--date", "2026-01-01"][..], 1, "there is no channel nobody"),
        (&["--channel", "sandbox", "--date", &today][..], 1, "is not over"),
        (&["--channel", "sandbox", "--date", "2026-01-01", "--file", "/gone"][..], 1, "No such file"),
    ] {
        let output = run(&[&["reconcile"][..], arguments, &ROLES].concat(), &environment).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{arguments:?}: {}", errors(&output));
    }
    assert_eq!(app.count("reconciliations").await, 0);
    app.end().await;
}

#[tokio::test]
async fn who_does_not_reach_a_channel_leaves_its_differences_to_those_who_do() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "KNOWN", true).await;
    let (environment, date) = (environment(&app.database_url, &app.redis_url), day.to_string());
    let empty = file(&app, "elsewhere.csv", &sandbox_csv(day, &[]));
    let path = empty.to_str().expect("text");
    let words = ["-o", "json", "reconcile", "--channel", "sandbox", "--date", &date, "--file", path];
    let more = ["--accept-empty", "--patience", "1", "--reason", "ticket 4711"];
    let left = run(&[&words[..], &more].concat(), &environment).await;
    assert_eq!(left.status.code(), Some(3), "{}", errors(&left));
    assert_eq!(json_of(&left)["differences"], json!({"MISSING_THERE PROPOSED": 1}));
    app.run_until_idle().await;
    let all = app.admin_get("/admin/reconciliations").await.expect(200).body;
    assert_eq!(all["data"][0]["differences"], json!({"MISSING_THERE RESOLVED": 1}), "{all:#}");
    std::fs::remove_file(empty).ok();
    app.end().await;
}

#[tokio::test]
async fn differences_are_printed_as_the_file_that_they_are() {
    let (app, day) = (TestApp::start().await, yesterday());
    paid_on(&app, day, "LOST", false).await;
    let run_id = app.reconcile(day).await["reconciliation_id"].as_str().expect("an id").to_owned();
    let printed =
        run(&["admin", "differences-csv", &run_id], &environment(&app.database_url, &app.redis_url)).await;
    assert_eq!(printed.status.code(), Some(0), "{}", errors(&printed));
    let csv = app.admin_get(&format!("/admin/reconciliations/{run_id}/items.csv")).await.expect(200).text;
    assert_eq!(String::from_utf8_lossy(&printed.stdout).trim_end(), csv.trim_end());
    assert_eq!(csv.trim_end().lines().count(), 2, "{csv}");
    app.end().await;
}
