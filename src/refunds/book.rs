//! What stray money and refunds move in the books.
//!
//! Always true: the suspense account of a channel holds what its stray payments are `HELD` or `REFUNDING` with, less what of
//! those that nobody has kept went back after all ([`super::after_all`]). Each booking is the last write of its transaction:
//! whoever opens an account, or moves a user's balance, makes others wait no longer than its commit takes.

use time::OffsetDateTime;

use super::collected::Collected;
use super::model::{Refund, StrayPayment, StrayStatus};
use crate::infra::db::{DbError, Tx};
use crate::ledger::{self, Account, Posting, PostingKind, Wallet};

/// Stray money came in: the channel has it, and nobody's it is.
pub(super) async fn post_taken_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let channel = Account::channel(&stray.channel, stray.currency);
    let posting = of_stray(PostingKind::StrayPayment, stray);
    ledger::post_in_tx(tx, &[posting.transfer(channel, suspense_of(stray), stray.amount)], now).await
}

/// A person kept it: it is the merchant's, or the service's own where no merchant is known.
pub(super) async fn post_kept_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let posting = of_stray(PostingKind::StrayKept, stray);
    ledger::post_in_tx(tx, &[posting.transfer(suspense_of(stray), keeper_of(stray), stray.amount)], now).await
}

/// A top-up is to be refunded: its user cannot spend that money any more.
pub(super) fn set_aside(refund: &Refund, wallet: Wallet) -> Posting {
    of_refund(PostingKind::RefundHold, refund).transfer(wallet.available, wallet.held, refund.amount)
}

/// A refund succeeded: what it gives back has left the channel, and the account that it belonged to.
pub(super) fn given_back(refund: &Refund, account: Account, channel: &str) -> Posting {
    let channel = Account::channel(channel, refund.currency);
    of_refund(PostingKind::Refund, refund).transfer(account, channel, refund.amount)
}

/// No money went back, or it came again: what was booked for a refund that had succeeded, and what was set aside for
/// it, is as it was before.
pub(super) async fn reverse_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    collected: &Collected,
    had_succeeded: bool,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let booked = [
        had_succeeded.then_some(PostingKind::Refund),
        collected.is_set_aside().then_some(PostingKind::RefundHold),
    ];
    let booked = booked.into_iter().flatten();
    let ids: Vec<_> = booked.map(|kind| of_refund(kind, refund).transaction_id()).collect();
    if ids.is_empty() { Ok(()) } else { ledger::reverse_in_tx(tx, &ids, now).await }
}

fn of_refund(kind: PostingKind, refund: &Refund) -> Posting {
    Posting::new(kind, &refund.refund_id).of(refund.merchant_id.as_deref(), refund.order_no.as_deref())
}

fn of_stray(kind: PostingKind, stray: &StrayPayment) -> Posting {
    Posting::new(kind, &stray.stray_id).of(stray.merchant_id.as_deref(), stray.order_no.as_deref())
}

/// Whose books the money has stayed in, where its refund has failed: also stray money's that somebody has kept since.
pub(super) fn bearer(collected: &Collected) -> Account {
    match collected {
        Collected::Stray(stray) if stray.status == StrayStatus::Kept => keeper_of(stray),
        Collected::Stray(_) | Collected::Payment(_) => collected.account(),
    }
}

fn keeper_of(stray: &StrayPayment) -> Account {
    match &stray.merchant_id {
        Some(merchant_id) => Account::merchant(merchant_id, stray.currency),
        None => Account::platform_revenue(stray.currency),
    }
}

fn suspense_of(stray: &StrayPayment) -> Account {
    Account::suspense(&stray.channel, stray.currency)
}
