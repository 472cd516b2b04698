//! A day of the books, read across `sandbox.payments`, `sandbox.refunds` and `sandbox.payouts`.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};

/// Where a page begins and how far it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    /// The last instant already given; before the first page, the beginning of the day.
    pub(crate) after_at: OffsetDateTime,
    /// The last key already given at that instant; before the first page, empty.
    pub(crate) after_key: &'a str,
    /// The beginning of the next day.
    pub(crate) until: OffsetDateTime,
    /// Most rows of a page.
    pub(crate) limit: i64,
}

/// One movement.
#[derive(Debug)]
pub(crate) struct Movement {
    /// What the page is ordered by after the time: the gateway's key of the row.
    pub(crate) key: String,
    /// The caller's own id.
    pub(crate) our_id: String,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) at: OffsetDateTime,
}

pub(crate) async fn list_payments(conn: &mut Conn, window: Window<'_>) -> Result<Vec<Movement>, DbError> {
    Ok(sqlx::query_as!(
        Movement,
        "SELECT transaction_id AS key, pay_order_id AS our_id, amount, currency, paid_at AS at
         FROM sandbox.payments
         WHERE (paid_at, transaction_id) > ($1, $2) AND paid_at < $3
         ORDER BY paid_at, transaction_id
         LIMIT $4",
        window.after_at,
        window.after_key,
        window.until,
        window.limit,
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn list_refunds(conn: &mut Conn, window: Window<'_>) -> Result<Vec<Movement>, DbError> {
    Ok(sqlx::query_as!(
        Movement,
        "SELECT refund_id AS key, refund_id AS our_id, amount, currency, refunded_at AS at
         FROM sandbox.refunds
         WHERE (refunded_at, refund_id) > ($1, $2) AND refunded_at < $3
         ORDER BY refunded_at, refund_id
         LIMIT $4",
        window.after_at,
        window.after_key,
        window.until,
        window.limit,
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn list_payouts(conn: &mut Conn, window: Window<'_>) -> Result<Vec<Movement>, DbError> {
    Ok(sqlx::query_as!(
        Movement,
        "SELECT payout_id AS key, payout_id AS our_id, amount, currency, paid_out_at AS at
         FROM sandbox.payouts
         WHERE (paid_out_at, payout_id) > ($1, $2) AND paid_out_at < $3
         ORDER BY paid_out_at, payout_id
         LIMIT $4",
        window.after_at,
        window.after_key,
        window.until,
        window.limit,
    )
    .fetch_all(conn)
    .await?)
}
