//! The rows of `statement_lines`.

use time::format_description::well_known::Rfc3339;
use time::{Date, OffsetDateTime};

use super::compare::ListedPayment;
use super::runs::Claimed;
use crate::channels::StatementLine;
use crate::infra::db::copy::push_cell;
use crate::infra::db::{Conn, DbError, Tx};
use crate::money::Currency;
use crate::reconciliation::model::Item;

const COPY: &str =
    "COPY statement_lines (reconciliation_id, line_no, kind, our_id, channel_id, amount, currency, fee,
                                          is_final, at) FROM STDIN";

/// Adds lines behind those that are there.
pub(in crate::reconciliation) async fn copy_lines(
    tx: &mut Tx,
    reconciliation_id: &str,
    first_line_no: i64,
    lines: &[StatementLine],
) -> Result<(), DbError> {
    let mut rows = Vec::with_capacity(lines.len() * 160);
    for (line_no, line) in (first_line_no..).zip(lines) {
        let at =
            line.at.format(&Rfc3339).map_err(|error| DbError::Other(sqlx::Error::Encode(Box::new(error))))?;
        let cells = [
            reconciliation_id,
            &line_no.to_string(),
            line.kind.as_str(),
            &line.our_id,
            &line.channel_id,
            &line.amount.to_string(),
            line.currency.as_str(),
            &line.fee.to_string(),
            if line.is_final { "t" } else { "f" },
            &at,
        ];
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                rows.push(b'\t');
            }
            push_cell(&mut rows, cell);
        }
        rows.push(b'\n');
    }
    tx.copy_in(COPY, rows).await?;
    Ok(())
}

/// So many payments of a day's statement, at most.
pub(in crate::reconciliation) async fn list_payments(
    conn: &mut Conn,
    run: &Claimed,
    limit: i64,
) -> Result<Vec<ListedPayment>, DbError> {
    let payments = sqlx::query_as!(
        ListedPayment,
        r#"SELECT channel_id, our_id, currency AS "currency: Currency" FROM statement_lines
           WHERE reconciliation_id = $1 AND kind = 'PAYMENT' ORDER BY channel_id, line_no LIMIT $2"#,
        run.reconciliation_id,
        limit,
    );
    Ok(payments.fetch_all(conn).await?)
}

/// Whether the day's statement lists a refund of ours as made, and none lists that it came back.
pub(in crate::reconciliation) async fn stands_there(conn: &mut Conn, item: &Item) -> Result<bool, DbError> {
    let stands = sqlx::query_scalar!(
        // Found by our number alone: by their day or kind a plan would read all of those.
        r#"SELECT coalesce(bool_or((kind = 'REFUND' AND is_final AND reconciliation_id = $2) IS TRUE), false)
                  AND NOT coalesce(bool_or((kind = 'REFUND_REVERSAL') IS TRUE), false) AS "stands!"
           FROM statement_lines WHERE our_id = $1 AND kind <> 'PAYMENT'"#,
        item.our_id,
        item.reconciliation_id,
    );
    Ok(stands.fetch_one(conn).await?)
}

/// Takes lines out of a day that waits for its statement and is the worker's, so many at most. Gives how many: none where
/// somebody else has the day, whose lines they are.
pub(in crate::reconciliation) async fn delete_lines(
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
) -> Result<u64, DbError> {
    let conn: &mut Conn = tx;
    let held = sqlx::query!(
        "SELECT reconciliation_id FROM reconciliations
         WHERE reconciliation_id = $1 AND version = $2 AND status = 'OPEN' FOR UPDATE",
        run.reconciliation_id,
        run.version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    if held.is_none() {
        return Ok(0);
    }
    let deleted = sqlx::query!(
        "DELETE FROM statement_lines
         WHERE ctid = ANY(ARRAY(SELECT ctid FROM statement_lines WHERE reconciliation_id = $1 LIMIT $2))",
        run.reconciliation_id,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}

/// Forgets the days that were done before an instant, but for those beside one that is under way, and those beside one that
/// nobody began, unless they were done before `not_begun`.
pub(in crate::reconciliation) async fn forget_days(
    conn: &mut Conn,
    before: OffsetDateTime,
    not_begun: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE reconciliations AS old SET forgotten_at = $3
         WHERE status = 'DONE' AND forgotten_at IS NULL AND finished_at < $1
           AND (SELECT count(*) FILTER (WHERE beside.status <> 'DONE') = 0 AND (count(*) = 2 OR old.finished_at < $2)
                FROM reconciliations AS beside
                WHERE beside.channel = old.channel AND beside.day IN (old.day - 1, old.day + 1))",
        before,
        not_begun,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes lines of days out that were forgotten before an instant, so many at most. Gives how many.
pub(in crate::reconciliation) async fn delete_forgotten_lines(
    conn: &mut Conn,
    before: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM statement_lines
         WHERE ctid = ANY(ARRAY(
             SELECT line.ctid FROM reconciliations AS old, LATERAL (
                 SELECT ctid FROM statement_lines
                 WHERE statement_lines.reconciliation_id = old.reconciliation_id LIMIT $2) AS line
             WHERE old.status = 'DONE' AND old.forgotten_at < $1
             LIMIT $2))",
        before,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}

/// Another day of a channel whose lines are all here.
pub(in crate::reconciliation) struct Neighbour {
    pub(in crate::reconciliation) reconciliation_id: String,
    pub(in crate::reconciliation) day: Date,
    /// Since when it is compared, or when it was.
    pub(in crate::reconciliation) compared_at: Option<OffsetDateTime>,
}

/// Other days of a channel whose lines are all here, the nearest ones.
pub(in crate::reconciliation) async fn neighbours(
    conn: &mut Conn,
    channel: &str,
    day: Date,
) -> Result<Vec<Neighbour>, DbError> {
    let rows = sqlx::query_as!(
        Neighbour,
        "SELECT reconciliation_id, day, compared_at FROM reconciliations
         WHERE channel = $1 AND day <> $2 AND status IN ('MATCHING', 'ACTING', 'DONE')
           AND forgotten_at IS NULL
         ORDER BY abs(day - $2) LIMIT 32",
        channel,
        day,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Whether the lines of the day behind one are forgotten.
pub(in crate::reconciliation) async fn is_next_forgotten(
    conn: &mut Conn,
    channel: &str,
    day: Date,
) -> Result<bool, DbError> {
    let is_forgotten = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM reconciliations
                          WHERE channel = $1 AND day = $2::date + 1 AND forgotten_at IS NOT NULL) AS "is_forgotten!""#,
        channel,
        day,
    );
    Ok(is_forgotten.fetch_one(conn).await?)
}
