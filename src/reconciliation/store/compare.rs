//! The two walks of comparing, and what they read.

use time::{Date, OffsetDateTime};

use super::runs::Claimed;
use crate::channels::StatementKind;
use crate::channels::bills::EDGE;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::money::Currency;

/// What a range of lines came to, and where it ended.
#[derive(Debug)]
pub(in crate::reconciliation) struct Compared {
    pub(in crate::reconciliation) kind: StatementKind,
    pub(in crate::reconciliation) currency: Currency,
    pub(in crate::reconciliation) lines: i64,
    pub(in crate::reconciliation) theirs: i64,
    pub(in crate::reconciliation) fees: i64,
    pub(in crate::reconciliation) differences: i64,
    pub(in crate::reconciliation) edges: i64,
    pub(in crate::reconciliation) last_kind: String,
    pub(in crate::reconciliation) last_channel_id: String,
    pub(in crate::reconciliation) last_line_no: i64,
}

/// What a stretch of time came to.
#[derive(Debug)]
pub(in crate::reconciliation) struct Walked {
    pub(in crate::reconciliation) kind: StatementKind,
    pub(in crate::reconciliation) currency: Currency,
    pub(in crate::reconciliation) our_count: i64,
    pub(in crate::reconciliation) ours: i64,
    pub(in crate::reconciliation) differences: i64,
    pub(in crate::reconciliation) edges: i64,
}

/// The last line of a range of so many from where the day stands; nothing where there are not so many.
pub(in crate::reconciliation) async fn end_of_range(
    conn: &mut Conn,
    run: &Claimed,
    limit: i64,
) -> Result<Option<(String, String, i64)>, DbError> {
    let end = sqlx::query!(
        "SELECT kind, channel_id, line_no FROM statement_lines
         WHERE reconciliation_id = $1 AND (kind, channel_id, line_no) > ($2, $3, $4)
         ORDER BY kind, channel_id, line_no OFFSET $5 LIMIT 1",
        run.reconciliation_id,
        run.after_kind,
        run.after_channel_id,
        run.after_line_no,
        limit - 1,
    );
    Ok(end.fetch_optional(conn).await?.map(|row| (row.kind, row.channel_id, row.line_no)))
}

/// The days beside one whose lines are here.
pub(in crate::reconciliation) struct Beside {
    pub(in crate::reconciliation) earlier: Vec<String>,
    pub(in crate::reconciliation) later: Vec<String>,
    pub(in crate::reconciliation) yesterday: Option<String>,
    pub(in crate::reconciliation) tomorrow: Option<String>,
    /// From when until when a movement that is missing there is missed by this day.
    pub(in crate::reconciliation) answers_for: (OffsetDateTime, OffsetDateTime),
}

/// Compares the next lines of the statement with ours; nothing when there are no more.
pub(in crate::reconciliation) async fn compare_lines(
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
    compared_at: OffsetDateTime,
    recorded_until: OffsetDateTime,
    beside: &Beside,
    now: OffsetDateTime,
) -> Result<Vec<Compared>, DbError> {
    let conn: &mut Conn = tx;
    let compared = sqlx::query_file_as!(
        Compared,
        "src/reconciliation/store/compare_lines.sql",
        run.reconciliation_id,
        run.after_kind,
        run.after_channel_id,
        run.after_line_no,
        limit,
        run.channel,
        compared_at,
        run.begins_at,
        run.ends_at,
        recorded_until,
        beside.yesterday.as_deref(),
        sqlx::postgres::types::PgInterval::try_from(EDGE)
            .map_err(|e| DbError::Other(sqlx::Error::Encode(e)))?,
        now,
        run.round,
        &beside.earlier,
        &beside.later,
        beside.tomorrow.as_deref(),
    )
    .fetch_all(conn)
    .await?;
    Ok(compared)
}

/// A stretch of time, and what the day answers for.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconciliation) struct Walk<'a> {
    pub(in crate::reconciliation) from: OffsetDateTime,
    pub(in crate::reconciliation) until: OffsetDateTime,
    pub(in crate::reconciliation) answers_from: OffsetDateTime,
    pub(in crate::reconciliation) answers_until: OffsetDateTime,
    pub(in crate::reconciliation) others: &'a [String],
}

/// Compares what was recorded here in a stretch of time with the statement.
pub(in crate::reconciliation) async fn walk_ours(
    tx: &mut Tx,
    run: &Claimed,
    walk: Walk<'_>,
    now: OffsetDateTime,
) -> Result<Vec<Walked>, DbError> {
    let conn: &mut Conn = tx;
    let walked = sqlx::query_file_as!(
        Walked,
        "src/reconciliation/store/walk_ours.sql",
        run.reconciliation_id,
        walk.others,
        run.channel,
        walk.from,
        walk.until,
        run.begins_at,
        run.ends_at,
        walk.answers_from,
        walk.answers_until,
        now,
        run.round,
    )
    .fetch_all(conn)
    .await?;
    Ok(walked)
}

/// Whether anything was paid here through a channel in a stretch of time, by the channel's clock where it says so.
pub(in crate::reconciliation) async fn has_payments(
    conn: &mut Conn,
    channel: &str,
    from: OffsetDateTime,
    until: OffsetDateTime,
    recorded_until: OffsetDateTime,
) -> Result<bool, DbError> {
    let has_some = sqlx::query_scalar!(
        r#"SELECT EXISTS (
                  SELECT 1 FROM trades AS trade
                  LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
                  LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
                  -- Found by their age, as they are walked.
                  WHERE (trade.channel = $1) IS TRUE AND trade.created_at >= $2 AND trade.created_at < $4
                    AND coalesce(stray.paid_at, attempt.paid_at) >= $2 AND coalesce(stray.paid_at, attempt.paid_at) < $3)
               AS "has_some!""#,
        channel,
        from,
        until,
        recorded_until,
    );
    Ok(has_some.fetch_one(conn).await?)
}

/// Whether anything was given back or sent out here through a channel on a day, in a stretch of time. What its statement of
/// another day lists moved on that one, however late it was recorded.
pub(in crate::reconciliation) async fn has_sent_out(
    conn: &mut Conn,
    (channel, day): (&str, Date),
    from: OffsetDateTime,
    until: OffsetDateTime,
) -> Result<bool, DbError> {
    let has_some = sqlx::query_scalar!(
        r#"WITH listed_elsewhere AS NOT MATERIALIZED (
               SELECT line.our_id FROM statement_lines AS line JOIN reconciliations USING (reconciliation_id)
               WHERE line.kind <> 'PAYMENT' AND reconciliations.channel = $1 AND reconciliations.day <> $4
                 -- Of a file that was refused nothing counts.
                 AND reconciliations.status IN ('MATCHING', 'ACTING', 'DONE'))
           SELECT EXISTS (
                  SELECT 1 FROM refunds AS refund
                  LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = refund.pay_order_id
                  LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
                  WHERE refund.channel_refund_id IS NOT NULL AND refund.updated_at >= $2 AND refund.updated_at < $3
                    AND (refund.status = 'SUCCEEDED' OR refund.made_after_all_at IS NOT NULL)
                    AND coalesce(attempt.channel, stray.channel) = $1
                    AND NOT EXISTS (SELECT 1 FROM listed_elsewhere WHERE our_id = refund.refund_id))
               OR EXISTS (
                  SELECT 1 FROM withdrawals
                  WHERE channel_payout_id IS NOT NULL AND (status = 'SUCCEEDED' OR returned_at IS NULL)
                    AND updated_at >= $2 AND updated_at < $3 AND channel = $1
                    AND NOT EXISTS (SELECT 1 FROM listed_elsewhere WHERE our_id = withdrawal_id))
               -- What went out once more is listed once more.
               OR EXISTS (
                  SELECT 1 FROM withdrawals
                  WHERE channel_payout_id IS NOT NULL AND (status = 'SUCCEEDED' OR returned_at IS NULL)
                    AND updated_at >= $2 AND updated_at < $3 AND channel = $1
                    AND returned_times - (returned_at IS NOT NULL)::integer > 0)
               AS "has_some!""#,
        channel,
        from,
        until,
        day,
    );
    Ok(has_some.fetch_one(conn).await?)
}

/// A payment of a statement.
#[derive(Debug)]
pub(in crate::reconciliation) struct ListedPayment {
    pub(in crate::reconciliation) channel_id: String,
    /// Our number of it, as the channel was given it.
    pub(in crate::reconciliation) our_id: String,
    pub(in crate::reconciliation) currency: Currency,
}

/// Whether any of these payments is known here, by the channel's number or by ours.
pub(in crate::reconciliation) async fn knows_any(
    conn: &mut Conn,
    channel: &str,
    payments: &[ListedPayment],
) -> Result<bool, DbError> {
    let knows_any = sqlx::query_scalar!(
        r#"SELECT (SELECT true FROM (SELECT unnest($2::text[]) AS channel_id, unnest($3::text[]) AS our_id) AS line
                   -- A look-up for each, with LIMIT: otherwise the planner would read all trades.
                   WHERE (SELECT true FROM trades WHERE channel = $1 AND transaction_id = line.channel_id LIMIT 1)
                      OR (SELECT true FROM pay_orders WHERE pay_order_id = line.our_id AND channel = $1 LIMIT 1)
                   LIMIT 1) IS NOT NULL AS "knows_any!""#,
        channel,
        &column(payments, |payment| payment.channel_id.as_str()) as &[&str],
        &column(payments, |payment| payment.our_id.as_str()) as &[&str],
    );
    Ok(knows_any.fetch_one(conn).await?)
}

/// Currencies of the same payments, here and in a statement.
#[derive(Debug)]
pub(in crate::reconciliation) struct OtherCurrencies {
    pub(in crate::reconciliation) ours: String,
    pub(in crate::reconciliation) theirs: String,
}

/// The currencies of payments of a statement, each by the channel's number of it, where none of those that are known here
/// has that in which it paid its order.
pub(in crate::reconciliation) async fn find_other_currencies(
    conn: &mut Conn,
    channel: &str,
    payments: &[ListedPayment],
) -> Result<Option<OtherCurrencies>, DbError> {
    let other = sqlx::query_as!(
        OtherCurrencies,
        r#"SELECT string_agg(DISTINCT attempt.currency, ', ') AS "ours!", string_agg(DISTINCT line.currency, ', ') AS "theirs!"
           FROM (SELECT unnest($2::text[]) AS channel_id, unnest($3::text[]) AS currency) AS line
           -- A look-up for each, with LIMIT: otherwise the planner would read all trades. What is stray may be told wrong here.
           CROSS JOIN LATERAL (SELECT pay_order_id FROM trades
                               WHERE channel = $1 AND transaction_id = line.channel_id AND stray_id IS NULL LIMIT 1) AS trade
           CROSS JOIN LATERAL (SELECT currency FROM pay_orders
                               WHERE pay_orders.pay_order_id = trade.pay_order_id LIMIT 1) AS attempt
           HAVING bool_and(attempt.currency <> line.currency)"#,
        channel,
        &column(payments, |payment| payment.channel_id.as_str()) as &[&str],
        &column(payments, |payment| payment.currency.as_str()) as &[&str],
    );
    Ok(other.fetch_optional(conn).await?)
}
