//! `sandbox.trades`.

use std::collections::HashSet;

use time::OffsetDateTime;

use crate::channels::sandbox::protocol::Create;
use crate::channels::sandbox::trades::{Trade, TradeStatus};
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError, expect_one_row};
use crate::infra::gather::{Command, Patience, column};
use crate::money::Currency;

/// Opens a trade, unless its id is taken. While any fault of `create` waits nothing is opened here: see
/// [`open_past_faults`]. Gathered, because every pay link costs it.
///
/// This commit does not wait for the disk. A crash of PostgreSQL can lose only a trade that nobody could pay yet:
/// the caller hands its link out after a commit of its own, which is flushed, and flushing the log flushes
/// everything before it; so does the flushed commit of any payment. (Where the caller's database is another
/// server, a link may be lost here: its page then knows no such payment and a query says unseen, but money is
/// never lost.)
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) trade: Create,
    pub(crate) expires_at: OffsetDateTime,
    pub(crate) now: OffsetDateTime,
}

/// What came of opening a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It is there now.
    New,
    /// Its id was taken.
    Taken,
    /// A fault waits for a call.
    FaultWaits,
}

impl Command for Open {
    const NAME: &'static str = "sandbox.open";
    type Outcome = Opening;

    fn order(&self) -> Option<String> {
        Some(self.trade.pay_order_id.to_string())
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Opening>, DbError> {
        let rows = sqlx::query!(
            r#"WITH relaxed AS MATERIALIZED (
                 SELECT set_config('synchronous_commit', 'off', true)
               ), fault AS MATERIALIZED (
                 SELECT EXISTS (SELECT FROM sandbox.faults WHERE op = 'create' AND times_left > 0) AS waits
               ), opened AS (
                 INSERT INTO sandbox.trades (pay_order_id, amount, currency, subject, payer_id, return_url,
                                             notify_url, status, expires_at, created_at, updated_at)
                 SELECT new.pay_order_id, amount, currency, subject, payer_id, return_url, notify_url, 'OPEN',
                        expires_at, now, now
                 FROM (SELECT unnest($1::text[]) AS pay_order_id, unnest($2::bigint[]) AS amount,
                              unnest($3::text[]) AS currency, unnest($4::text[]) AS subject,
                              unnest($5::text[]) AS payer_id, unnest($6::text[]) AS return_url,
                              unnest($7::text[]) AS notify_url, unnest($8::timestamptz[]) AS expires_at,
                              unnest($9::timestamptz[]) AS now) AS new, relaxed, fault
                 WHERE NOT fault.waits
                 ON CONFLICT ON CONSTRAINT sandbox_trades_pkey DO NOTHING
                 RETURNING pay_order_id
               )
               SELECT fault.waits AS "waits!", opened.pay_order_id AS "pay_order_id?"
               FROM fault LEFT JOIN opened ON true"#,
            &column(batch, |new| new.trade.pay_order_id.as_str()) as &[&str],
            &column(batch, |new| new.trade.amount.minor()),
            &column(batch, |new| new.trade.currency.as_str()) as &[&str],
            &column(batch, |new| new.trade.subject.as_str()) as &[&str],
            &column(batch, |new| new.trade.payer_id.as_str()) as &[&str],
            &column(batch, |new| new.trade.return_url.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.trade.notify_url.as_str()) as &[&str],
            &column(batch, |new| new.expires_at),
            &column(batch, |new| new.now),
        )
        .fetch_all(conn)
        .await?;
        let waits = rows.iter().any(|row| row.waits);
        let opened: HashSet<String> = rows.into_iter().filter_map(|row| row.pay_order_id).collect();
        Ok(column(batch, |new| match opened.contains(new.trade.pay_order_id.as_str()) {
            true => Opening::New,
            false if waits => Opening::FaultWaits,
            false => Opening::Taken,
        }))
    }
}

/// Opens a trade, unless its id is taken, whatever faults wait: the fault of this call was met already.
pub(crate) async fn open_past_faults(conn: &mut Conn, new: &Open) -> Result<Opening, DbError> {
    let opened = sqlx::query!(
        "INSERT INTO sandbox.trades (pay_order_id, amount, currency, subject, payer_id, return_url, notify_url,
                                     status, expires_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'OPEN', $8, $9, $9)
         ON CONFLICT ON CONSTRAINT sandbox_trades_pkey DO NOTHING",
        new.trade.pay_order_id.as_str(),
        new.trade.amount.minor(),
        new.trade.currency.as_str(),
        new.trade.subject,
        new.trade.payer_id,
        new.trade.return_url,
        new.trade.notify_url,
        new.expires_at,
        new.now,
    )
    .execute(conn)
    .await?;
    Ok(if opened.rows_affected() == 1 { Opening::New } else { Opening::Taken })
}

pub(crate) async fn find(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Option<Trade>, DbError> {
    Ok(sqlx::query_as!(
        Trade,
        r#"SELECT pay_order_id AS "pay_order_id: PayOrderId", amount, currency AS "currency: Currency", subject,
                  payer_id, return_url, notify_url, status AS "status: TradeStatus", expires_at, created_at
           FROM sandbox.trades
           WHERE pay_order_id = $1"#,
        pay_order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

pub(crate) async fn lock(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Option<Trade>, DbError> {
    Ok(sqlx::query_as!(
        Trade,
        r#"SELECT pay_order_id AS "pay_order_id: PayOrderId", amount, currency AS "currency: Currency", subject,
                  payer_id, return_url, notify_url, status AS "status: TradeStatus", expires_at, created_at
           FROM sandbox.trades
           WHERE pay_order_id = $1
           -- Leaves the key free, so that rows that refer to the trade can be written meanwhile.
           FOR NO KEY UPDATE"#,
        pay_order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

pub(crate) async fn set_status(
    conn: &mut Conn,
    trade: &Trade,
    status: TradeStatus,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "UPDATE sandbox.trades SET status = $3, updated_at = $4 WHERE pay_order_id = $1 AND status = $2",
            trade.pay_order_id.as_str(),
            trade.status.as_str(),
            status.as_str(),
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Closes a trade if it is open, and says whether it was.
pub(crate) async fn close_open(
    conn: &mut Conn,
    pay_order_id: &PayOrderId,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let closed = sqlx::query!(
        "UPDATE sandbox.trades SET status = 'CLOSED', updated_at = $2 WHERE pay_order_id = $1 AND status = 'OPEN'",
        pay_order_id.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(closed.rows_affected() == 1)
}
