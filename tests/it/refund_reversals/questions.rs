//! What a worker is being answered about a refund counts only while the question is its own.

use payonce::compensation::{Action, Drive};
use payonce::refunds;
use serde_json::json;

use super::{assert_stands, made, questions};
use crate::support::TestApp;
use crate::support::refunding::told_of_refund;

#[tokio::test]
async fn an_answer_from_before_a_refund_was_told_of_once_more_ends_no_question() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made(&app, "Q").await;
    let failure = |event| told_of_refund(event, (&refund_id, &attempt), 990, "FAILED");
    app.tell_in_vain(&failure("no")).await;
    // A worker asks while the refund still stands. Before it can write that, the channel takes the refund back and says so,
    // and cannot be asked.
    let task = app.take_task(Action::QueryRefund, &refund_id).await;
    app.tell_in_vain(&failure("no-more")).await;
    let driven = refunds::resolve_contradiction(&app.instance.app, &task).await;
    assert_eq!(driven.expect("an answer"), Drive::Done);
    assert_eq!((questions(&app, "READY").await, questions(&app, "DONE").await), (1, 0), "it is asked anew");
    assert_eq!(app.open_exception().await["kind"], "CONTRADICTION");
    assert_stands(&app, "Q").await;

    app.sandbox_takes_back(&refund_id).await;
    app.run_until_idle().await;
    assert_eq!(app.find_refund("Q").await["status"], "FAILED");
    assert_eq!(app.refunded("Q").await, ("PAID".to_owned(), 0));
    assert_eq!((questions(&app, "READY").await, questions(&app, "DONE").await), (0, 1));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it is answered");
    let answered = &app.exceptions("status=RESOLVED").await[0];
    assert_eq!(answered["reason"], json!("its channel says that it came to nothing"));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
