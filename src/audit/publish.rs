//! The audit as gauges.

use super::run::MONEY_AT_RISK;
use super::store;
use crate::infra::db::Db;
use crate::infra::duty::{Batch, DutyError};

/// Sets `payonce_audit_violations{check}` and `payonce_money_at_risk{currency}` (minor units) to what the last audit
/// found, whichever instance made it, and `payonce_audited_at_seconds` to when that was. What it could not look at stays
/// as it was before, and `payonce_audit_failed{check}` is 1 for it, 0 for all else.
///
/// # Errors
/// When the database cannot be reached: the gauges stay as they were.
pub async fn publish(db: &Db) -> Result<Batch, DutyError> {
    let last = store::find_last(&mut db.conn().await?).await?;
    if let Some(last) = last {
        metrics::gauge!("payonce_audited_at_seconds").set(as_gauge(last.audited_at.unix_timestamp()));
        let report = last.report.0;
        // Once each: what stays as it was never looks otherwise for a moment.
        if report.failed.iter().all(|failed| failed.id != MONEY_AT_RISK) {
            metrics::gauge!("payonce_audit_failed", "check" => MONEY_AT_RISK).set(0.0);
        }
        for check in report.checks {
            metrics::gauge!("payonce_audit_failed", "check" => check.id.clone()).set(0.0);
            metrics::gauge!("payonce_audit_violations", "check" => check.id).set(as_gauge(check.violations));
        }
        for failed in report.failed {
            metrics::gauge!("payonce_audit_failed", "check" => failed.id).set(1.0);
        }
        for risk in report.money_at_risk {
            let currency = risk.currency.as_str().to_owned();
            metrics::gauge!("payonce_money_at_risk", "currency" => currency).set(as_gauge(risk.amount));
        }
    }
    Ok(Batch::Done)
}

/// Gauges are floats; above 2^53 one shows a neighbouring number, which no alarm would tell apart.
fn as_gauge(value: i64) -> f64 {
    value as f64
}
