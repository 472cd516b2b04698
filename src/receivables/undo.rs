//! What was charged to a user, as far as they had it, and owed for the rest, is undone.

use time::OffsetDateTime;

use super::model::Debtor;
use super::{recover_in_tx, settle_shown_in_tx, store};
use crate::infra::db::{DbError, Tx};
use crate::ledger::{self, Posting};

/// Takes back the booking of a [`Debtor::charge`], once: what they still owe is reduced by what it left them owing, what was
/// written off of that meanwhile is their merchant's again, and what they have paid off of it is theirs, by a booking of its own
/// (`paid_back`). Whoever owes nothing behind that is shown no shortfall any more, by whom and for the reason that is given.
/// Locks their accounts in the order of their names, as everybody does, before anything is booked.
///
/// # Errors
/// A constraint: `ledger_transactions_pkey` when it was undone before; [`DbError::UnexpectedRows`] when it was never booked.
pub(crate) async fn undo_in_tx(
    tx: &mut Tx,
    debtor: Debtor<'_>,
    (charge, paid_back): (String, Posting),
    by: (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (available, receivable) = (debtor.available(), debtor.receivable());
    let [_, owes] = ledger::lock_balances_in_tx(tx, [&available, &receivable]).await?;
    let owed = store::find_debt(tx, debtor, &charge).await?.map_or(0, |debt| debt.amount);

    let recovered = recover_in_tx(tx, debtor, &charge, owed, now).await?;
    let paid_off = (owed - recovered - owes).max(0);
    if owes + recovered + paid_off == owed {
        settle_shown_in_tx(tx, debtor, by, now).await?;
    }
    let paid_back = paid_back
        .transfer(receivable.clone(), debtor.merchant(), recovered)
        .transfer(receivable, available, paid_off);
    ledger::post_in_tx(tx, &[paid_back], now).await?;
    ledger::reverse_in_tx(tx, &[charge], now).await
}
