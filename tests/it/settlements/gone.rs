//! What goes back after all while its commission is worked out.

use payonce::settlement;
use serde_json::json;

use super::claw_back::sell;
use crate::support::settling::RatesServer;
use crate::support::{TestApp, TestOptions};

/// What a run, and somebody who asks for it, have asked the source about is no more to be settled when it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_back_after_all_while_the_rates_were_asked_for_earns_nobody_a_commission() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    let mut refused = Vec::new();
    for order_no in ["A1", "A2", "A3"] {
        let attempt = sell(&app, order_no, 1990).await;
        refused.push((app.refused_refund(order_no, order_no, 990).await, attempt));
    }
    let made = async |which: usize| {
        let (refund_id, attempt) = &refused[which];
        app.sandbox_makes_after_all(refund_id, attempt).await;
        app.tell_refund(&format!("made-{which}"), refund_id, attempt, 990, "SUCCEEDED").await;
        rates.delay(0);
    };
    rates.delay(3000);
    let (settled, ()) = tokio::join!(app.settle("A1"), async {
        app.eventually("the source is asked", async || rates.calls() == 1).await;
        made(0).await;
    });
    assert_eq!(settled.problem(409), "ORDER_NOT_SETTLEABLE");

    let run_id = app.begin_settling(0).await;
    rates.delay(3000);
    let (page, ()) = tokio::join!(settlement::run_due(&app.instance.app), async {
        app.eventually("the source is asked", async || rates.calls() == 2).await;
        made(1).await;
    });
    page.expect("a page");
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"]), (&json!("DONE"), &json!(1)), "{run:#}");
    assert_eq!(app.count("settlements").await, 1);
    app.settlement_of("A3").await;
    app.end().await;
}
