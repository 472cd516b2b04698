//! A week with everything that goes wrong: each night puts right what the day left, to the cent and both ways.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

use super::{FATES, Fate};
use crate::support::service::is_full;
use crate::support::statements::assert_explained;
use crate::support::{Chance, TestApp, TestOptions};

/// Money that the sandbox took and that is known here as nothing, or known otherwise.
const UNKNOWN: &str = "SELECT format('%s of %s', payment.transaction_id, payment.pay_order_id)
    FROM sandbox.payments AS payment
    LEFT JOIN trades AS trade ON trade.channel = 'sandbox' AND trade.transaction_id = payment.transaction_id
    LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
    LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
    WHERE (coalesce(attempt.amount, stray.amount), coalesce(attempt.currency, stray.currency))
          IS DISTINCT FROM (payment.amount, payment.currency)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_week_of_faults_ours_equals_the_channels_own_books() {
    let mut chance = Chance::new();
    let vars = vec![
        ("RECON_AUTO", "all".to_owned()),
        ("RECON_DAILY_CAP", "CNY:100000000".to_owned()),
        ("RECON_AT", "03:00".to_owned()),
    ];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let fates: Vec<Fate> = FATES
        .into_iter()
        .filter(|fate| {
            matches!(
                fate,
                Fate::Fine | Fate::LostCallback | Fate::LateAndLost | Fate::TwiceAndLost | Fate::LostRefund
            )
        })
        .collect();
    let orders = if is_full() { 60 } else { 8 };
    for night in 0..7 {
        // What the day before left; in the morning its statement is there.
        app.wait_for_ten();
        app.run_until_idle().await;
        for index in 0..orders {
            // Each of them once, then as chance has it.
            let fate = fates.get(night * orders + index).copied();
            let fate = fate.unwrap_or_else(|| fates[chance.one_of(fates.len())]);
            fate.befall(&app, &format!("W{night}-{index}")).await;
        }
        // Some of what the channel tells is lost, some comes twice, some in another order.
        let faults = [FaultKind::Drop, FaultKind::Repeat, FaultKind::Reorder];
        let fault = faults.get(night).copied().unwrap_or_else(|| faults[chance.one_of(faults.len())]);
        app.fault(FaultOp::Webhook, fault, 3, Some(1)).await;
        for index in 0..orders {
            let id = app.order_to_pay(&format!("V{night}-{index}")).await;
            app.sandbox_pay(&id, json!({})).await.expect(200);
        }
        app.gateway.deliver_due().await.expect("told, or not");
    }
    app.wait_for_ten();
    app.gateway.clear_faults().await.expect("no faults");
    for _ in 0..5 {
        app.run_until_idle().await;
        app.clock.advance(std::time::Duration::from_secs(601));
    }
    let runs = app.admin_get("/admin/reconciliations?limit=100").await.expect(200).body;
    let runs = runs["data"].as_array().expect("days");
    assert!(runs.iter().all(|run| run["status"] == "DONE"), "{runs:#?}");
    runs.iter().for_each(assert_explained);
    let unknown: Vec<String> =
        sqlx::query_scalar(UNKNOWN).fetch_all(app.instance.app.db.pool()).await.expect("a look");
    assert!(unknown.is_empty(), "{unknown:#?}");
    app.assert_books_agree_both_ways().await;
    let (taken, back) = app.sandbox_books().await;
    assert_eq!(app.balance_of("CHANNEL:sandbox:CNY").await, taken - back, "to the cent");
    app.end().await;
}
