//! `sandbox.trades`.

use time::OffsetDateTime;

use crate::channels::sandbox::faults::{ClaimedFault, FaultKind};
use crate::channels::sandbox::protocol::Create;
use crate::channels::sandbox::trades::{Trade, TradeStatus};
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError, expect_one_row};
use crate::money::Currency;

/// Whether a fault of `create` may stand in the way of opening a trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// One that waits is used up, and no trade is opened.
    Heeded,
    /// The trade is opened whatever waits: the fault of this call was met already.
    Ignored,
}

/// What came of the one statement that opens a trade.
#[derive(Debug)]
pub(crate) struct Opening {
    /// When the new trade expires; nothing when no row was made.
    pub(crate) expires_at: Option<OffsetDateTime>,
    /// A fault that stood in the way and is now used up.
    pub(crate) fault: Option<ClaimedFault>,
}

/// Opens a trade, unless its id is taken or a heeded fault waits, which is used up instead. One round trip,
/// because every pay link costs it.
pub(crate) async fn open(
    conn: &mut Conn,
    trade: &Create,
    expires_at: OffsetDateTime,
    faults: Faults,
    now: OffsetDateTime,
) -> Result<Opening, DbError> {
    let row = sqlx::query!(
        r#"WITH
           -- This commit does not wait for the disk. A crash of PostgreSQL can lose only a trade that nobody
           -- could pay yet: the caller hands its link out after a commit of its own, which is flushed, and
           -- flushing the log flushes everything before it; so does the flushed commit of any payment. (Where
           -- the caller's database is another server, a link may be lost here: its page then knows no such
           -- payment and a query says unseen, but money is never lost.)
           relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
           claimed AS (
               UPDATE sandbox.faults SET times_left = times_left - 1, updated_at = $10
               WHERE $9 AND op = 'create'
                 AND fault = (SELECT fault FROM sandbox.faults
                              WHERE op = 'create' AND times_left > 0
                              ORDER BY created_at, fault
                              LIMIT 1
                              FOR UPDATE)
               RETURNING fault, ms
           ),
           opened AS (
               INSERT INTO sandbox.trades (pay_order_id, amount, currency, subject, payer_id, return_url,
                                           notify_url, status, expires_at, created_at, updated_at)
               SELECT $1, $2, $3, $4, $5, $6, $7, 'OPEN', $8, $10, $10
               FROM relaxed
               WHERE NOT EXISTS (SELECT FROM claimed)
               ON CONFLICT ON CONSTRAINT sandbox_trades_pkey DO NOTHING
               RETURNING expires_at
           )
           SELECT opened.expires_at AS "expires_at?", claimed.fault AS "fault?: FaultKind", claimed.ms AS "ms?"
           FROM (VALUES (1)) AS always_one_row
           LEFT JOIN opened ON true
           LEFT JOIN claimed ON true"#,
        trade.pay_order_id.as_str(),
        trade.amount.minor(),
        trade.currency.as_str(),
        trade.subject,
        trade.payer_id,
        trade.return_url,
        trade.notify_url,
        expires_at,
        faults == Faults::Heeded,
        now,
    )
    .fetch_one(conn)
    .await?;
    let fault = row.fault.zip(row.ms).map(|(kind, ms)| ClaimedFault::new(kind, ms));
    Ok(Opening { expires_at: row.expires_at, fault })
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
