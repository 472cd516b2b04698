//! What there is to say of a payment that never came: whom it was credited to, and what became of it.

use crate::infra::db::{Conn, DbError, Tx};
use crate::orders::OrderStatus;
use crate::reconciliation::model::Item;

/// Who spent money that never came.
#[derive(Debug)]
pub(in crate::reconciliation) struct Spender {
    pub(in crate::reconciliation) merchant_id: String,
    pub(in crate::reconciliation) user_id: String,
    pub(in crate::reconciliation) order_no: String,
    /// Whether each product that charged them since allows it; nothing where none did.
    pub(in crate::reconciliation) is_allowed: Option<bool>,
    /// Whether they were charged for it before, and were given that back.
    pub(in crate::reconciliation) was_charged: bool,
}

/// The user whom a payment topped up, if that is what it did.
pub(in crate::reconciliation) async fn find_spender(
    conn: &mut Conn,
    item: &Item,
    charge: &str,
) -> Result<Option<Spender>, DbError> {
    let spender = sqlx::query_as!(
        Spender,
        r#"SELECT orders.merchant_id, orders.user_id, orders.order_no, used.is_allowed,
                EXISTS (SELECT 1 FROM ledger_transactions WHERE transaction_id = $3) AS "was_charged!"
         FROM trades AS trade
         JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
         JOIN orders ON orders.merchant_id = attempt.merchant_id AND orders.order_no = attempt.order_no
                    AND orders.paid_by = attempt.pay_order_id
         -- One row in any case; NULL where nothing was charged since: what was booked of the user behind the top-up's own
         -- booking, along the index of users' bookings. Their holds would be all that they ever had.
         CROSS JOIN LATERAL (
             SELECT bool_and(product.allow_compensating_charge) AS is_allowed
             FROM (
                 SELECT DISTINCT hold.product_code
                 FROM ledger_transactions AS booked
                 CROSS JOIN LATERAL (SELECT product_code FROM usage_holds
                                     WHERE hold_id = split_part(booked.transaction_id, ':', 2) AND charged > 0 OFFSET 0) AS hold
                 WHERE booked.wallet = format('%s:%s:%s', orders.merchant_id, orders.user_id, orders.currency)
                   AND booked.kind = 'USAGE_CHARGE'
                   AND booked.seq > (SELECT seq FROM ledger_transactions
                                     WHERE transaction_id = 'PAYMENT:' || attempt.pay_order_id)) AS used
             JOIN products AS product
               ON product.merchant_id = orders.merchant_id AND product.product_code = used.product_code) AS used
         WHERE trade.channel = $1 AND trade.transaction_id = $2 AND orders.kind = 'TOPUP'"#,
        item.channel,
        item.channel_id,
        charge,
    );
    Ok(spender.fetch_optional(conn).await?)
}

/// How much of a top-up is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconciliation) enum Rest {
    /// It is paid, and nothing of it was given back or is asked for.
    Whole,
    /// A refund of it that failed may have been made all the same, which its channel or a person has yet to say.
    Unknown,
    /// Less.
    Less,
}

/// Locks the order of the top-up, and says how much of it is there. The refunds are read behind the lock: in a snapshot that has
/// all of them.
pub(in crate::reconciliation) async fn lock_rest(tx: &mut Tx, spender: &Spender) -> Result<Rest, DbError> {
    let conn: &mut Conn = tx;
    let status = sqlx::query_scalar!(
        r#"SELECT status AS "status: OrderStatus" FROM orders WHERE merchant_id = $1 AND order_no = $2 FOR UPDATE"#,
        spender.merchant_id,
        spender.order_no,
    );
    let status = status.fetch_one(&mut *conn).await?;
    let refunds = sqlx::query!(
        r#"SELECT coalesce(bool_or(status <> 'FAILED' OR made_after_all_at IS NOT NULL), false) AS "is_asked_for!",
                  coalesce(bool_or(may_have_gone(refund_id, made_after_all_at)), false) AS "may_be_made!"
           FROM refunds WHERE merchant_id = $1 AND order_no = $2 AND stray_id IS NULL"#,
        spender.merchant_id,
        spender.order_no,
    );
    let refunds = refunds.fetch_one(conn).await?;
    Ok(match (status, refunds.is_asked_for) {
        (OrderStatus::Paid, false) if refunds.may_be_made => Rest::Unknown,
        (OrderStatus::Paid, false) => Rest::Whole,
        _ => Rest::Less,
    })
}
