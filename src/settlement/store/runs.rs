//! Runs, and what they walk.

use serde_json::Value;
use time::OffsetDateTime;

use crate::ids::{MerchantId, OrderNo, SettlementRunId};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::money::Currency;
use crate::orders::OrderKey;
use crate::settlement::model::{RunStatus, Settlement, SettlementRun, Waiting};

/// Where a run stands, for who took it.
#[derive(Debug)]
pub(in crate::settlement) struct Position {
    pub(in crate::settlement) run_id: SettlementRunId,
    pub(in crate::settlement) merchant_id: Option<MerchantId>,
    pub(in crate::settlement) paid_before: OffsetDateTime,
    pub(in crate::settlement) status: RunStatus,
    pub(in crate::settlement) after_paid_at: OffsetDateTime,
    pub(in crate::settlement) after_merchant_id: String,
    pub(in crate::settlement) after_order_no: String,
    /// When it moved on last.
    pub(in crate::settlement) moved_at: OffsetDateTime,
    version: i32,
}

/// Orders that come next, in the order of their payment.
#[derive(Debug)]
pub(in crate::settlement) struct Page {
    /// Those that the run is for.
    pub(in crate::settlement) orders: Vec<OrderKey>,
    /// The next page begins behind it: the last of these, or the last one looked at, whoever's it is.
    pub(in crate::settlement) last: Option<(OrderKey, OffsetDateTime)>,
    /// Whether there may be more behind it.
    pub(in crate::settlement) has_more: bool,
}

/// Orders that are looked at, whoever's they are, to say what there is to settle.
const MOST_COUNTED: i64 = 1_000_000;

/// What there is to settle, by currency, of one merchant or of all, among the oldest million orders of everybody; and
/// whether there may be more behind those.
pub(in crate::settlement) async fn waiting(
    conn: &mut Conn,
    merchant_id: Option<&MerchantId>,
    paid_before: OffsetDateTime,
) -> Result<(Vec<Waiting>, bool), DbError> {
    let rows = sqlx::query!(
        r#"SELECT currency AS "currency!: Currency", count(*) AS "looked_at!",
                  count(*) FILTER (WHERE is_wanted) AS "orders!",
                  coalesce(sum(amount - refunded_amount) FILTER (WHERE is_wanted), 0)::bigint AS "amount!"
           -- Whose they are is asked behind the limit, which bounds what is looked at and not only what is found; and in
           -- the order of the index, so that nothing is read past it.
           FROM (SELECT currency, amount, refunded_amount, ($2::text IS NULL OR merchant_id = $2) AS is_wanted
                 FROM orders
                 WHERE settle_status = 'UNSETTLED' AND kind = 'SALE' AND status IN ('PAID', 'PARTIALLY_REFUNDED')
                   AND paid_at < $1
                 ORDER BY paid_at, merchant_id, order_no LIMIT $3) AS entry
           GROUP BY currency ORDER BY currency"#,
        paid_before,
        merchant_id.map(MerchantId::as_str),
        MOST_COUNTED,
    )
    .fetch_all(conn)
    .await?;
    let looked_at: i64 = rows.iter().map(|row| row.looked_at).sum();
    let wanted = rows.into_iter().filter(|row| row.orders > 0);
    let waiting =
        wanted.map(|row| Waiting { currency: row.currency, orders: row.orders, amount: row.amount });
    Ok((waiting.collect(), looked_at >= MOST_COUNTED))
}

/// Writes a new run.
pub(in crate::settlement) async fn insert_run(
    conn: &mut Conn,
    run_id: &SettlementRunId,
    merchant_id: Option<&MerchantId>,
    paid_before: OffsetDateTime,
    expected: Option<i64>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO settlement_runs (run_id, merchant_id, paid_before, expected, leased_until, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $5, $5)",
        run_id.as_str(),
        merchant_id.map(MerchantId::as_str),
        paid_before,
        expected,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A page of runs, newest first; or the one of that id.
pub(in crate::settlement) async fn list_runs(
    conn: &mut Conn,
    run_id: Option<&SettlementRunId>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<SettlementRun>, DbError> {
    let runs = sqlx::query_as!(
        SettlementRun,
        r#"SELECT run_id AS "run_id: SettlementRunId", merchant_id AS "merchant_id: MerchantId", paid_before,
                  status AS "status: RunStatus", expected, settled, skipped, commissions AS "commissions: Value",
                  last_error, created_at, finished_at
           FROM settlement_runs
           WHERE ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR run_id < $2)
           ORDER BY run_id DESC LIMIT $3"#,
        run_id.map(SettlementRunId::as_str),
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(runs)
}

/// Takes an open run that nobody holds, until `until`. It has not moved on by that: `updated_at` says when it did last.
pub(in crate::settlement) async fn claim(
    conn: &mut Conn,
    until: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Option<Position>, DbError> {
    let run = sqlx::query_as!(
        Position,
        r#"UPDATE settlement_runs SET leased_until = $2, version = version + 1
           WHERE run_id = (SELECT run_id FROM settlement_runs WHERE status = 'RUNNING' AND leased_until <= $1
                           ORDER BY leased_until LIMIT 1 FOR UPDATE SKIP LOCKED)
           RETURNING run_id AS "run_id: SettlementRunId", merchant_id AS "merchant_id: MerchantId", paid_before,
                     status AS "status: RunStatus", after_paid_at, after_merchant_id, after_order_no,
                     updated_at AS moved_at, version"#,
        now,
        until,
    )
    .fetch_optional(conn)
    .await?;
    Ok(run)
}

/// Keeps a run until `until` for who took it. `false` when somebody else has taken it meanwhile.
pub(in crate::settlement) async fn renew(
    conn: &mut Conn,
    run: &Position,
    until: OffsetDateTime,
) -> Result<bool, DbError> {
    let kept = sqlx::query!(
        "UPDATE settlement_runs SET leased_until = $3 WHERE run_id = $1 AND version = $2",
        run.run_id.as_str(),
        run.version,
        until,
    )
    .execute(conn)
    .await?;
    Ok(kept.rows_affected() == 1)
}

/// The next orders that a run is for, `limit` at most, among the next `look` of everybody.
pub(in crate::settlement) async fn list_page(
    conn: &mut Conn,
    run: &Position,
    limit: usize,
    look: i64,
) -> Result<Page, DbError> {
    let rows = sqlx::query!(
        r#"SELECT merchant_id AS "merchant_id!: MerchantId", order_no AS "order_no!: OrderNo", paid_at AS "paid_at!",
                  is_wanted AS "is_wanted!", place = $6 AS "is_end_of_look!"
           FROM (SELECT merchant_id, order_no, paid_at, ($5::text IS NULL OR merchant_id = $5) AS is_wanted,
                        row_number() OVER (ORDER BY paid_at, merchant_id, order_no) AS place
                 -- Nothing but what the index holds. Whose they are is asked behind the limit, which bounds what is
                 -- looked at and not only what is found.
                 FROM (SELECT merchant_id, order_no, paid_at FROM orders
                       WHERE settle_status = 'UNSETTLED' AND kind = 'SALE'
                         AND status IN ('PAID', 'PARTIALLY_REFUNDED')
                         AND paid_at < $1 AND (paid_at, merchant_id, order_no) > ($2, $3, $4)
                       ORDER BY paid_at, merchant_id, order_no LIMIT $6) AS entry) AS looked_at
           -- The end of a full look as well: a run goes on behind it, also where nothing of the look is wanted. The limit
           -- ends the look early where a page is full before.
           WHERE is_wanted OR place = $6
           ORDER BY paid_at, merchant_id, order_no LIMIT $7"#,
        run.paid_before,
        run.after_paid_at,
        run.after_merchant_id,
        run.after_order_no,
        run.merchant_id.as_ref().map(MerchantId::as_str),
        look,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(conn)
    .await?;
    let has_more = rows.len() >= limit || rows.last().is_some_and(|row| row.is_end_of_look);
    let last = rows.last().map(|row| {
        let key = OrderKey { merchant_id: row.merchant_id.clone(), order_no: row.order_no.clone() };
        (key, row.paid_at)
    });
    let wanted = rows.into_iter().filter(|row| row.is_wanted);
    let orders = wanted.map(|row| OrderKey { merchant_id: row.merchant_id, order_no: row.order_no });
    Ok(Page { orders: orders.collect(), last, has_more })
}

/// So many orders of a merchant that are settled, at most.
pub(in crate::settlement) async fn list_settled(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    limit: i64,
) -> Result<Vec<OrderKey>, DbError> {
    let found = sqlx::query_as!(
        OrderKey,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo"
           FROM settlements WHERE merchant_id = $1 ORDER BY merchant_id DESC, order_no DESC LIMIT $2"#,
        merchant_id.as_str(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(found)
}

/// An order that is settled, whoever's it is.
pub(in crate::settlement) async fn find_settled(conn: &mut Conn) -> Result<Option<OrderKey>, DbError> {
    let found = sqlx::query_as!(
        OrderKey,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo"
           FROM settlements ORDER BY merchant_id DESC, order_no DESC LIMIT 1"#,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found)
}

/// Counts what a batch settled, in its own transaction: a run that is taken up again counts nothing twice.
pub(in crate::settlement) async fn add_settled<'a>(
    tx: &mut Tx,
    run: &Position,
    settled: impl Iterator<Item = &'a Settlement>,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let (currencies, commissions): (Vec<&str>, Vec<i64>) =
        settled.map(|settlement| (settlement.currency.as_str(), settlement.commission)).unzip();
    expect_one_row(
        &sqlx::query!(
            r#"UPDATE settlement_runs
               SET settled = settled + cardinality($2::text[]),
                   commissions = (
                       SELECT coalesce(jsonb_object_agg(currency, amount), '{}')
                       FROM (SELECT currency, sum(amount) AS amount
                             FROM (SELECT key AS currency, value::numeric AS amount FROM jsonb_each_text(commissions)
                                   UNION ALL
                                   SELECT unnest($2::text[]), unnest($3::bigint[])) AS part
                             GROUP BY currency) AS total)
               WHERE run_id = $1"#,
            run.run_id.as_str(),
            &currencies as &[&str],
            &commissions,
        )
        .execute(conn)
        .await?,
    )
}

/// Moves a run behind its page and lets it go. `false` when somebody else has taken it meanwhile.
pub(in crate::settlement) async fn advance(
    conn: &mut Conn,
    run: &Position,
    last: Option<&(OrderKey, OffsetDateTime)>,
    skipped: i64,
    to: RunStatus,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let moved = sqlx::query!(
        "UPDATE settlement_runs
         SET after_paid_at = coalesce($4, after_paid_at), after_merchant_id = coalesce($5, after_merchant_id),
             after_order_no = coalesce($6, after_order_no), skipped = skipped + $7, status = $8, last_error = NULL,
             finished_at = CASE WHEN $8 = 'DONE' THEN $9::timestamptz END, leased_until = $9, updated_at = $9,
             version = version + 1
         WHERE run_id = $1 AND status = $2 AND version = $3",
        run.run_id.as_str(),
        run.status.as_str(),
        run.version,
        last.map(|(_, paid_at)| *paid_at),
        last.map(|(key, _)| key.merchant_id.as_str()),
        last.map(|(key, _)| key.order_no.as_str()),
        skipped,
        to.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// Notes why a run cannot go on now, and lets it rest until `until`.
pub(in crate::settlement) async fn note_error(
    conn: &mut Conn,
    run: &Position,
    error: &str,
    until: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE settlement_runs
         SET last_error = $3, leased_until = $4,
             -- So that a renewal which is still on its way keeps nothing.
             version = version + 1
         WHERE run_id = $1 AND version = $2",
        run.run_id.as_str(),
        run.version,
        error,
        until,
    )
    .execute(conn)
    .await?;
    Ok(())
}
