//! Looking at an attempt whose result is overdue asks the channel for it, once in a while.
//!
//! A look never fails for it, and waits for it no longer than a person notices. The mark in Redis is what keeps a page
//! that looks every second from asking every second; without Redis nobody asks, and the tasks drive what they drive.
//! However many different attempts are looked at, a channel is asked a few things at once: whoever finds no room sees what
//! is known.

use std::time::Duration;

use super::attempts::{drive, find_of_merchant};
use super::error::PayError;
use super::model::{Attempt, PayStatus};
use super::report::{self, Origin, Report};
use crate::app::App;
use crate::channels::TradeState;
use crate::ids::MerchantId;

/// An attempt is asked about so often at most, by all instances together.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How long a link stands before its payment is asked for: callbacks come in a second.
const LINK_STANDS_FOR: Duration = Duration::from_secs(15);
/// How long a look waits for the channel.
const PATIENCE: Duration = Duration::from_millis(300);

/// The attempt of that id, if it is this merchant's. One that stands in the middle for longer than it should is asked
/// about at its channel first.
///
/// # Errors
/// [`PayError::NotFound`] when this merchant has none of that id.
pub async fn find_and_repair(
    app: &App,
    merchant_id: &MerchantId,
    pay_order_id: &str,
) -> Result<Attempt, PayError> {
    let attempt = find_of_merchant(app, merchant_id, pay_order_id).await?;
    if !is_overdue(app, &attempt) {
        return Ok(attempt);
    }
    // Before the mark: what found no room may be asked about by the next look.
    let Some(room) = app.looks.enter(attempt.channel.clone()) else { return Ok(attempt) };
    if !may_ask(app, &attempt).await {
        return Ok(attempt);
    }
    let (told, is_told) = tokio::sync::oneshot::channel();
    let (of_task, asked) = (app.clone(), attempt.clone());
    // Whoever looks may go away, or be answered; what the channel says is kept all the same.
    app.tasks.detach(async move {
        let _room = room;
        if let Err(error) = ask(&of_task, &asked).await {
            tracing::debug!(%error, "{} could not be repaired by a look", asked.pay_order_id);
        }
        told.send(()).ok();
    });
    match tokio::time::timeout(PATIENCE, is_told).await {
        Ok(_) => find_of_merchant(app, merchant_id, pay_order_id).await,
        Err(_) => Ok(attempt),
    }
}

/// Whether its end, or its link, should be here by now. Whatever guards a call is given the time of that call.
fn is_overdue(app: &App, attempt: &Attempt) -> bool {
    let since = app.now() - attempt.created_at;
    match attempt.status {
        PayStatus::Init => since > app.config.channels.deadline + Duration::from_secs(1),
        PayStatus::Paying => since > LINK_STANDS_FOR,
        PayStatus::Paid | PayStatus::Failed | PayStatus::Closed => false,
    }
}

async fn may_ask(app: &App, attempt: &Attempt) -> bool {
    let key = format!("pay:asked:{}:{}", attempt.merchant_id, attempt.pay_order_id);
    app.redis.mark(&key, ASK_EVERY).await.unwrap_or(false)
}

async fn ask(app: &App, attempt: &Attempt) -> Result<(), PayError> {
    if attempt.status == PayStatus::Init {
        return drive(app, attempt.pay_order_id.as_str()).await.map(drop);
    }
    let Some(channel) = app.channels.get(&attempt.channel) else { return Ok(()) };
    match channel.query(&attempt.trade_ref()?).await {
        Ok(state @ (TradeState::Paid(_) | TradeState::Failed(_) | TradeState::Closed)) => {
            report::apply(app, &Report::of_attempt(attempt, state, Origin::Query)).await.map(drop)
        }
        // Not paid yet, or no answer: neither says anything.
        Ok(TradeState::Pending | TradeState::Unseen) | Err(_) => Ok(()),
    }
}
