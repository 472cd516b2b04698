//! `sandbox.payments`.

use time::OffsetDateTime;

use crate::channels::sandbox::books::PaymentView;
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError, expect_one_row};
use crate::money::{Amount, Currency};

/// Writes the trade's next payment down. The trade's row must be locked, so that numbers do not collide.
pub(crate) async fn insert(
    conn: &mut Conn,
    pay_order_id: &PayOrderId,
    payment: &PaymentView,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "INSERT INTO sandbox.payments (transaction_id, pay_order_id, number, amount, currency, paid_at,
                                           created_at, updated_at)
             SELECT $1, $2, 1 + count(*)::integer, $3, $4, $5, $6, $6
             FROM sandbox.payments
             WHERE pay_order_id = $2",
            payment.transaction_id,
            pay_order_id.as_str(),
            payment.amount,
            payment.currency.as_str(),
            payment.paid_at,
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// All payments of a trade, the first one first.
pub(crate) async fn list(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Vec<PaymentView>, DbError> {
    Ok(sqlx::query_as!(
        PaymentView,
        r#"SELECT transaction_id, amount, currency AS "currency: Currency", refunded_amount, paid_at
           FROM sandbox.payments
           WHERE pay_order_id = $1
           ORDER BY number"#,
        pay_order_id.as_str(),
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn find(
    conn: &mut Conn,
    pay_order_id: &PayOrderId,
    transaction_id: &str,
) -> Result<Option<PaymentView>, DbError> {
    Ok(sqlx::query_as!(
        PaymentView,
        r#"SELECT transaction_id, amount, currency AS "currency: Currency", refunded_amount, paid_at
           FROM sandbox.payments
           WHERE transaction_id = $1 AND pay_order_id = $2"#,
        transaction_id,
        pay_order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Takes a refund out of what is left of a payment, and says whether there was enough.
pub(crate) async fn take_refund(
    conn: &mut Conn,
    transaction_id: &str,
    amount: Amount,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let taken = sqlx::query!(
        "UPDATE sandbox.payments SET refunded_amount = refunded_amount + $2, updated_at = $3
         WHERE transaction_id = $1
           -- Decided here, on the row as it is now, and not by what somebody read before.
           AND refunded_amount + $2 <= amount",
        transaction_id,
        amount.minor(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(taken.rows_affected() == 1)
}
