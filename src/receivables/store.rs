//! The rows of `receivable_clearings`, and what the books and the exceptions tell of debts.

use time::OffsetDateTime;

use super::list::{Receivable, Which};
use super::model::{Clearing, ClearingKind, Debtor};
use crate::ids::{ClearingNo, MerchantId, UserId};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::money::Currency;

/// The clearing of that number.
pub(super) async fn find(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    clearing_no: &ClearingNo,
) -> Result<Option<Clearing>, DbError> {
    let found = sqlx::query_as!(
        Clearing,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", clearing_no AS "clearing_no: ClearingNo",
                  kind AS "kind: ClearingKind", user_id AS "user_id: UserId", amount, currency AS "currency: Currency",
                  recovered, created_at
           FROM receivable_clearings WHERE merchant_id = $1 AND clearing_no = $2"#,
        merchant_id.as_str(),
        clearing_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(found)
}

/// Writes a clearing down.
pub(super) async fn insert(tx: &mut Tx, new: &Clearing) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO receivable_clearings (merchant_id, clearing_no, kind, user_id, amount, currency, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)",
        new.merchant_id.as_str(),
        new.clearing_no.as_str(),
        new.kind.as_str(),
        new.user_id.as_str(),
        new.amount,
        new.currency.as_str(),
        new.created_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a booking left its user owing, and by which entry.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) entry_id: i64,
    pub(super) amount: i64,
}

/// What a booking left its user owing; nothing where it left nothing.
pub(super) async fn find_debt(
    conn: &mut Conn,
    debtor: Debtor<'_>,
    booking: &str,
) -> Result<Option<Debt>, DbError> {
    let receivable = debtor.receivable();
    let debt = sqlx::query_as!(
        Debt,
        r#"SELECT entry_id AS "entry_id!", amount AS "amount!" FROM ledger_entries
           WHERE transaction_id = $1 AND account_id = $2 AND amount > 0"#,
        booking,
        receivable.as_str(),
    );
    Ok(debt.fetch_optional(conn).await?)
}

/// What stands of a write-off.
#[derive(Debug)]
pub(super) struct WrittenOff {
    pub(super) clearing_no: ClearingNo,
    pub(super) standing: i64,
    pub(super) recovered: i64,
}

/// What stands written off of a user's debts since that entry, the oldest first: what is younger may be for younger debts.
pub(super) async fn list_written_off(
    conn: &mut Conn,
    debtor: Debtor<'_>,
    since: i64,
) -> Result<Vec<WrittenOff>, DbError> {
    let receivable = debtor.receivable();
    let written = sqlx::query_as!(
        WrittenOff,
        r#"SELECT written.clearing_no AS "clearing_no!: ClearingNo", written.amount - written.recovered AS "standing!",
                  written.recovered AS "recovered!"
           FROM receivable_clearings AS written
           -- The limit makes it a look-up each. The times of the rows would not do: an instance that waits for a balance
           -- dates what it books from before.
           CROSS JOIN LATERAL (
               SELECT entry_id FROM ledger_entries
               WHERE transaction_id = format('WRITE_OFF:%s:%s', written.merchant_id, written.clearing_no)
                 AND account_id = $4
               LIMIT 1) AS booked
           WHERE written.merchant_id = $1 AND written.user_id = $2 AND written.currency = $3
             AND written.kind = 'WRITE_OFF' AND written.recovered < written.amount AND booked.entry_id > $5
           ORDER BY booked.entry_id"#,
        debtor.merchant_id,
        debtor.user_id,
        debtor.currency.as_str(),
        receivable.as_str(),
        since,
    )
    .fetch_all(conn)
    .await?;
    Ok(written)
}

/// Notes that so much more came back of a write-off.
pub(super) async fn add_recovered(
    tx: &mut Tx,
    debtor: Debtor<'_>,
    clearing_no: &ClearingNo,
    amount: i64,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE receivable_clearings SET recovered = recovered + $3, updated_at = $4
             WHERE merchant_id = $1 AND clearing_no = $2 AND kind = 'WRITE_OFF' AND recovered + $3 <= amount",
            debtor.merchant_id,
            clearing_no.as_str(),
            amount,
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// The things by which a person is shown what somebody owes: a hold, or the pay order of a top-up that was charged for.
pub(super) async fn list_shown(conn: &mut Conn, debtor: Debtor<'_>) -> Result<Vec<String>, DbError> {
    let subjects = sqlx::query_scalar!(
        r#"SELECT DISTINCT open.subject AS "subject!"
           FROM ledger_transactions AS charge
           CROSS JOIN LATERAL (SELECT split_part(charge.transaction_id, ':', 2) AS reference) AS booked
           -- Looked up one by one, whatever the planner believes of the tables.
           CROSS JOIN LATERAL (
               SELECT coalesce((SELECT our_id FROM reconciliation_items WHERE item_id = booked.reference),
                               booked.reference) AS subject OFFSET 0) AS debt
           CROSS JOIN LATERAL (
               SELECT exceptions.subject FROM exceptions
               WHERE exceptions.subject = debt.subject AND kind = 'USAGE_SHORTFALL' AND status = 'OPEN' OFFSET 0) AS open
           WHERE charge.wallet = format('%s:%s:%s', $1::text, $2::text, $3::text)
             AND charge.kind IN ('USAGE_CHARGE', 'COMPENSATING_CHARGE')
             -- What they owe is the last of its accounts, and has grown.
             AND starts_with(charge.account_ids[cardinality(charge.account_ids)], 'USER_RECEIVABLE:')
             AND charge.amounts[cardinality(charge.amounts)] > 0"#,
        debtor.merchant_id,
        debtor.user_id,
        debtor.currency.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(subjects)
}

/// A page of debts, in the order of their accounts' names, along their key: only who ever owed something has such an account.
pub(super) async fn list(conn: &mut Conn, which: &Which<'_>) -> Result<Vec<Receivable>, DbError> {
    let owner = which.merchant_id.map(|merchant_id| format!(":{merchant_id}")).unwrap_or_default();
    // No part of a name holds a colon, and a semicolon is what comes next to it.
    let (first, end) = (format!("USER_RECEIVABLE{owner}:"), format!("USER_RECEIVABLE{owner};"));
    let last = which.after.map(|(merchant_id, user_id, currency)| {
        format!("USER_RECEIVABLE:{merchant_id}:{user_id}:{currency}")
    });
    let after = first.max(last.unwrap_or_default());
    let page = sqlx::query_as!(
        Receivable,
        r#"SELECT merchant_id AS "merchant_id!: MerchantId", user_id AS "user_id!: UserId",
                  currency AS "currency!: Currency", balance AS "amount!",
                  coalesce((SELECT has.balance FROM accounts AS has
                            WHERE has.account_id = format('USER_AVAILABLE:%s:%s:%s', owed.merchant_id, owed.user_id,
                                                          owed.currency)), 0) AS "available!"
           FROM accounts AS owed
           WHERE account_id > $1 AND account_id < $2 AND balance <> 0
           ORDER BY account_id LIMIT $3"#,
        after.as_str(),
        end.as_str(),
        which.limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(page)
}
