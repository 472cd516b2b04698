//! What there is to say of a user who was charged for money that never came.

use time::{Date, Duration, OffsetDateTime};

use super::items::items;
use super::runs::Claimed;
use crate::channels::StatementKind;
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::money::Currency;
use crate::reconciliation::model::{Class, Item, ItemAction, ItemStatus};

/// How far from its own time the money of a charge is looked for on statements. That time is what a callback said, or when
/// it came, which may be a month late.
const LISTED_WITHIN: Duration = Duration::days(35);

/// Payments that were missed, charged for or not, whose money the day's statement lists, so many at most, locked and marked
/// as listed by this round of the day: also one that nobody has asked about yet may be charged for when the day's lines are
/// forgotten. What the day itself misses no longer is no difference, and of that only charges are marked. Those that a
/// comparison which still counts has marked are left out: each is given once for a statement, to whoever tells of it in the
/// same transaction.
///
/// Whoever carries a charge out at this moment is waited for: they have locked it, and looked for its money before this
/// day was compared.
pub(in crate::reconciliation) async fn take_listed_charges(
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
    now: OffsetDateTime,
) -> Result<Vec<Item>, DbError> {
    let conn: &mut Conn = tx;
    let items = items!(
        "UPDATE reconciliation_items SET listed_at = $4, listed_by = $1, listed_round = $5
         WHERE item_id = ANY(ARRAY(
             SELECT item_id FROM reconciliation_items AS item
             WHERE class = 'MISSING_THERE' AND kind = 'PAYMENT' AND channel = $2 AND at >= $6 AND at < $7
               AND (action = 'CHARGE' OR reconciliation_id <> $1)
               AND (listed_by IS NULL
                    OR (SELECT round FROM reconciliations AS told WHERE told.reconciliation_id = item.listed_by)
                       <> item.listed_round)
               AND (SELECT true FROM statement_lines AS line
                    WHERE line.reconciliation_id = $1 AND line.kind = 'PAYMENT' AND line.channel_id = item.subject LIMIT 1)
             ORDER BY item_id LIMIT $3 FOR UPDATE))
         RETURNING",
        "",
        run.reconciliation_id,
        run.channel,
        limit,
        now,
        run.round,
        run.begins_at - LISTED_WITHIN,
        run.ends_at + LISTED_WITHIN,
    );
    Ok(items.fetch_all(conn).await?)
}

/// Payments that an earlier round of the day had marked as listed and this one has not, so many at most, with the mark
/// taken from them.
pub(in crate::reconciliation) async fn take_unlisted_charges(
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
) -> Result<Vec<Item>, DbError> {
    let conn: &mut Conn = tx;
    let items = items!(
        "UPDATE reconciliation_items SET listed_at = NULL, listed_by = NULL, listed_round = NULL
         WHERE item_id = ANY(ARRAY(
             SELECT item_id FROM reconciliation_items
             WHERE class = 'MISSING_THERE' AND kind = 'PAYMENT' AND channel = $2 AND at >= $5 AND at < $6
               AND listed_by = $1 AND listed_round < $4
             ORDER BY item_id LIMIT $3 FOR UPDATE))
         RETURNING",
        "",
        run.reconciliation_id,
        run.channel,
        limit,
        run.round,
        run.begins_at - LISTED_WITHIN,
        run.ends_at + LISTED_WITHIN,
    );
    Ok(items.fetch_all(conn).await?)
}

/// Which day's statement lists the money of a difference, or may.
#[derive(Debug)]
pub(in crate::reconciliation) struct Listing {
    reconciliation_id: String,
    round: i32,
    pub(in crate::reconciliation) day: Date,
    /// Whether its lines are here, and it does.
    pub(in crate::reconciliation) is_here: bool,
}

/// The first day whose statement lists the money of a locked difference: the one that marked it, or one whose lines are
/// all here. A statement that is still being read, or was refused, says nothing.
pub(in crate::reconciliation) async fn find_listing(
    conn: &mut Conn,
    item: &Item,
) -> Result<Option<Listing>, DbError> {
    Ok(find_possible_listing(conn, item).await?.filter(|listing| listing.is_here))
}

/// The same; where there is none, the first day whose statement may come to list it: one that is being read, or was begun
/// anew when its last one did. Both in one look, so that no day is begun anew or comes in between two.
pub(in crate::reconciliation) async fn find_possible_listing(
    conn: &mut Conn,
    item: &Item,
) -> Result<Option<Listing>, DbError> {
    let listing = sqlx::query_as!(
        Listing,
        r#"SELECT run.reconciliation_id, run.round, run.day, is_here AS "is_here!" FROM reconciliation_items AS item
           JOIN reconciliations AS run
             ON run.channel = item.channel AND run.begins_at <= $2 AND run.ends_at > $3
           CROSS JOIN LATERAL (SELECT run.status IN ('MATCHING', 'ACTING', 'DONE')) AS standing (is_here)
           WHERE item.item_id = $1
             AND CASE WHEN is_here
                      THEN (run.reconciliation_id, run.round) = (item.listed_by, item.listed_round)
                           OR (SELECT true FROM statement_lines AS line
                               WHERE line.reconciliation_id = run.reconciliation_id AND line.kind = 'PAYMENT'
                                 AND line.channel_id = item.subject LIMIT 1)
                      -- One that was refused may never come, and holds nothing up by that alone.
                      ELSE run.fault IS NULL OR run.reconciliation_id = item.listed_by END
           ORDER BY is_here DESC, run.day LIMIT 1"#,
        item.item_id,
        item.at + LISTED_WITHIN,
        item.at - LISTED_WITHIN,
    );
    Ok(listing.fetch_optional(conn).await?)
}

/// Whether a statement lists the money of a locked difference, or was told of as listing it when it was not written down
/// which one that is.
pub(in crate::reconciliation) async fn is_listed(conn: &mut Conn, item: &Item) -> Result<bool, DbError> {
    let was_told = sqlx::query_scalar!(
        r#"SELECT listed_at IS NOT NULL AND listed_by IS NULL AS "was_told!" FROM reconciliation_items WHERE item_id = $1"#,
        item.item_id,
    );
    Ok(was_told.fetch_one(&mut *conn).await? || find_listing(conn, item).await?.is_some())
}

/// Marks a locked difference as listed by that day.
pub(in crate::reconciliation) async fn set_listed(
    tx: &mut Tx,
    item: &Item,
    listing: &Listing,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let marked = sqlx::query!(
        "UPDATE reconciliation_items SET listed_by = $2, listed_round = $3, listed_at = $4 WHERE item_id = $1",
        item.item_id,
        listing.reconciliation_id,
        listing.round,
        now,
    );
    expect_one_row(&marked.execute(conn).await?)
}
