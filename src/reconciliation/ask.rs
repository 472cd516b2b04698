//! The channel is asked about a difference, under our own number, and what it says is applied where that is ours to do.

use super::carry_out::Done;
use super::charge::settle_short;
use super::model::{Class, Item};
use super::store;
use crate::app::App;
use crate::channels::{CallError, Channel, Payment, PayoutState, RefundState, StatementKind, TradeState};
use crate::infra::duty::DutyError;
use crate::pay::report::{self, Origin, Report};
use crate::pay::{self, Attempt};
use crate::refunds::{self, Applied, RefundReport, Source};
use crate::withdrawals;

pub(super) async fn ask(app: &App, item: &Item) -> Result<Done, DutyError> {
    let Some(channel) = app.channels.get(&item.channel) else {
        return Ok(Done::GivenUp(format!("there is no channel {} here that could be asked", item.channel)));
    };
    match item.kind {
        StatementKind::Payment => ask_about_payment(app, channel.as_ref(), item).await,
        StatementKind::Refund | StatementKind::RefundReversal => {
            ask_about_refund(app, channel.as_ref(), item).await
        }
        StatementKind::Payout => ask_about_payout(app, channel.as_ref(), item).await,
        StatementKind::Other => Ok(still("nothing can be asked about it")),
    }
}

/// What the channel does not confirm stays a difference: a person must see to it.
fn still(what: &str) -> Done {
    Done::GivenUp(what.to_owned())
}

fn unanswered(error: &CallError) -> Done {
    Done::Silent(error.to_string())
}

async fn ask_about_payment(app: &App, channel: &dyn Channel, item: &Item) -> Result<Done, DutyError> {
    let Some(attempt) = pay::find_attempt(&mut app.db.conn().await?, &item.our_id).await? else {
        return Ok(still("it names no pay order of ours, so the channel cannot be asked"));
    };
    let state = match channel.query(&attempt.trade_ref()?).await {
        Ok(state) => state,
        Err(error) => return Ok(unanswered(&error)),
    };
    let TradeState::Paid(payment) = state else {
        let said = format!("the channel says of it: {}", word_of(&state));
        let is_short = item.class == Class::MissingThere;
        return if is_short { settle_short(app, item, &said).await } else { Ok(still(&said)) };
    };
    if item.class == Class::MissingHere {
        return apply_answer(app, item, &attempt, payment).await;
    }
    let (said, amount) = (payment.money, payment.money.amount.minor());
    let is_ours = payment.transaction_id == item.channel_id
        && (Some(amount), said.currency) == (item.ours, item.currency);
    if is_ours && item.class == Class::MissingThere {
        return Ok(Done::Explained(format!("the channel confirms {said} in trade {}", item.channel_id)));
    }
    Ok(still(&format!("the channel says of it: {said} in trade {}", payment.transaction_id)))
}

/// The money of a line that we had not heard of, and that is not what was asked for: what the channel itself says of it is
/// applied, as if it had called us. What may give money back by that is decided over first; where the statement says
/// otherwise, by a person alone, and one of both is still to be put right.
async fn apply_answer(
    app: &App,
    item: &Item,
    attempt: &Attempt,
    payment: Payment,
) -> Result<Done, DutyError> {
    let (money, trade) = (payment.money, payment.transaction_id.clone());
    let said = format!("the channel says of it: {money} in trade {trade}");
    if trade != item.channel_id {
        return Ok(still(&said));
    }
    let is_as_listed = (Some(money.amount.minor()), money.currency) == (item.theirs, item.currency);
    let report = Report::of_attempt(attempt, TradeState::Paid(payment), Origin::Statement);
    let verdict = if item.moves_money && (is_as_listed || item.decided_by.is_some()) {
        Some(report::apply(app, &report).await?)
    } else {
        report::pay_or_nothing(app, &report).await?
    };
    Ok(match verdict {
        Some(verdict) if is_as_listed => Done::Applied(format!("{said}: {verdict}")),
        Some(verdict) => still(&format!("{said}: {verdict}; its statement says otherwise")),
        None if is_as_listed => Done::Stray(format!("{said}, which its order does not take")),
        None => Done::Undecided(format!(
            "{said}, which its order does not take, and its statement says otherwise"
        )),
    })
}

const fn word_of(state: &TradeState) -> &'static str {
    match state {
        TradeState::Unseen => "never seen",
        TradeState::Pending => "not paid",
        TradeState::Paid(_) => "paid",
        TradeState::Failed(_) => "failed",
        TradeState::Closed => "closed without payment",
    }
}

async fn ask_about_refund(app: &App, channel: &dyn Channel, item: &Item) -> Result<Done, DutyError> {
    let Some(call) = refunds::call_of(app, &item.our_id).await? else {
        return Ok(still("it is no refund that the channel can be asked about"));
    };
    let state = match channel.query_refund(&call).await {
        Ok(state) => state,
        Err(error) => return Ok(unanswered(&error)),
    };
    match (item.class, &state) {
        (Class::AmountDiffers, _) => Ok(still(&format!("the channel says of it: {state:?}"))),
        (Class::MissingThere, RefundState::Succeeded { channel_refund_id }) => {
            Ok(Done::Explained(format!("the channel confirms it as {channel_refund_id}")))
        }
        (_, RefundState::Unseen) => Ok(still("the channel says that it never saw it")),
        (_, RefundState::Processing) => Ok(Done::Later("the channel is at it".to_owned())),
        // Its statement says that it came back.
        (_, RefundState::Succeeded { channel_refund_id }) if item.kind == StatementKind::RefundReversal => {
            Ok(still(&format!("the channel says that it stands as {channel_refund_id}")))
        }
        (_, RefundState::Succeeded { .. } | RefundState::Failed(_)) => {
            let report = RefundReport { refund_id: &item.our_id, state: &state, source: Source::Query };
            let is_listed_as_made = item.kind == StatementKind::Refund
                && item.class == Class::StatusDiffers
                && matches!(state, RefundState::Failed(_));
            match refunds::apply_result(app, &report).await? {
                // Ours is as the channel says, and not as its statement.
                Applied::Yes
                    if is_listed_as_made && store::stands_there(&mut app.db.conn().await?, item).await? =>
                {
                    Ok(still(&format!("its statement lists it, and the channel says of it: {state:?}")))
                }
                Applied::Yes => Ok(Done::Applied(format!("the channel says of it: {state:?}"))),
                Applied::Unknown | Applied::Mismatch | Applied::Contradiction | Applied::Stands => {
                    Ok(still(&format!("the channel says of it, against what it said before: {state:?}")))
                }
                Applied::Undecided => Ok(Done::Later("the channel is asked once more".to_owned())),
            }
        }
    }
}

async fn ask_about_payout(app: &App, channel: &dyn Channel, item: &Item) -> Result<Done, DutyError> {
    let Some((withdrawal, call)) = withdrawals::ask_about(app, &item.our_id).await? else {
        return Ok(still("it is no withdrawal of ours"));
    };
    let state = match channel.query_payout(&call).await {
        Ok(state) => state,
        Err(error) => return Ok(unanswered(&error)),
    };
    match (item.class, &state) {
        // Also of one that came back, as somebody said.
        (Class::MissingThere, PayoutState::Succeeded { channel_payout_id }) => {
            let is_out = withdrawals::note_made(app, &withdrawal, channel_payout_id.clone()).await?;
            let said = format!("the channel confirms it as {channel_payout_id}");
            Ok(if is_out { Done::Explained(said) } else { still(&said) })
        }
        // Its line is of when it was made.
        (Class::StatusDiffers, PayoutState::Failed(refusal))
            if withdrawal.returned_at.is_some()
                && withdrawal.channel_payout_id.as_deref() == Some(&item.channel_id) =>
        {
            Ok(Done::Explained(format!("it came back, as is known, and the channel says: {refusal}")))
        }
        // What was known to have gone out, and is on no statement.
        (Class::MissingThere, PayoutState::Failed(refusal)) => {
            let stands = withdrawals::note_returned(app, &withdrawal).await?;
            let said = format!("the channel says that it came to nothing: {refusal}");
            Ok(if stands {
                Done::Applied(said)
            } else {
                Done::Later("the channel is asked once more".to_owned())
            })
        }
        // Of one whose money was given back, whoever notes that shows it to a person.
        (Class::StatusDiffers, PayoutState::Succeeded { channel_payout_id }) => {
            let stands = withdrawals::note_made(app, &withdrawal, channel_payout_id.clone()).await?;
            let said = "the channel says that it was made";
            Ok(if stands { Done::Applied(said.to_owned()) } else { still(said) })
        }
        (_, PayoutState::Processing) => Ok(Done::Later("the channel is at it".to_owned())),
        _ => Ok(still(&format!("the channel says of it: {state:?}"))),
    }
}
