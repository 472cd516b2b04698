//! What is done about a difference once that was decided.

use super::ask::ask;
use super::model::{Item, ItemAction};
use crate::app::App;
use crate::channels::{Payment, TradeState};
use crate::infra::duty::DutyError;
use crate::money::{Amount, Money};
use crate::pay::report::{self, Origin, Report};

/// What came of it.
#[derive(Debug)]
pub(super) enum Done {
    /// Ours is now as theirs.
    Applied(String),
    /// It is no difference.
    Explained(String),
    /// Nothing more can be done without a person.
    GivenUp(String),
    /// The user who spent it on usage is to be charged, which is to be decided over.
    Chargeable(String),
    /// Its user was charged, and it says so already.
    Charged,
    /// It goes by its merchant's policy, so it may give money back, which is to be decided over.
    Stray(String),
    /// It may give money back, which is for a person alone to decide over.
    Undecided(String),
    /// Not now.
    Later(String),
    /// The channel gives no answer.
    Silent(String),
}

pub(super) async fn carry_out(app: &App, item: &Item) -> Result<Done, DutyError> {
    match item.action {
        ItemAction::Apply => apply(app, item).await,
        // A charge may have waited for long: what it is for is asked about first.
        ItemAction::Ask | ItemAction::Charge => ask(app, item).await,
        ItemAction::Escalate => Ok(Done::GivenUp("the channel must say which is right".to_owned())),
    }
}

/// The money of a line that we had not heard of, as if the channel had called us. It pays its order, or is stray and goes
/// by its merchant's policy; where it was to pay, it pays or nothing happens.
async fn apply(app: &App, item: &Item) -> Result<Done, DutyError> {
    let Some(report) = report_of(item) else {
        return Ok(Done::GivenUp("its amount is none that a payment can have".to_owned()));
    };
    if item.moves_money {
        return Ok(Done::Applied(report::apply(app, &report).await?.as_str().to_owned()));
    }
    let verdict = report::pay_or_nothing(app, &report).await?;
    let Some(verdict) = verdict else {
        let why = "its order does not take it any more, so it may give money back";
        return Ok(Done::Undecided(why.to_owned()));
    };
    Ok(Done::Applied(verdict.as_str().to_owned()))
}

/// Whether it may give money back, as things stand now: an order that waited when the difference was found may have been
/// paid, or may have ended, since.
pub(super) async fn moves_money(app: &App, item: &Item) -> Result<bool, DutyError> {
    match (item.action, report_of(item)) {
        (ItemAction::Apply, Some(report)) => Ok(!report::would_pay(app, &report).await?),
        _ => Ok(item.moves_money),
    }
}

fn report_of(item: &Item) -> Option<Report<'_>> {
    let amount = item.theirs.and_then(|minor| Amount::try_from(minor).ok())?;
    let payment = Payment {
        transaction_id: item.channel_id.clone(),
        money: Money { amount, currency: item.currency },
        paid_at: item.at,
    };
    let state = TradeState::Paid(payment);
    Some(Report { channel: &item.channel, pay_order_id: &item.our_id, state, origin: Origin::Statement })
}
