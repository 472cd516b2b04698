//! Reports of usage from RabbitMQ: the same as by HTTP, and acknowledged only when they are committed.
//!
//! A message is `{"merchant_id", "hold_id", "message_id", "cumulative_units", "final"}`: a report of progress, or with
//! `final: true` the last one, which is charged. One that comes twice changes nothing. One that can never be done (it
//! cannot be read, names nothing, or comes for a hold that does not take it) goes to the queue beside, for a person, who
//! is told by an exception where it names a hold; one that meets a database that is away comes again, and one that meets a
//! defect once more. Whoever reports so hears that the work should stop by the event `usage.hold_exhausted`.

use futures_util::future::join_all;
use serde::Deserialize;

use super::act::{confirm, progress};
use super::error::{Refusal, UsageError};
use super::model::{HoldStatus, Report, Units};
use super::store;
use crate::app::App;
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::{HoldId, MerchantId, MessageId};
use crate::infra::amqp::{Fate, Letter, Mailbox};
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::duty::{Batch, DutyError};
use crate::infra::text::cut;

/// Messages of one batch.
const BATCH: usize = 500;
/// Characters that are kept of what is wrong with a message which cannot be read: it has a stranger's words.
const LONGEST_FAULT: usize = 300;

/// A message as it travels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    merchant_id: MerchantId,
    hold_id: HoldId,
    message_id: MessageId,
    cumulative_units: Units,
    #[serde(default, rename = "final")]
    is_final: bool,
}

/// Whose a message is, whatever else it says.
#[derive(Debug, Deserialize)]
struct Named {
    merchant_id: MerchantId,
    hold_id: HoldId,
}

/// Does what the messages say that are there; nothing without a broker.
///
/// # Errors
/// When the broker does not take in what became of them: they come again. When it does not let the queues be had,
/// because they are there and of another kind, or not ours.
pub async fn consume(app: &App) -> Result<Batch, DutyError> {
    let Some(mailbox) = &app.usage_reports else { return Ok(Batch::Done) };
    let letters = match mailbox.receive(BATCH).await {
        Ok(letters) => letters,
        Err(error) if error.is_refusal() => return Err(error.into()),
        Err(error) => {
            // Readiness says so already.
            tracing::debug!(%error, "no reports of usage can be had from the broker");
            return Ok(Batch::Done);
        }
    };
    work_off(app, mailbox, letters).await
}

async fn work_off(app: &App, mailbox: &Mailbox, letters: Vec<Letter>) -> Result<Batch, DutyError> {
    let count = letters.len();
    let fates = join_all(letters.iter().map(|letter| read(app, letter))).await;
    // The pause of an idle duty is also that of a database which is away.
    let is_stuck = fates.contains(&Fate::Again);
    for fate in &fates {
        let label = match fate {
            Fate::Done => "done",
            Fate::Dead => "dead",
            Fate::Again => "again",
        };
        metrics::counter!("payonce_usage_messages_total", "outcome" => label).increment(1);
    }
    mailbox.settle(letters.into_iter().zip(fates).collect()).await?;
    Ok(if count == 0 || is_stuck { Batch::Done } else { Batch::MoreWaiting })
}

async fn read(app: &App, letter: &Letter) -> Fate {
    let message = match serde_json::from_slice::<Message>(&letter.body) {
        Ok(message) => message,
        Err(error) => return set_unread_aside(app, letter, &error).await,
    };
    match apply(app, &message).await {
        Ok(()) => Fate::Done,
        // Heard all the same; the word to stop goes out as an event.
        Err(UsageError::Refused(
            Refusal::InsufficientBalance
            | Refusal::QuotaExceeded(_)
            | Refusal::HoldClosed(HoldStatus::Expired),
        )) => Fate::Done,
        Err(UsageError::Db(error)) if may_pass(&error) || !letter.is_repeat => {
            tracing::warn!(%error, "a report of usage waits for the database");
            Fate::Again
        }
        Err(refusal) => set_refused_aside(app, message, &refusal).await,
    }
}

/// Its hold may be named all the same.
async fn set_unread_aside(app: &App, letter: &Letter, error: &serde_json::Error) -> Fate {
    let named: Option<Named> = serde_json::from_slice(&letter.body).ok();
    let fault = cut(&error.to_string(), LONGEST_FAULT);
    set_aside(app, named.as_ref(), &format!("a report cannot be read and was set aside: {fault}")).await
}

async fn set_refused_aside(app: &App, message: Message, refusal: &UsageError) -> Fate {
    let Message { merchant_id, hold_id, message_id, cumulative_units, is_final } = message;
    let (what, units) = (if is_final { "final report" } else { "report" }, cumulative_units.count());
    let detail = format!("the {what} {message_id} of {units} units was refused and set aside: {refusal}");
    set_aside(app, Some(&Named { merchant_id, hold_id }), &detail).await
}

/// Leaves a message to a person, who is told before it leaves the queue: behind a last report that is refused nobody else
/// charges its user.
async fn set_aside(app: &App, named: Option<&Named>, detail: &str) -> Fate {
    let hold_id = named.map(|named| named.hold_id.as_str());
    match show(app, named, detail).await {
        Err(error) if may_pass(&error) => {
            tracing::warn!(%error, "a refused report of usage waits for the database");
            return Fate::Again;
        }
        Err(error) => tracing::error!(hold.id = hold_id, %error, "no exception of a refused report of usage"),
        Ok(()) => {}
    }
    tracing::error!(hold.id = hold_id, detail, "a report of usage was set aside for a person");
    Fate::Dead
}

/// Opens the exception of its hold, or has the one that is open tell of this message, too. What names no hold of its merchant is shown to nobody.
async fn show(app: &App, named: Option<&Named>, detail: &str) -> Result<(), DbError> {
    let Some(Named { merchant_id, hold_id }) = named else { return Ok(()) };
    let hold = store::find(&mut app.db.conn().await?, hold_id).await?;
    if hold.is_none_or(|hold| hold.merchant_id != *merchant_id) {
        return Ok(());
    }
    let exception = NewException {
        kind: ExceptionKind::UsageReportRefused,
        merchant_id: Some(merchant_id.as_str()),
        order_no: None,
        subject: hold_id.as_str(),
        detail,
    };
    let mut tx = app.db.begin().await?;
    let opened = exceptions::tell_in_tx(&mut tx, &app.ids, &exception, app.now()).await;
    effect!("usage.refuse", tx.finish(opened).await)
}

async fn apply(app: &App, message: &Message) -> Result<(), UsageError> {
    let Message { merchant_id, hold_id, message_id, cumulative_units, is_final } = message;
    let (message_id, units) = (message_id.clone(), *cumulative_units);
    let done = if *is_final {
        confirm(app, merchant_id, hold_id, Some(message_id), Some(units), None).await
    } else {
        progress(app, merchant_id, hold_id, Report { message_id, cumulative_units: units }, None).await
    };
    let is_late = !is_final && matches!(done, Err(UsageError::Refused(Refusal::HoldClosed(_))));
    if is_late && is_charged(app, message).await? { Ok(()) } else { done.map(drop) }
}

/// Whether it comes behind a last report that counts for as much or more: it has nothing to tell any more. A call is one,
/// however much was reported of it.
async fn is_charged(app: &App, message: &Message) -> Result<bool, DbError> {
    let hold = store::find(&mut app.db.conn().await?, &message.hold_id).await?;
    Ok(hold.is_some_and(|hold| {
        let counts = |units| hold.count(units);
        let said = counts(message.cumulative_units.count());
        hold.status == HoldStatus::Confirmed && hold.units.map(counts) >= Some(said)
    }))
}

/// Whether the database may take later what it did not take now.
const fn may_pass(error: &DbError) -> bool {
    matches!(error, DbError::Unavailable(_) | DbError::Contended(_))
}

#[cfg(test)]
mod fuzz;
