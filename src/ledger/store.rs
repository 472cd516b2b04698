//! The rows of `accounts`, `ledger_transactions` and `account_movements`.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::balances::{Balance, EntryFilter, UserEntry};
use super::books::{Booking, BookingEntry, TrialRow};
use super::model::{Account, AccountKind, Columns, PostingKind, Wallet};
use crate::ids::{MerchantId, UserId};
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{column, met, places};
use crate::money::Currency;

/// Books all of them in one statement. The trigger on `ledger_transactions` checks the sums and moves the balances.
pub(super) async fn insert(tx: &mut Tx, new: &Columns<'_>, now: OffsetDateTime) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH opened AS MATERIALIZED (
             -- In the order of their names, as by everybody.
             SELECT open_accounts(array_agg(account_id ORDER BY account_id), $8)
             FROM unnest($7::text[]) AS named (account_id)
             -- To look is cheaper than an insert that comes to nothing. No join: its plan could walk.
             WHERE (SELECT account_id FROM accounts WHERE accounts.account_id = named.account_id) IS NULL
             HAVING count(*) > 0
         )
         INSERT INTO ledger_transactions
             (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
         SELECT transaction_id, kind, merchant_id, order_no, account_ids::text[], amounts::bigint[], $8
         FROM (SELECT unnest($1::text[]) AS transaction_id, unnest($2::text[]) AS kind,
                      unnest($3::text[]) AS merchant_id, unnest($4::text[]) AS order_no,
                      unnest($5::text[]) AS account_ids, unnest($6::text[]) AS amounts) AS new
         WHERE (SELECT count(*) FROM opened) >= 0",
        &new.ids,
        &new.kinds as &[&str],
        &new.merchant_ids as &[Option<&str>],
        &new.order_nos as &[Option<&str>],
        &new.account_ids,
        &new.amounts,
        &new.user_accounts as &[&str],
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Opens the accounts of money set aside beside those that have something, and locks the latter.
pub(super) async fn lock_available(
    tx: &mut Tx,
    wallets: &[Wallet],
    now: OffsetDateTime,
) -> Result<BTreeMap<Account, i64>, DbError> {
    let conn: &mut Conn = tx;
    let wallets: BTreeSet<&Wallet> = wallets.iter().collect();
    let column = |account: fn(&Wallet) -> &Account| -> Vec<String> {
        wallets.iter().map(|wallet| account(wallet).to_string()).collect()
    };
    let (available, held) = (column(|wallet| &wallet.available), column(|wallet| &wallet.held));
    let rows = sqlx::query!(
        "WITH opened AS (
             INSERT INTO accounts (account_id, created_at, updated_at)
             SELECT held, $3::timestamptz, $3
             FROM (SELECT unnest($1::text[]) AS available, unnest($2::text[]) AS held) AS wallet
             WHERE (SELECT account_id FROM accounts WHERE accounts.account_id = wallet.held) IS NULL
               AND (SELECT account_id FROM accounts WHERE accounts.account_id = wallet.available) IS NOT NULL
             ORDER BY held
             ON CONFLICT (account_id) DO NOTHING
             RETURNING account_id
         )
         SELECT account_id, balance
         FROM accounts
         WHERE (SELECT count(*) FROM opened) >= 0 AND account_id = ANY($1)
         ORDER BY account_id FOR NO KEY UPDATE OF accounts",
        &available,
        &held,
        now,
    )
    .fetch_all(conn)
    .await?;
    let known: BTreeMap<String, i64> = rows.into_iter().map(|row| (row.account_id, row.balance)).collect();
    let with_balance = |wallet: &Wallet| {
        let balance = known.get(wallet.available.as_str())?;
        Some((wallet.available.clone(), *balance))
    };
    Ok(wallets.into_iter().filter_map(with_balance).collect())
}

/// Locks users' accounts, which come in the order of their names, and gives their balances. Each in a statement of its
/// own: one that was opened by whoever is waited for is not among what a statement sees that began before.
pub(super) async fn lock_balances<const N: usize>(
    tx: &mut Tx,
    accounts: [&Account; N],
) -> Result<[i64; N], DbError> {
    debug_assert!(
        accounts.is_sorted_by_key(|account| account.as_str()),
        "locked in the order of their names"
    );
    let conn: &mut Conn = tx;
    let mut balances = [0; N];
    for (balance, account) in balances.iter_mut().zip(accounts) {
        let known = sqlx::query_scalar!(
            "SELECT balance FROM accounts WHERE account_id = $1 FOR NO KEY UPDATE",
            account.as_str(),
        );
        *balance = known.fetch_optional(&mut *conn).await?.unwrap_or(0);
    }
    Ok(balances)
}

/// Books the opposite of what was booked under these ids.
pub(super) async fn insert_reversals(
    tx: &mut Tx,
    transaction_ids: &[String],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let booked = sqlx::query!(
        "INSERT INTO ledger_transactions
             (transaction_id, kind, merchant_id, order_no, reverses, account_ids, amounts, created_at)
         SELECT 'REVERSAL:' || booked.transaction_id, 'REVERSAL', merchant_id, order_no, booked.transaction_id, account_ids,
                ARRAY(SELECT -amount FROM unnest(amounts) WITH ORDINALITY AS entry (amount, place) ORDER BY place), $2
         FROM unnest($1::text[]) AS wanted (transaction_id)
         -- Looked up one by one, whatever the planner believes of the table.
         CROSS JOIN LATERAL (SELECT * FROM ledger_transactions
                             WHERE transaction_id = wanted.transaction_id OFFSET 0) AS booked",
        transaction_ids,
        now,
    )
    .execute(conn)
    .await?
    .rows_affected();
    let is_whole = booked == transaction_ids.len() as u64;
    if is_whole { Ok(()) } else { Err(DbError::UnexpectedRows(booked)) }
}

/// Whether this is booked, and was not taken back.
pub(super) async fn stands(conn: &mut Conn, transaction_id: &str) -> Result<bool, DbError> {
    let stands = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM ledger_transactions WHERE transaction_id = $1)
                  AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE transaction_id = 'REVERSAL:' || $1) AS "stands!""#,
        transaction_id,
    );
    Ok(stands.fetch_one(conn).await?)
}

/// Takes up to `limit` movements out and adds them to their accounts; gives how many there were. Both see the same
/// snapshot, and an account is there before its first movement is.
pub(super) async fn fold_movements(conn: &mut Conn, limit: i64, now: OffsetDateTime) -> Result<i64, DbError> {
    let folded = sqlx::query_scalar!(
        r#"WITH taken AS (
             DELETE FROM account_movements
             WHERE ctid = ANY (ARRAY(SELECT ctid FROM account_movements LIMIT $1 FOR UPDATE SKIP LOCKED))
             RETURNING account_id, amount
         ), moved AS MATERIALIZED (
             -- Locked in the order of their names, as by everybody.
             SELECT accounts.account_id, change.amount
             FROM (SELECT account_id, sum(amount)::bigint AS amount FROM taken GROUP BY account_id) AS change
             JOIN accounts ON accounts.account_id = change.account_id
             ORDER BY accounts.account_id FOR NO KEY UPDATE OF accounts
         ), folded AS (
             UPDATE accounts SET balance = accounts.balance + moved.amount, updated_at = $2
             FROM moved WHERE accounts.account_id = moved.account_id
         )
         SELECT count(*) AS "count!" FROM taken"#,
        limit,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(folded)
}

/// What a user has, by currency.
pub(super) async fn list_balances(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    user_id: &UserId,
) -> Result<Vec<Balance>, DbError> {
    let balances = sqlx::query_as!(
        Balance,
        r#"SELECT currency AS "currency!: Currency",
                  coalesce(sum(balance) FILTER (WHERE kind = 'USER_AVAILABLE'), 0)::bigint AS "available!",
                  coalesce(sum(balance) FILTER (WHERE kind = 'USER_HELD'), 0)::bigint AS "held!",
                  coalesce(sum(balance) FILTER (WHERE kind = 'USER_RECEIVABLE'), 0)::bigint AS "receivable!"
           FROM accounts WHERE merchant_id = $1 AND user_id = $2 GROUP BY currency ORDER BY currency"#,
        merchant_id.as_str(),
        user_id.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(balances)
}

/// A page of a user's entries, newest first. Each wallet's bookings are walked along their index.
pub(super) async fn list_entries(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    user_id: &UserId,
    filter: EntryFilter,
) -> Result<Vec<UserEntry>, DbError> {
    let entries = sqlx::query_as!(
        UserEntry,
        r#"SELECT entry.entry_id AS "entry_id!", entry.transaction_id AS "transaction_id!",
                  entry.kind AS "kind!: PostingKind", account.kind AS "account!: AccountKind",
                  account.currency AS "currency!: Currency", account.sense * entry.amount AS "amount!", entry.order_no,
                  entry.created_at AS "created_at!"
           FROM (SELECT DISTINCT format('%s:%s:%s', merchant_id, user_id, currency) AS name FROM accounts
                 WHERE merchant_id = $1 AND user_id = $2 AND ($3::text IS NULL OR currency = $3)) AS wallet
           CROSS JOIN LATERAL (
               SELECT booked.seq * 8 + moved.place AS entry_id, booked.transaction_id, booked.kind, booked.order_no,
                      booked.created_at, moved.account_id, moved.amount
               FROM (SELECT * FROM ledger_transactions
                     WHERE ledger_transactions.wallet = wallet.name AND seq <= $4::bigint / 8
                     -- Of the last one nothing may be left.
                     ORDER BY seq DESC LIMIT $5::bigint + 1) AS booked
               CROSS JOIN LATERAL unnest(account_ids, amounts) WITH ORDINALITY AS moved (account_id, amount, place)
               WHERE moved.account_id LIKE 'USER\_%'
           ) AS entry
           -- The limit makes it a look-up each.
           CROSS JOIN LATERAL (SELECT kind, currency, sense FROM accounts
                               WHERE accounts.account_id = entry.account_id LIMIT 1) AS account
           WHERE entry.entry_id < $4
           ORDER BY entry.entry_id DESC LIMIT $5"#,
        merchant_id.as_str(),
        user_id.as_str(),
        filter.currency.as_ref().map(Currency::as_str),
        filter.before.unwrap_or(i64::MAX),
        filter.limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(entries)
}

/// Of which of these orders a compensating charge is booked that was not taken back.
pub(super) async fn are_charged(tx: &mut Tx, orders: &[(&str, &str)]) -> Result<Vec<bool>, DbError> {
    let conn: &mut Conn = tx;
    let charged = sqlx::query_scalar!(
        r#"SELECT of_order.place AS "place!"
           FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                        unnest($3::bigint[]) AS place) AS of_order
           -- The limit makes it a look-up each.
           CROSS JOIN LATERAL (
               SELECT 1 FROM ledger_transactions AS charge
               WHERE charge.kind = 'COMPENSATING_CHARGE' AND charge.merchant_id = of_order.merchant_id
                 AND charge.order_no = of_order.order_no
                 AND (SELECT transaction_id FROM ledger_transactions AS reversal
                      WHERE reversal.transaction_id = 'REVERSAL:' || charge.transaction_id) IS NULL
               LIMIT 1) AS standing"#,
        &column(orders, |(merchant_id, _)| *merchant_id) as &[&str],
        &column(orders, |(_, order_no)| *order_no) as &[&str],
        &places(orders.len()),
    )
    .fetch_all(conn)
    .await?;
    Ok(met(orders.len(), charged))
}

/// Every account's balance on its side, those of one kind and owner together.
pub(super) async fn sum_accounts(tx: &mut Tx) -> Result<Vec<TrialRow>, DbError> {
    let conn: &mut Conn = tx;
    let rows = sqlx::query_as!(
        TrialRow,
        r#"SELECT currency AS "currency!: Currency", kind AS "kind!: AccountKind", merchant_id, channel,
                  greatest(sum(debit), 0)::bigint AS "debit!", greatest(-sum(debit), 0)::bigint AS "credit!"
           FROM (
               SELECT currency, kind, merchant_id,
                      CASE WHEN kind IN ('CHANNEL', 'PAYOUTS_IN_TRANSIT', 'SUSPENSE')
                           THEN split_part(accounts.account_id, ':', 2) END AS channel,
                      sense * (balance + coalesce(moved.amount, 0)) AS debit
               FROM accounts
               LEFT JOIN (SELECT account_id, sum(amount) AS amount FROM account_movements GROUP BY account_id)
                    AS moved ON moved.account_id = accounts.account_id
           ) AS account
           GROUP BY currency, kind, merchant_id, channel ORDER BY currency, kind, merchant_id, channel"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// A booking with its entries, by account.
pub(super) async fn find_booking(conn: &mut Conn, id: &str) -> Result<Option<Booking>, DbError> {
    let row = sqlx::query!(
        r#"SELECT booked.transaction_id, booked.kind AS "kind: PostingKind", booked.merchant_id, booked.order_no,
                  booked.reverses, booked.created_at, booked.account_ids, booked.amounts,
                  -- Looked up, where a join could walk.
                  (SELECT reversal.transaction_id FROM ledger_transactions AS reversal
                   WHERE reversal.transaction_id = 'REVERSAL:' || booked.transaction_id) AS "reversed_by?"
           FROM ledger_transactions AS booked
           WHERE booked.transaction_id = $1"#,
        id,
    );
    let side = |(account, amount): (String, i64)| BookingEntry {
        account,
        debit: amount.max(0),
        credit: (-amount).max(0),
    };
    Ok(row.fetch_optional(conn).await?.map(|row| Booking {
        transaction_id: row.transaction_id,
        kind: row.kind,
        merchant_id: row.merchant_id,
        order_no: row.order_no,
        reverses: row.reverses,
        reversed_by: row.reversed_by,
        created_at: row.created_at,
        entries: row.account_ids.into_iter().zip(row.amounts).map(side).collect(),
    }))
}
