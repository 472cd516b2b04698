//! What there is to say of a user who was charged for money that never came.

use time::OffsetDateTime;

use super::items::items;
use super::runs::Claimed;
use crate::channels::StatementKind;
use crate::infra::db::{Conn, DbError, Tx};
use crate::money::Currency;
use crate::reconciliation::model::{Class, Item, ItemAction, ItemStatus};

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

/// Payments that a user was charged for because they never came, and that the day's statement has, so many at most. Each
/// is given once, to whoever tells of it in the same transaction.
pub(in crate::reconciliation) async fn take_listed_charges(
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
    now: OffsetDateTime,
) -> Result<Vec<Item>, DbError> {
    let conn: &mut Conn = tx;
    let items = items!(
        "UPDATE reconciliation_items SET listed_at = $4
         WHERE item_id = ANY(ARRAY(
             SELECT item_id FROM reconciliation_items AS item
             WHERE action = 'CHARGE' AND status = 'APPLIED' AND listed_at IS NULL AND channel = $2
               AND (SELECT true FROM statement_lines AS line
                    WHERE line.reconciliation_id = $1 AND line.kind = 'PAYMENT' AND line.channel_id = item.subject LIMIT 1)
             ORDER BY subject LIMIT $3 FOR UPDATE))
         RETURNING",
        "",
        run.reconciliation_id,
        run.channel,
        limit,
        now,
    );
    Ok(items.fetch_all(conn).await?)
}
