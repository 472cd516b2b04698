//! The rows of `stray_payments` and `refunds`.

use time::OffsetDateTime;

use super::model::{NewStray, Refund, RefundStatus, StrayEvent, StrayPayment, StrayReason, StrayStatus};
use crate::ids::{RefundId, StrayId};
use crate::infra::db::{Conn, DbError, StatePage, Tx, expect_one_row};
use crate::money::Currency;
use crate::orders::OrderKey;

mod ask;
mod asked;
mod begin;
mod facts;
mod succeed;

pub(super) use asked::{find_by_number, is_stock_wanted_back, list_ids_of_number, list_refunds, sum_let_go};
pub(super) use begin::{Begin, FindHeld};
pub(super) use facts::{Facts, FindFacts};

/// Every column of a refund, of what follows.
macro_rules! refunds {
    ($tail:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Refund,
            r#"SELECT refund_id, refund_no, merchant_id, order_no, pay_order_id, stray_id, amount,
                      currency AS "currency: Currency", status AS "status: RefundStatus", reason, failure,
                      channel_refund_id, return_stock, asked_by, made_after_all_at
               FROM refunds "# + $tail,
            $($argument),+
        )
    };
}
use refunds;

/// Every column of a stray payment, of what follows.
macro_rules! strays {
    ($tail:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            StrayPayment,
            r#"SELECT stray_id, channel, transaction_id, out_trade_no, pay_order_id, merchant_id, order_no, amount,
                      currency AS "currency: Currency", reason AS "reason: StrayReason",
                      status AS "status: StrayStatus", paid_at
               FROM stray_payments "# + $tail,
            $($argument),+
        )
    };
}

/// Writes stray money down; the primary key of `trades` refuses the same money twice, be it stray or not.
pub(super) async fn insert_stray(
    tx: &mut Tx,
    stray_id: &StrayId,
    new: &NewStray<'_>,
    now: OffsetDateTime,
) -> Result<StrayPayment, DbError> {
    let conn: &mut Conn = tx;
    let pay_order_id = new.order.map(|_| new.out_trade_no);
    sqlx::query!(
        "WITH trade AS (
             INSERT INTO trades (channel, transaction_id, stray_id, created_at) VALUES ($2, $3, $1, $12)
         )
         INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, pay_order_id, merchant_id,
                                     order_no, amount, currency, reason, paid_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)",
        stray_id.as_str(),
        new.channel,
        new.payment.transaction_id,
        new.out_trade_no,
        pay_order_id,
        new.order.map(|key| key.merchant_id.as_str()),
        new.order.map(|key| key.order_no.as_str()),
        new.payment.money.amount.minor(),
        new.payment.money.currency.as_str(),
        new.reason.as_str(),
        new.payment.paid_at,
        now,
    )
    .execute(conn)
    .await?;
    Ok(StrayPayment {
        stray_id: stray_id.to_string(),
        channel: new.channel.to_owned(),
        transaction_id: new.payment.transaction_id.clone(),
        out_trade_no: new.out_trade_no.to_owned(),
        pay_order_id: pay_order_id.map(str::to_owned),
        merchant_id: new.order.map(|key| key.merchant_id.to_string()),
        order_no: new.order.map(|key| key.order_no.to_string()),
        amount: new.payment.money.amount.minor(),
        currency: new.payment.money.currency,
        reason: new.reason,
        status: StrayStatus::Held,
        paid_at: new.payment.paid_at,
    })
}

/// Moves a locked stray payment along its table.
pub(super) async fn move_stray(
    tx: &mut Tx,
    stray: &StrayPayment,
    from: StrayStatus,
    event: StrayEvent,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let to = from.after(event).ok_or(DbError::UnexpectedRows(0))?;
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE stray_payments SET status = $3, updated_at = $4 WHERE stray_id = $1 AND status = $2",
            stray.stray_id,
            from.as_str(),
            to.as_str(),
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Writes the refund of a whole stray payment. The service allots the number: nobody asked under one.
pub(super) async fn insert_stray_refund(
    tx: &mut Tx,
    refund_id: &RefundId,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, stray_id, amount, currency, reason,
                              created_at, updated_at)
         VALUES ($1, $2, $1, $3, $4, $5, $6, $7, $8, $8)",
        refund_id.as_str(),
        stray.merchant_id,
        stray.order_no,
        stray.stray_id,
        stray.amount,
        stray.currency.as_str(),
        stray.reason.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes the end of a locked refund.
pub(super) async fn set_result(
    tx: &mut Tx,
    refund: &Refund,
    to: RefundStatus,
    channel_refund_id: Option<&str>,
    failure: Option<&str>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE refunds
             -- The channel's number stays where the refund is taken back.
             SET status = $3, channel_refund_id = coalesce($4, channel_refund_id), failure = $5,
                 version = version + 1, updated_at = $6
             WHERE refund_id = $1 AND status = $2",
            refund.refund_id,
            refund.status.as_str(),
            to.as_str(),
            channel_refund_id,
            failure,
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Notes of a locked refund that failed by which number the channel made it all the same, and since when it is known to have,
/// where it has not taken that back. Gives how often that was so.
pub(super) async fn set_made_after_all(
    tx: &mut Tx,
    refund: &Refund,
    channel_refund_id: &str,
    made_at: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<i32, DbError> {
    let conn: &mut Conn = tx;
    let times = sqlx::query_scalar!(
        "UPDATE refunds
         SET channel_refund_id = $2, made_after_all_at = $3, version = version + 1, updated_at = $4,
             made_after_all_times = made_after_all_times + CASE WHEN $3::timestamptz IS NULL THEN 0 ELSE 1 END
         WHERE refund_id = $1 AND status = 'FAILED' AND made_after_all_at IS NULL
         RETURNING made_after_all_times",
        refund.refund_id,
        channel_refund_id,
        made_at,
        now,
    );
    times.fetch_optional(conn).await?.ok_or(DbError::UnexpectedRows(0))
}

/// Notes of a locked refund, which was made after all, that it is so no more: its channel took it back, or it was not made, and then
/// the number by which that was told counts no more, unless it had succeeded at first. Gives how often it was found to be made.
pub(super) async fn set_not_made(
    tx: &mut Tx,
    refund: &Refund,
    is_taken_back: bool,
    now: OffsetDateTime,
) -> Result<i32, DbError> {
    let conn: &mut Conn = tx;
    let times = sqlx::query_scalar!(
        "UPDATE refunds
         SET made_after_all_at = NULL, version = version + 1, updated_at = $3,
             channel_refund_id = CASE
                 WHEN $2 OR EXISTS (SELECT 1 FROM refund_history AS made
                                    WHERE made.refund_id = $1 AND to_status = 'SUCCEEDED')
                 THEN channel_refund_id END
         WHERE refund_id = $1 AND status = 'FAILED' AND made_after_all_at IS NOT NULL
         RETURNING made_after_all_times",
        refund.refund_id,
        is_taken_back,
        now,
    );
    times.fetch_optional(conn).await?.ok_or(DbError::UnexpectedRows(0))
}

/// How often a refund was found to be made after it had failed.
pub(super) async fn times_made_after_all(conn: &mut Conn, refund_id: &str) -> Result<i32, DbError> {
    let times =
        sqlx::query_scalar!("SELECT made_after_all_times FROM refunds WHERE refund_id = $1", refund_id);
    Ok(times.fetch_optional(conn).await?.unwrap_or(0))
}

/// Whether a locked stray payment went back by a refund that stands failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    /// The channel made it after all.
    pub(super) is_known: bool,
    /// It is known, or something says so, and a person is shown that.
    pub(super) is_possible: bool,
}

/// Whether a locked stray payment went back by a refund that the channel made after all, or may have.
pub(super) async fn find_gone_after_all(tx: &mut Tx, stray_id: &str) -> Result<Gone, DbError> {
    let conn: &mut Conn = tx;
    let gone = sqlx::query_as!(
        Gone,
        r#"SELECT count(made_after_all_at) > 0 AS "is_known!",
                  coalesce(bool_or(may_have_gone(refund_id, made_after_all_at)), false) AS "is_possible!"
           FROM refunds WHERE stray_id = $1"#,
        stray_id,
    );
    Ok(gone.fetch_one(conn).await?)
}

/// The refund of that id.
pub(super) async fn find_refund(conn: &mut Conn, refund_id: &str) -> Result<Option<Refund>, DbError> {
    let refund = refunds!("WHERE refund_id = $1", refund_id);
    Ok(refund.fetch_optional(conn).await?)
}

/// Locks a stray payment; its refunds come to their ends only under this lock.
pub(super) async fn lock_stray(tx: &mut Tx, stray_id: &str) -> Result<Option<StrayPayment>, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SELECT 1 AS one FROM stray_payments WHERE stray_id = $1 FOR UPDATE", stray_id)
        .fetch_optional(&mut *conn)
        .await?;
    find_stray(conn, stray_id).await
}

pub(super) async fn find_stray(conn: &mut Conn, stray_id: &str) -> Result<Option<StrayPayment>, DbError> {
    let stray = strays!("WHERE stray_id = $1", stray_id);
    Ok(stray.fetch_optional(conn).await?)
}

/// Locks a refund, after what it gives back.
pub(crate) async fn lock_refund(tx: &mut Tx, refund_id: &str) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SELECT 1 AS one FROM refunds WHERE refund_id = $1 FOR UPDATE", refund_id)
        .fetch_optional(conn)
        .await?;
    Ok(())
}

/// A page of an order's refunds, newest first.
pub(crate) async fn list_of_order(
    conn: &mut Conn,
    key: &OrderKey,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Refund>, DbError> {
    let page = refunds!(
        // In words that no index has: no plan goes through all refunds, newest first, until it has met enough of this order.
        "WHERE merchant_id = $1 AND order_no = $2 AND ($3::text IS NULL OR refund_id < $3)
         ORDER BY refund_id || '' DESC LIMIT $4",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        starting_after,
        limit,
    );
    Ok(page.fetch_all(conn).await?)
}

/// The last stray payments of an order, oldest first.
pub(crate) async fn list_strays_of_order(
    conn: &mut Conn,
    key: &OrderKey,
    limit: i64,
) -> Result<Vec<StrayPayment>, DbError> {
    let latest_first = strays!(
        "WHERE merchant_id = $1 AND order_no = $2 ORDER BY created_at DESC, stray_id DESC LIMIT $3",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        limit,
    );
    let mut strays = latest_first.fetch_all(conn).await?;
    strays.reverse();
    Ok(strays)
}

/// A page of stray payments, newest first: those before `starting_after`, which is an id of the page before.
pub(super) async fn list_strays(
    conn: &mut Conn,
    status: Option<StrayStatus>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<StrayPayment>, DbError> {
    let few = &[StrayStatus::Held, StrayStatus::Refunding];
    let mut query = StatePage { key: "stray_id", status, few, starting_after, limit }.of(
        "SELECT stray_id, channel, transaction_id, out_trade_no, pay_order_id, merchant_id, order_no, amount, currency,
                reason, status, paid_at
         FROM stray_payments",
    );
    Ok(query.build_query_as::<StrayPayment>().fetch_all(conn).await?)
}
