//! Booking, within the transaction of the fact.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::model::{Account, Columns, Posting, Wallet};
use super::store;
use crate::infra::db::{DbError, Tx};
use crate::money::Currency;

/// Books. A posting of nothing is none. Everything is one statement, so that users' balances are locked in the order of
/// their names; who must book twice in a transaction books both at once.
///
/// # Errors
/// A constraint: `ledger_transactions_pkey` when the fact is booked already, [`super::USER_BALANCE_CONSTRAINT`] when a
/// user does not have what is taken.
pub(crate) async fn post_in_tx(
    tx: &mut Tx,
    postings: &[Posting],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let new = Columns::of(postings);
    if new.ids.is_empty() { Ok(()) } else { store::insert(tx, &new, now).await }
}

/// Takes transactions back, each once.
///
/// # Errors
/// A constraint: `ledger_transactions_pkey` when one was taken back before, [`super::USER_BALANCE_CONSTRAINT`] when a
/// user has spent it; [`DbError::UnexpectedRows`] when one was never booked.
pub(crate) async fn reverse_in_tx(
    tx: &mut Tx,
    transaction_ids: &[String],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    store::insert_reversals(tx, transaction_ids, now).await
}

/// Whether a transaction is booked, and was not taken back.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn stands_in_tx(tx: &mut Tx, transaction_id: &str) -> Result<bool, DbError> {
    store::stands(tx, transaction_id).await
}

/// Locks what users can spend, in the order of the names, and gives it by account: until the transaction ends nobody
/// else spends it. An account that never had anything is absent. Where money will be set aside, its account comes to be
/// here: opened before anything is locked, as by everybody who books.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn lock_available_in_tx(
    tx: &mut Tx,
    wallets: &[Wallet],
    now: OffsetDateTime,
) -> Result<BTreeMap<Account, i64>, DbError> {
    if wallets.is_empty() { Ok(BTreeMap::new()) } else { store::lock_available(tx, wallets, now).await }
}

/// Locks users' accounts, which come in the order of their names, and gives their balances; one that is not there yet has
/// nothing on it.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn lock_balances_in_tx<const N: usize>(
    tx: &mut Tx,
    accounts: [&Account; N],
) -> Result<[i64; N], DbError> {
    store::lock_balances(tx, accounts).await
}

/// Whether the users of these top-ups, each named by its merchant and its number, stand charged for them because their
/// money never came: a compensating charge is booked of it, and was not taken back.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn are_charged_in_tx(tx: &mut Tx, top_ups: &[(&str, &str)]) -> Result<Vec<bool>, DbError> {
    if top_ups.is_empty() { Ok(Vec::new()) } else { store::are_charged(tx, top_ups).await }
}

/// What the payment of an order moves: the debited and the credited account. A sale brings money in for its merchant,
/// a top-up for its user.
pub(crate) fn payment_accounts(
    channel: &str,
    merchant_id: &str,
    topped_up: Option<&str>,
    currency: Currency,
) -> (Account, Account) {
    let credit = match topped_up {
        Some(user_id) => Account::user_available(merchant_id, user_id, currency),
        None => Account::merchant(merchant_id, currency),
    };
    (Account::channel(channel, currency), credit)
}
