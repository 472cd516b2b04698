//! The audit as gauges.

use super::model::AuditReport;

/// Sets `payonce_audit_violations{check}` and `payonce_money_at_risk{currency}` to what an audit found.
pub fn publish(report: &AuditReport) {
    for check in &report.checks {
        metrics::gauge!("payonce_audit_violations", "check" => check.id).set(as_gauge(check.violations));
    }
    for risk in &report.money_at_risk {
        let currency = risk.currency.as_str().to_owned();
        metrics::gauge!("payonce_money_at_risk", "currency" => currency).set(as_gauge(risk.amount));
    }
}

/// Gauges are floats; above 2^53 one shows a neighbouring number, which no alarm would tell apart.
fn as_gauge(value: i64) -> f64 {
    value as f64
}
