//! `sandbox.refunds`.

use time::OffsetDateTime;

use crate::channels::sandbox::books::RefundView;
use crate::channels::sandbox::protocol::Refund;
use crate::ids::{PayOrderId, RefundId};
use crate::infra::db::{Conn, DbError, expect_one_row};
use crate::money::Currency;

pub(crate) async fn find(conn: &mut Conn, refund_id: &RefundId) -> Result<Option<RefundView>, DbError> {
    Ok(sqlx::query_as!(
        RefundView,
        r#"SELECT refund_id, transaction_id, amount, currency AS "currency: Currency", reason, refunded_at
           FROM sandbox.refunds
           WHERE refund_id = $1"#,
        refund_id.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

/// All refunds of a trade, in the order they were made.
pub(crate) async fn list(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Vec<RefundView>, DbError> {
    Ok(sqlx::query_as!(
        RefundView,
        r#"SELECT r.refund_id, r.transaction_id, r.amount, r.currency AS "currency: Currency", r.reason,
                  r.refunded_at
           FROM sandbox.refunds AS r
           JOIN sandbox.payments AS p USING (transaction_id)
           WHERE p.pay_order_id = $1
           ORDER BY r.refunded_at, r.refund_id"#,
        pay_order_id.as_str(),
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn insert(conn: &mut Conn, refund: &Refund, now: OffsetDateTime) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at,
                                          created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $6)",
            refund.refund_id.as_str(),
            refund.transaction_id,
            refund.amount.minor(),
            refund.currency.as_str(),
            refund.reason,
            now,
        )
        .execute(conn)
        .await?,
    )
}
