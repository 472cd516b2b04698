//! The audit as gauges.

use super::checks;
use super::store;
use crate::infra::db::{Db, DbError};

/// Sets `payonce_audit_violations{check}` and `payonce_audited_at_seconds` to what the last audit found and when,
/// whichever instance made it, and `payonce_money_at_risk{currency}` (minor units) to how it stands now.
pub(super) async fn publish(db: &Db) -> Result<(), DbError> {
    let mut conn = db.conn().await?;
    for found in store::find_last(&mut conn).await? {
        metrics::gauge!("payonce_audit_violations", "check" => found.check).set(as_gauge(found.violations));
        metrics::gauge!("payonce_audited_at_seconds").set(as_gauge(found.audited_at.unix_timestamp()));
    }
    for risk in checks::money_at_risk(&mut conn).await? {
        let currency = risk.currency.as_str().to_owned();
        metrics::gauge!("payonce_money_at_risk", "currency" => currency).set(as_gauge(risk.amount));
    }
    Ok(())
}

/// Gauges are floats; above 2^53 one shows a neighbouring number, which no alarm would tell apart.
fn as_gauge(value: i64) -> f64 {
    value as f64
}
