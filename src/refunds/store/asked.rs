//! The rows of refunds that somebody asks for.

use super::refunds;
use crate::ids::{MerchantId, RefundNo};
use crate::infra::db::{Conn, DbError, StatePage, Tx};
use crate::money::Currency;
use crate::orders::OrderKey;
use crate::refunds::model::{Refund, RefundStatus};

/// Whether a refund that gave a payment's money back wants the stock back too.
pub(in crate::refunds) async fn is_stock_wanted_back(
    tx: &mut Tx,
    order: &OrderKey,
    pay_order_id: &str,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let is_wanted = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM refunds
                          WHERE merchant_id = $1 AND order_no = $2 AND pay_order_id = $3
                            AND status = 'SUCCEEDED' AND return_stock) AS "is_wanted!""#,
        order.merchant_id.as_str(),
        order.order_no.as_str(),
        pay_order_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(is_wanted)
}

/// Minor units of a locked order's payment that have gone back or are let go beside this refund, and of these what was made after
/// all, or may have been, by refunds that failed or wait for an approval.
pub(in crate::refunds) async fn sum_let_go(
    tx: &mut Tx,
    order: &OrderKey,
    beside: &Refund,
) -> Result<(i64, i64), DbError> {
    let conn: &mut Conn = tx;
    let sums = sqlx::query!(
        r#"SELECT coalesce(sum(amount), 0)::bigint AS "let_go!",
                  coalesce(sum(amount) FILTER (WHERE status IN ('AWAITING_APPROVAL', 'FAILED')), 0)::bigint AS "gone!"
           FROM refunds
           WHERE merchant_id = $1 AND order_no = $2 AND stray_id IS NULL AND refund_id <> $3
             AND (status NOT IN ('AWAITING_APPROVAL', 'FAILED') OR may_have_gone(refund_id, made_after_all_at))"#,
        order.merchant_id.as_str(),
        order.order_no.as_str(),
        beside.refund_id,
    )
    .fetch_one(conn)
    .await?;
    Ok((sums.let_go, sums.gone))
}

/// The refund of that number of a merchant.
pub(in crate::refunds) async fn find_by_number(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    refund_no: &RefundNo,
) -> Result<Option<Refund>, DbError> {
    let refund =
        refunds!("WHERE merchant_id = $1 AND refund_no = $2", merchant_id.as_str(), refund_no.as_str());
    Ok(refund.fetch_optional(conn).await?)
}

/// The refunds of these ids.
pub(in crate::refunds) async fn find_refunds(
    conn: &mut Conn,
    ids: &[String],
) -> Result<Vec<Refund>, DbError> {
    let refunds = refunds!("WHERE refund_id = ANY($1)", ids);
    Ok(refunds.fetch_all(conn).await?)
}

/// The ids of the refunds of that number, of one merchant or of whichever; two already say that it is ambiguous.
pub(in crate::refunds) async fn list_ids_of_number(
    conn: &mut Conn,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
) -> Result<Vec<String>, DbError> {
    // What belongs to no merchant is nobody's number.
    let ids = sqlx::query_scalar!(
        "SELECT refund_id FROM refunds WHERE refund_no = $2 AND merchant_id = coalesce($1, merchant_id) LIMIT 2",
        merchant_id.map(MerchantId::as_str),
        refund_no.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// A page of refunds, newest first: those before `starting_after`, which is an id of the page before.
pub(in crate::refunds) async fn list_refunds(
    conn: &mut Conn,
    status: Option<RefundStatus>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Refund>, DbError> {
    let few = &[RefundStatus::AwaitingApproval, RefundStatus::Pending, RefundStatus::Processing];
    let mut query = StatePage { key: "refund_id", status, few, starting_after, limit }.of(
        "SELECT refund_id, refund_no, merchant_id, order_no, pay_order_id, stray_id, amount, currency, status, reason,
                failure, channel_refund_id, return_stock, asked_by, made_after_all_at
         FROM refunds",
    );
    Ok(query.build_query_as::<Refund>().fetch_all(conn).await?)
}
