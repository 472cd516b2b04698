//! `sandbox.payouts`.

use time::OffsetDateTime;

use crate::channels::sandbox::payouts::PayoutRow;
use crate::channels::sandbox::protocol::Payout;
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;

/// Sends the money out unless this id did so before.
pub(crate) async fn insert(conn: &mut Conn, payout: &Payout, now: OffsetDateTime) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $5, $5)
         -- No row on a repeat: the caller compares with what stands there.
         ON CONFLICT ON CONSTRAINT sandbox_payouts_pkey DO NOTHING",
        payout.payout_id,
        payout.account,
        payout.amount.minor(),
        payout.currency.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn find(conn: &mut Conn, payout_id: &str) -> Result<Option<PayoutRow>, DbError> {
    Ok(sqlx::query_as!(
        PayoutRow,
        r#"SELECT account, amount, currency AS "currency: Currency", taken_back_at
           FROM sandbox.payouts
           WHERE payout_id = $1"#,
        payout_id,
    )
    .fetch_optional(conn)
    .await?)
}
