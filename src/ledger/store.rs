//! The rows of `accounts`, `ledger_transactions`, `ledger_entries` and `account_movements`.

use time::OffsetDateTime;

use super::model::Posting;
use crate::infra::db::{Conn, DbError, Tx};

/// Books all of them in one statement. The trigger on `ledger_entries` checks the sums and moves the balances.
pub(super) async fn insert(tx: &mut Tx, postings: &[&Posting], now: OffsetDateTime) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let ids: Vec<_> = postings.iter().map(|posting| posting.transaction_id()).collect();
    let kinds: Vec<_> = postings.iter().map(|posting| posting.kind.as_str()).collect();
    let merchants: Vec<_> = postings.iter().map(|posting| posting.merchant_id.as_deref()).collect();
    let orders: Vec<_> = postings.iter().map(|posting| posting.order_no.as_deref()).collect();
    let entries =
        || ids.iter().zip(postings).flat_map(|(id, posting)| posting.entries.iter().map(move |e| (id, e)));
    sqlx::query!(
        "WITH opened AS (
             INSERT INTO accounts (account_id, created_at, updated_at)
             -- In the order of their names, as by everybody.
             SELECT DISTINCT account_id, $8::timestamptz, $8 FROM unnest($6::text[]) AS account_id ORDER BY account_id
             ON CONFLICT (account_id) DO NOTHING
         ), booked AS (
             INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
             SELECT transaction_id, kind, merchant_id, order_no, $8
             FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                  AS new (transaction_id, kind, merchant_id, order_no)
         )
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT transaction_id, account_id, amount
         FROM unnest($5::text[], $6::text[], $7::bigint[]) AS entry (transaction_id, account_id, amount)",
        &ids,
        &kinds as &[&str],
        &merchants as &[Option<&str>],
        &orders as &[Option<&str>],
        &entries().map(|(id, _)| id.as_str()).collect::<Vec<_>>() as &[&str],
        &entries().map(|(_, (account, _))| account.as_str()).collect::<Vec<_>>() as &[&str],
        &entries().map(|(_, (_, amount))| *amount).collect::<Vec<_>>(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Books the opposite of what was booked under these ids.
pub(super) async fn insert_reversals(
    tx: &mut Tx,
    transaction_ids: &[String],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let entries = sqlx::query!(
        "WITH reversal AS (
             INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
             SELECT 'REVERSAL:' || booked.transaction_id, 'REVERSAL', merchant_id, order_no, booked.transaction_id, $2
             FROM unnest($1::text[]) AS wanted (transaction_id)
             JOIN ledger_transactions AS booked ON booked.transaction_id = wanted.transaction_id
             RETURNING transaction_id, reverses
         )
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT reversal.transaction_id, entry.account_id, -entry.amount
         FROM reversal JOIN ledger_entries AS entry ON entry.transaction_id = reversal.reverses",
        transaction_ids,
        now,
    )
    .execute(conn)
    .await?
    .rows_affected();
    // Each has two entries at least.
    let is_whole = entries >= 2 * transaction_ids.len() as u64;
    if is_whole { Ok(()) } else { Err(DbError::UnexpectedRows(entries)) }
}
