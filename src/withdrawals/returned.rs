//! A withdrawal whose money had gone out, and is with the channel again: it came back, or never left. Its user has it once more.
//!
//! It stays as it had ended, as its merchant was told: `SUCCEEDED`, or `REVERSED` where it was made after all. By `returned_at` it
//! is as any whose money was given back from then on: who tells that its channel made it after all is believed once more.

use super::drive::{self, call};
use super::error::WithdrawalError;
use super::find;
use super::model::{Withdrawal, WithdrawalDetails};
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels::{self, CallError, PayoutState};
use crate::exceptions::{self, ExceptionAction, ExceptionKind};
use crate::ids::{MerchantId, WithdrawalNo};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::tasks;
use crate::ledger::{self, PostingKind};
use crate::outbox::{self, Event};
use crate::receivables;
use time::OffsetDateTime;

/// By whose word it came back.
#[derive(Clone, Copy, Debug)]
enum Word<'a> {
    /// The channel's.
    Channel,
    /// A person's, which the channel says nothing against.
    Operator(&'a Entry),
}

/// Takes an operator's word that a withdrawal's money came back, or never went out, once its channel was asked; again, it gives the
/// withdrawal as it stands. What the channel says against it counts instead.
///
/// # Errors
/// [`WithdrawalError::NotSentOut`] where its money is not known to have gone out; [`WithdrawalError::ChannelSilent`] where its
/// channel cannot say, or something told more of it in that moment; [`WithdrawalError::Ambiguous`] when two merchants have such a
/// withdrawal: nothing was changed. [`WithdrawalError::IsMade`] where its channel says that it made it: then that is known, as by
/// whatever else tells it.
pub async fn was_returned(
    app: &App,
    merchant_id: Option<&MerchantId>,
    withdrawal_no: &WithdrawalNo,
    entry: &Entry,
) -> Result<WithdrawalDetails, WithdrawalError> {
    let withdrawal_id = find::find_id(app, merchant_id, withdrawal_no).await?;
    // Before its channel is asked: what is told behind that the channel knew nothing of.
    let seen = store::find(&mut app.db.conn().await?, &withdrawal_id).await?;
    let seen = seen.ok_or(WithdrawalError::NotFound)?;
    if !seen.is_out() && seen.returned_at.is_none() {
        return Err(WithdrawalError::NotSentOut(seen.status));
    }
    match ask(app, &seen).await {
        // As it stands, whether or not its channel can say more by now.
        Err(WithdrawalError::ChannelSilent(_)) if !seen.is_out() => {}
        Ok(()) if !seen.is_out() => {}
        Ok(()) => app.db.retrying(|| take_back(app, &seen, Word::Operator(entry))).await?,
        Err(error) => return Err(error),
    }
    find::find(app, &seen.merchant_id, withdrawal_no).await
}

/// Notes that the channel says, of a withdrawal whose money was seen to be out before it was asked, that it came to nothing. Gives
/// whether our books say so now.
///
/// # Errors
/// When the database is away: to be tried again.
pub async fn note_returned(app: &App, seen: &Withdrawal) -> Result<bool, WithdrawalError> {
    if !seen.is_out() {
        return Ok(seen.returned_at.is_some());
    }
    match app.db.retrying(|| take_back(app, seen, Word::Channel)).await {
        Ok(()) => Ok(true),
        // It is asked again.
        Err(WithdrawalError::ChannelSilent(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Asks the channel of a withdrawal whether it has anything to say against that it came back.
async fn ask(app: &App, seen: &Withdrawal) -> Result<(), WithdrawalError> {
    match query(app, seen).await? {
        Some(Ok(PayoutState::Succeeded { channel_payout_id })) => {
            // Be it once more, or by another number: nobody else may ever hear it.
            drive::note_made(app, seen, channel_payout_id).await?;
            Err(WithdrawalError::IsMade)
        }
        Some(Ok(PayoutState::Processing)) => Err(WithdrawalError::ChannelSilent("it is at it".to_owned())),
        Some(Err(error)) => Err(WithdrawalError::ChannelSilent(error.to_string())),
        None | Some(Ok(PayoutState::Failed(_) | PayoutState::Unseen)) => Ok(()),
    }
}

/// What the channel says of a withdrawal by now; nothing where there is none to ask.
async fn query(app: &App, seen: &Withdrawal) -> Result<Option<Result<PayoutState, CallError>>, DbError> {
    let Some(channel) = app.channels.get(&seen.channel) else {
        // Another instance may reach it.
        let not_here = || Err(CallError::NotMade(format!("there is no channel {} here", seen.channel)));
        return Ok(channels::has_adapter(&seen.channel).then(not_here));
    };
    let Some(_room) = app.waiting.enter(seen.channel.clone()) else {
        return Ok(Some(Err(CallError::NotNow)));
    };
    let call = call(seen)?;
    Ok(Some(tasks::away_when_long(channel.query_payout(&call)).await))
}

async fn take_back(app: &App, seen: &Withdrawal, word: Word<'_>) -> Result<(), WithdrawalError> {
    let mut tx = app.db.begin().await?;
    let outcome = take_back_in_tx(&mut tx, seen, word, app.now()).await;
    effect!("withdrawals.return", tx.finish(outcome).await)
}

async fn take_back_in_tx(
    tx: &mut Tx,
    seen: &Withdrawal,
    word: Word<'_>,
    now: OffsetDateTime,
) -> Result<(), WithdrawalError> {
    let withdrawal = store::lock(tx, seen.withdrawal_id.as_str()).await?.ok_or(WithdrawalError::NotFound)?;
    if !withdrawal.is_out() && withdrawal.returned_times == seen.returned_times + 1 {
        // Its commit's answer was lost, or somebody was faster.
        return Ok(());
    }
    let stands = (&withdrawal.channel_payout_id, withdrawal.returned_times, withdrawal.is_out());
    if stands != (&seen.channel_payout_id, seen.returned_times, true) {
        return Err(WithdrawalError::ChannelSilent("something told of it in this moment".to_owned()));
    }
    store::set_returned(tx, &withdrawal, now).await?;
    if let Word::Operator(entry) = word {
        admin_log::append_in_tx(tx, entry, now).await?;
    }
    let event = Event::WithdrawalReturned {
        withdrawal_no: withdrawal.withdrawal_no.to_string(),
        user_id: withdrawal.user_id.to_string(),
        amount: withdrawal.amount,
        currency: withdrawal.currency,
    };
    outbox::append_in_tx(tx, Some(withdrawal.merchant_id.as_str()), None, &event, now).await?;
    book_in_tx(tx, &withdrawal, word, now).await?;
    Ok(())
}

/// The last writes of its transaction: what its money is out by is taken back.
async fn book_in_tx(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    word: Word<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    if withdrawal.times_after_all() == 0 {
        return ledger::reverse_in_tx(tx, &withdrawal.bookings_to_return(), now).await;
    }
    // What was shown of the payout after all, and perhaps of another one, is a person's to see to: whoever says so has.
    if let Word::Operator(entry) = word {
        let (id, kind) = (withdrawal.withdrawal_id.as_str(), Some(ExceptionKind::Contradiction));
        let by = (entry.actor.as_str(), entry.reason.as_str());
        exceptions::settle_by_in_tx(tx, id, kind, ExceptionAction::None, by, now).await?;
    }
    let charge = withdrawal.after_all(PostingKind::PayoutAfterAll).transaction_id();
    let paid_back = withdrawal.after_all(PostingKind::ChargePaidBack);
    receivables::undo_in_tx(tx, withdrawal.debtor(), (charge, paid_back), exceptions::BY_ITSELF, now).await
}
