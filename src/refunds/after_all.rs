//! What the books and the merchant hear of a refund that stands failed, and that its channel made after all.
//!
//! Its money has left the channel: it leaves whoever's it was, each time anew under the next number, and comes back when the
//! channel takes it back, or it was never so. What a top-up brought is its user's again since the refund failed: they pay what
//! they can, and owe the rest.

use time::OffsetDateTime;

use super::collected::Collected;
use super::model::Refund;
use super::{book, told};
use crate::exceptions;
use crate::infra::db::{DbError, Tx};
use crate::ledger::{self, Account, Posting, PostingKind};
use crate::receivables;

/// What has become of such a refund, and how often it was found to be made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// The channel made it.
    Made(i32),
    /// It took that back, or never made it.
    Undone(i32),
}

/// Books what has become of a locked refund, and tells its merchant: the last write of its transaction.
pub(super) async fn book_in_tx(
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    turn: Turn,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    match turn {
        Turn::Made(times) => book_made_in_tx(tx, (refund, collected), times, now).await,
        Turn::Undone(times) => book_undone_in_tx(tx, (refund, collected), times, now).await,
    }
}

async fn book_made_in_tx(
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    times: i32,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // What an instance of a version before has heard of, and not booked.
    book_undone_in_tx(tx, (refund, collected), times - 1, now).await?;
    let channel = Account::channel(collected.channel(), refund.currency);
    let booking = posting_of(PostingKind::RefundAfterAll, refund, times);
    let (booking, owed) = match collected.user() {
        Some(user) => {
            let [has] = ledger::lock_balances_in_tx(tx, [&user.available()]).await?;
            user.charge(booking, &channel, refund.amount, has)
        }
        None => (booking.transfer(book::bearer(collected), channel, refund.amount), 0),
    };
    told::tell_in_tx(tx, refund, &told::made_after_all(refund, owed), now).await?;
    ledger::post_in_tx(tx, &[booking], now).await
}

/// Of what does not stand nothing is undone: instances of the version before note what they hear of, and book nothing.
async fn book_undone_in_tx(
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    times: i32,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    if !stands_in_tx(tx, refund, times).await? {
        return Ok(());
    }
    told::tell_in_tx(tx, refund, &told::not_made_after_all(refund), now).await?;
    let booked = posting_of(PostingKind::RefundAfterAll, refund, times).transaction_id();
    match collected.user() {
        Some(user) => {
            let paid_back = posting_of(PostingKind::ChargePaidBack, refund, times);
            receivables::undo_in_tx(tx, user, (booked, paid_back), exceptions::BY_ITSELF, now).await
        }
        None => ledger::reverse_in_tx(tx, &[booked], now).await,
    }
}

/// Whether what was booked of a refund, when it was found to be made for that time, was not undone.
pub(super) async fn stands_in_tx(tx: &mut Tx, refund: &Refund, times: i32) -> Result<bool, DbError> {
    ledger::stands_in_tx(tx, &posting_of(PostingKind::RefundAfterAll, refund, times).transaction_id()).await
}

fn posting_of(kind: PostingKind, refund: &Refund, times: i32) -> Posting {
    Posting::new(kind, &format!("{}:{times}", refund.refund_id))
        .of(refund.merchant_id.as_deref(), refund.order_no.as_deref())
}
