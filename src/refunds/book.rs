//! What stray money and refunds move in the books.
//!
//! Always true: the suspense account of a channel holds what its stray payments are `HELD` or `REFUNDING` with. Each
//! booking is the last write of its transaction: whoever opens an account, or moves a user's balance, makes others wait
//! no longer than its commit takes.

use time::OffsetDateTime;

use super::model::{Refund, StrayPayment};
use crate::infra::db::{DbError, Tx};
use crate::ledger::{self, Account, Posting, PostingKind};

/// Stray money came in: the channel has it, and nobody's it is.
pub(super) async fn post_taken_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let posting = of_stray(PostingKind::StrayPayment, stray);
    let posting = posting.transfer(channel_of(stray), suspense_of(stray), stray.amount);
    ledger::post_in_tx(tx, &[posting], now).await
}

/// A person kept it: it is the merchant's, or the service's own where no merchant is known.
pub(super) async fn post_kept_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let keeper = match &stray.merchant_id {
        Some(merchant_id) => Account::merchant(merchant_id, stray.currency),
        None => Account::platform_revenue(stray.currency),
    };
    let posting = of_stray(PostingKind::StrayKept, stray);
    ledger::post_in_tx(tx, &[posting.transfer(suspense_of(stray), keeper, stray.amount)], now).await
}

/// A refund succeeded: what it gives back has left its source and the channel. A stray payment's is taken from
/// suspense; an order's will be taken from its merchant, or from what was set aside of its user's top-up.
pub(super) async fn post_refunded_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let posting = Posting::new(PostingKind::Refund, &refund.refund_id)
        .of(refund.merchant_id.as_deref(), refund.order_no.as_deref())
        .transfer(suspense_of(stray), channel_of(stray), refund.amount);
    ledger::post_in_tx(tx, &[posting], now).await
}

/// The channel took a refund back that had succeeded.
pub(super) async fn reverse_refunded_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let posting = Posting::new(PostingKind::Refund, &refund.refund_id);
    ledger::reverse_in_tx(tx, &[posting.transaction_id()], now).await
}

fn of_stray(kind: PostingKind, stray: &StrayPayment) -> Posting {
    Posting::new(kind, &stray.stray_id).of(stray.merchant_id.as_deref(), stray.order_no.as_deref())
}

fn channel_of(stray: &StrayPayment) -> Account {
    Account::channel(&stray.channel, stray.currency)
}

fn suspense_of(stray: &StrayPayment) -> Account {
    Account::suspense(&stray.channel, stray.currency)
}
