//! What there is to say of a user who was charged for money that never came.

use time::{Date, Duration, OffsetDateTime};

use super::items::items;
use super::runs::Claimed;
use crate::channels::StatementKind;
use crate::infra::db::{Conn, DbError, Tx};
use crate::money::Currency;
use crate::reconciliation::model::{Class, Item, ItemAction, ItemStatus};

/// How far from its own time the money of a charge is looked for on statements. That time is what a callback said, or when
/// it came, which may be a month late.
const LISTED_WITHIN: Duration = Duration::days(35);

/// Who was charged.
#[derive(Debug)]
pub(in crate::reconciliation) struct Charged {
    pub(in crate::reconciliation) merchant_id: String,
    pub(in crate::reconciliation) user_id: String,
    /// Minor units that the charge left them owing.
    pub(in crate::reconciliation) owed: i64,
}

/// The user whom a difference charged, by the booking of that.
pub(in crate::reconciliation) async fn find_charged(
    conn: &mut Conn,
    item: &Item,
    charge: &str,
) -> Result<Option<Charged>, DbError> {
    let charged = sqlx::query_as!(
        Charged,
        r#"SELECT merchant_id, user_id,
                  coalesce((SELECT amount FROM ledger_entries
                            WHERE transaction_id = $3 AND account_id LIKE 'USER\_RECEIVABLE:%'), 0) AS "owed!"
           FROM orders WHERE merchant_id = $1 AND order_no = $2"#,
        item.merchant_id,
        item.order_no,
        charge,
    );
    Ok(charged.fetch_optional(conn).await?)
}

/// Charges, made or still to be made, whose money the day's statement lists, so many at most, locked and marked as listed
/// by this round of the day. Those that a comparison which still counts has marked are left out: each is given once for a
/// statement, to whoever tells of it in the same transaction.
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
             WHERE action = 'CHARGE' AND channel = $2 AND at >= $6 AND at < $7
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

/// Charges that an earlier round of the day had marked as listed and this one has not, so many at most, with the mark
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
             WHERE action = 'CHARGE' AND channel = $2 AND at >= $5 AND at < $6
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

/// The first day whose statement lists the money of a locked difference: the one that marked it, or one whose lines are
/// all here. A statement that is still being read, or was refused, says nothing.
pub(in crate::reconciliation) async fn find_listing(
    conn: &mut Conn,
    item: &Item,
) -> Result<Option<Date>, DbError> {
    let day = sqlx::query_scalar!(
        "SELECT run.day FROM reconciliation_items AS item
         JOIN reconciliations AS run
           ON run.channel = item.channel AND run.begins_at <= $2 AND run.ends_at > $3
          AND run.status IN ('MATCHING', 'ACTING', 'DONE')
         WHERE item.item_id = $1
           AND ((run.reconciliation_id, run.round) = (item.listed_by, item.listed_round)
                OR (SELECT true FROM statement_lines AS line
                    WHERE line.reconciliation_id = run.reconciliation_id AND line.kind = 'PAYMENT'
                      AND line.channel_id = item.subject LIMIT 1))
         ORDER BY run.day LIMIT 1",
        item.item_id,
        item.at + LISTED_WITHIN,
        item.at - LISTED_WITHIN,
    );
    Ok(day.fetch_optional(conn).await?)
}
