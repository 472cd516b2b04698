//! What is done about a difference once that was decided.

use super::ask::ask;
use super::model::{Action, Item};
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
    /// Not now.
    Later(String),
}

pub(super) async fn carry_out(app: &App, item: &Item) -> Result<Done, DutyError> {
    match item.action {
        Action::Apply => apply(app, item).await,
        Action::Ask => ask(app, item).await,
        Action::Escalate => Ok(Done::GivenUp("the channel must say which is right".to_owned())),
    }
}

/// The money of a line that we had not heard of, as if the channel had called us. It pays its order, or is stray and goes
/// by its merchant's policy.
async fn apply(app: &App, item: &Item) -> Result<Done, DutyError> {
    let Some(amount) = item.theirs.and_then(|minor| Amount::try_from(minor).ok()) else {
        return Ok(Done::GivenUp("its amount is none that a payment can have".to_owned()));
    };
    let payment = Payment {
        transaction_id: item.channel_id.clone(),
        money: Money { amount, currency: item.currency },
        paid_at: item.at,
    };
    let state = TradeState::Paid(payment);
    let report =
        Report { channel: &item.channel, pay_order_id: &item.our_id, state, origin: Origin::Statement };
    let verdict = report::apply(app, &report).await?;
    Ok(Done::Applied(verdict.as_str().to_owned()))
}
