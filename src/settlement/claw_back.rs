//! After a refund: what is claimed back of a commission follows what is left of its order.
//!
//! In all, so much is claimed back as the commission exceeds that on what is left, by the rates that were frozen. A
//! refund that succeeds makes that grow, one that the channel takes back makes it shrink: either way the difference
//! is booked as a `CLAW_BACK`, so it comes out right in whatever order refunds come and go, and units that were cut off
//! by rounding are never lost or doubled. (Reversing the booking of one refund would be off by a unit where two
//! refunds shared one, and could not be done once a debt that it made had been paid off.)
//!
//! What is given again first makes good what was written off of the debts that are undone by it, then pays off what is owed, and
//! the rest is the user's.

use time::OffsetDateTime;

use super::follow::{Shares, follow, undone_debts};
use super::store::{self, Locked};
use crate::exceptions;
use crate::infra::db::{DbError, Tx};
use crate::ledger::{self, Account, Posting, PostingKind};
use crate::orders::OrderKey;
use crate::outbox::{self, Event};
use crate::receivables::{self, Debtor};

/// Claims back what a refund costs: call it in the transaction in which the refund succeeds and that has locked the
/// order's row, with the minor units that are `left` of the order after it, and the refund's id as `reference`.
///
/// The user's balance is debited as far as it reaches; the rest becomes a receivable. An order without a settlement has
/// nothing to claim back.
///
/// # Errors
/// A constraint of the ledger when that refund was booked before.
pub async fn claw_back_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    left: i64,
    reference: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    follow_in_tx(tx, key, left, reference, reference, now).await
}

/// Gives again what a refund had cost: call it in the transaction in which the channel takes that refund back, with the
/// minor units that are `left` of the order then, and the refund's id as `reference`.
///
/// What was written off of what it had left the user owing comes back first, and what the user owes is paid off next.
///
/// # Errors
/// A constraint of the ledger when that was booked before.
pub async fn restore_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    left: i64,
    reference: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // Another fact than the refund's success, so another name.
    follow_in_tx(tx, key, left, reference, &format!("{reference}:taken-back"), now).await
}

async fn follow_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    left: i64,
    refund: &str,
    booked_as: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Some(settlement) = store::lock(tx, key).await? else { return Ok(()) };
    let (commission, before) = (settlement.commission, settlement.clawed_back);
    let due_on_the_rest = settlement.terms.commission_floor(left);
    let Some((clawed_back, to)) = follow(settlement.status, commission, before, due_on_the_rest) else {
        return Ok(());
    };
    let difference = clawed_back - before;

    let posting = posting_in_tx(tx, key, &settlement, difference, (refund, booked_as), now).await?;
    ledger::post_in_tx(tx, &[posting], now).await?;
    store::set_clawed_back(tx, &settlement, clawed_back, to, now).await?;
    let event = Event::SettlementClawedBack {
        order_no: settlement.order_no.to_string(),
        user_id: settlement.user_id.to_string(),
        amount: difference,
        clawed_back,
        commission: settlement.commission,
        currency: settlement.currency,
        reference: refund.to_owned(),
    };
    let (merchant_id, order_no) = (key.merchant_id.as_str(), key.order_no.as_str());
    outbox::append_in_tx(tx, Some(merchant_id), Some(order_no), &event, now).await
}

/// The booking of a difference, by what the user has and owes at this moment.
async fn posting_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    settlement: &Locked,
    difference: i64,
    (refund, booked_as): (&str, &str),
    now: OffsetDateTime,
) -> Result<Posting, DbError> {
    let (merchant_id, user_id) = (settlement.merchant_id.as_str(), settlement.user_id.as_str());
    let debtor = Debtor { merchant_id, user_id, currency: settlement.currency };
    let (available, receivable) = (debtor.available(), debtor.receivable());
    let [has, owes] = ledger::lock_balances_in_tx(tx, [&available, &receivable]).await?;

    let recovered = recover_in_tx(tx, key, debtor, refund, -difference, now).await?;
    let Shares { of_balance, of_debt } = Shares::of(difference + recovered, has, owes);
    if of_debt < 0 && owes + of_debt == 0 {
        receivables::settle_shown_in_tx(tx, debtor, exceptions::BY_ITSELF, now).await?;
    }
    let expense = || Account::commission_expense(merchant_id, settlement.currency);
    Ok(Posting::new(PostingKind::ClawBack, booked_as)
        .of(Some(merchant_id), Some(settlement.order_no.as_str()))
        .transfer(available, expense(), of_balance)
        .transfer(receivable, expense(), of_debt)
        .transfer(debtor.merchant(), expense(), -recovered))
}

/// How much of what is given goes to what was written off since the debts that it undoes.
async fn recover_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    debtor: Debtor<'_>,
    refund: &str,
    given: i64,
    now: OffsetDateTime,
) -> Result<i64, DbError> {
    if given <= 0 {
        return Ok(0);
    }
    let expense = Account::commission_expense(debtor.merchant_id, debtor.currency);
    let claims = store::list_claims(tx, key, &debtor.receivable(), &expense, &debtor.merchant()).await?;
    let mut recovered = 0;
    // Each by itself: what was written off before a debt came to be was not for it.
    for (refund_id, debt) in undone_debts(&claims, refund, given) {
        let claim = Posting::new(PostingKind::ClawBack, refund_id).transaction_id();
        recovered += receivables::recover_in_tx(tx, debtor, &claim, debt, now).await?;
    }
    Ok(recovered)
}
