//! A refund of which something says the opposite of what is known. What the channel says when it is asked behind both counts;
//! where it knows of no such refund, what was told. While it cannot be asked a person is shown that, and a task asks it again:
//! whoever told of it may never do so again. Whoever has its answer first, be it the task, another callback or a statement,
//! ends the task and what was shown in the transaction that writes what follows. Whoever tells of it once more puts the
//! question anew: what a worker is being answered in that moment is older than what was told, and counts no more.
//!
//! One that failed, or that nobody has approved, and of which something says that the channel made it: either it was made and
//! taken back, and its success is heard behind its reversal, for the first time or once more; then it has failed, and nothing
//! is left to see to. Or the channel made it after all, be it once more, and a person must hear of it. It stays failed, and is
//! known to have gone (`made_after_all_at`): it is booked so ([`super::after_all`]), nothing goes back in its place, and what is
//! told of it from then on is judged as of one that was made, until the channel takes it back.
//!
//! One that was made, and of which something says that it failed: either the channel took it back, and its order goes back
//! with it; or that is from before the channel made it and is heard late, and it stands.
//!
//! One that waits for an approval was approved by somebody whose word is lost, as with a database that was put back. It
//! goes on waiting: approved, it is asked for under the same number and found to be made, and what was shown is over. An answer
//! from before that frees nothing: whoever makes it asks anew. Rejected, it has failed, and the channel is asked once more.

use time::OffsetDateTime;

use super::after_all::{self, Turn};
use super::collected::Collected;
use super::drive;
use super::model::{Refund, RefundStatus};
use super::result::{self, Applied, RefundReport, Source};
use super::{store, stray};
use crate::app::App;
use crate::channels::{self, CallError, RefundState};
use crate::compensation::{self, Action, Drive, Task};
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};
use crate::infra::tasks;

/// What became of such a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// The channel took it back.
    TakenBack,
    /// As far as can be known, its money has gone.
    Made,
    /// The channel cannot say now, and is asked again.
    Unknown,
}

impl Truth {
    /// Why nobody need see to what was shown before.
    const fn answer(self) -> &'static str {
        match self {
            Self::TakenBack => "its channel says that it came to nothing",
            Self::Made => "its channel says that it was made",
            Self::Unknown => "its channel says nothing",
        }
    }
}

/// What the channel says of a refund by now; nothing where there is none to ask.
pub(super) async fn query(
    app: &App,
    refund_id: &str,
) -> Result<Option<Result<RefundState, CallError>>, DbError> {
    let Some(facts) = drive::find(app, refund_id).await? else { return Ok(None) };
    let Some(call) = drive::call(&facts)? else { return Ok(None) };
    let Some(channel) = app.channels.get(&facts.channel) else {
        // Another instance may reach it.
        let not_here = || Err(CallError::NotMade(format!("there is no channel {} here", facts.channel)));
        return Ok(channels::has_adapter(&facts.channel).then(not_here));
    };
    let Some(_room) = app.waiting.enter(facts.channel.clone()) else {
        return Ok(Some(Err(CallError::NotNow)));
    };
    Ok(Some(tasks::away_when_long(channel.query_refund(&call)).await))
}

/// Asks the channel. A success that was answered to us comes only once, so that it is taken at its word where the channel
/// cannot say; a failure frees money, and is shown to a person then.
pub(super) async fn ask(app: &App, report: &RefundReport<'_>) -> Result<Truth, DbError> {
    let is_failure = matches!(report.state, RefundState::Failed(_));
    let told = if is_failure { Truth::TakenBack } else { Truth::Made };
    Ok(match query(app, report.refund_id).await? {
        Some(Ok(RefundState::Failed(_))) => Truth::TakenBack,
        Some(Ok(RefundState::Succeeded { .. })) => Truth::Made,
        // What it does not know contradicts nothing that it told.
        None | Some(Ok(RefundState::Unseen)) => told,
        Some(Ok(RefundState::Processing) | Err(_)) => match report.source {
            Source::Call(_) | Source::Query | Source::Question(_) if !is_failure => told,
            _ => Truth::Unknown,
        },
    })
}

/// Asks the channel, as a task, about a refund of which something was told while it could not be asked, and applies what it
/// says: nothing where somebody else has taken the task or ended it meanwhile, who knows as much or more. What the channel
/// does not know it cannot answer for.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn resolve_contradiction(app: &App, task: &Task) -> Result<Drive, DbError> {
    let refund_id = task.subject.as_str();
    let again = |why: String| Ok(Drive::Again(why));
    let (state, truth) = match query(app, refund_id).await? {
        Some(Ok(state @ RefundState::Succeeded { .. })) => (state, Truth::Made),
        Some(Ok(state @ RefundState::Failed(_))) => (state, Truth::TakenBack),
        Some(Ok(RefundState::Processing)) => return again("the channel is at it".to_owned()),
        Some(Ok(RefundState::Unseen)) => return again("the channel says that it never saw it".to_owned()),
        Some(Err(error)) => return again(error.to_string()),
        None => return again("there is no channel here that could be asked about it".to_owned()),
    };
    let report = RefundReport { refund_id, state: &state, source: Source::Question(task.hold) };
    app.db.retrying(|| result::apply_once(app, &report, Some(truth))).await?;
    Ok(Drive::Done)
}

/// Notes of a locked refund what was asked about it. That one which failed was made is no news from then on. What could not
/// be answered is shown to a person, left to a task, and stays news; so does what nobody has approved, until somebody does.
/// One that was made, and that the channel took back, is left to be moved.
pub(super) async fn note_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    channel_refund_id: &str,
    truth: Option<Truth>,
) -> Result<Applied, DbError> {
    let Some(truth) = truth else { return Ok(Applied::Contradiction) };
    let now = app.now();
    let is_made = refund.is_made();
    if truth == Truth::Unknown {
        let what = if is_made {
            "says that it failed, and cannot be asked now: it may not have"
        } else {
            "says that it made it, and cannot be asked now: it may have"
        };
        put_question_in_tx(tx, refund, now).await?;
        // Of one that was made after all a person was told.
        if refund.made_after_all_at.is_none() {
            show_in_tx(app, tx, (refund, collected), what).await?;
        }
        return Ok(Applied::Undecided);
    }
    answer_question_in_tx(tx, refund, truth, now).await?;
    let turn = match refund.status {
        RefundStatus::Failed => {
            note_of_failed_in_tx(app, tx, (refund, collected), channel_refund_id, truth).await?
        }
        _ => None,
    };
    let applied = if truth == Truth::TakenBack {
        Applied::Yes
    } else if is_made {
        tracing::warn!(
            "refund {} was told to have failed, and stands by the channel's word",
            refund.refund_id
        );
        Applied::Stands
    } else {
        show_in_tx(app, tx, (refund, collected), "made it after all: it has").await?;
        Applied::Contradiction
    };
    if let Some(turn) = turn {
        after_all::book_in_tx(tx, (refund, collected), turn, now).await?;
    }
    Ok(applied)
}

/// Notes of a locked refund that stands failed whether the channel has made it all the same. What came back is a stray
/// payment's once more, where it was one's. Gives what is new of that.
async fn note_of_failed_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    channel_refund_id: &str,
    truth: Truth,
) -> Result<Option<Turn>, DbError> {
    let now = app.now();
    match (refund.made_after_all_at, truth) {
        // Known to have been made and taken back.
        (None, Truth::TakenBack) if refund.channel_refund_id.is_some() => Ok(None),
        (None, _) => {
            let made_at = (truth == Truth::Made).then_some(now);
            let times = store::set_made_after_all(tx, refund, channel_refund_id, made_at, now).await?;
            Ok(made_at.map(|_| Turn::Made(times)))
        }
        (Some(_), Truth::TakenBack) => {
            let times = store::set_not_made(tx, refund, true, now).await?;
            if let Collected::Stray(stray) = collected {
                stray::show_again_in_tx(app, tx, stray).await?;
            }
            Ok(Some(Turn::Undone(times)))
        }
        (Some(_), _) => Ok(None),
    }
}

/// Notes of a locked refund, which stays as it is, that the channel says the same of it where it was asked. Where it does
/// not, a person is shown that already.
pub(super) async fn note_agreement_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    truth: Option<Truth>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Some(truth) = truth else { return Ok(()) };
    let is_made = refund.is_made();
    let agrees = match truth {
        Truth::TakenBack => !is_made,
        Truth::Made => is_made,
        Truth::Unknown => false,
    };
    if agrees { answer_question_in_tx(tx, refund, truth, now).await } else { Ok(()) }
}

/// A locked refund that nobody had approved has been rejected, or was refused by its channel: where something said before that the
/// channel made it, be it that a person has seen to that, the channel is asked. It is shown until that is answered, so that nothing
/// goes back in its place.
pub(super) async fn ask_of_refused_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
) -> Result<(), DbError> {
    let order = refund.merchant_id.as_deref().zip(refund.order_no.as_deref());
    let Some(order) = order else { return Ok(()) };
    if exceptions::was_shown(tx, order, &refund.refund_id, ExceptionKind::Contradiction).await? {
        let now = app.now();
        put_question_in_tx(tx, refund, now).await?;
        // What is open says that nobody has approved it.
        let (id, kind, by) = (
            &refund.refund_id,
            ExceptionKind::Contradiction,
            ("payonce", "it has failed, and is shown anew"),
        );
        exceptions::settle_by_in_tx(tx, id, Some(kind), ExceptionAction::None, by, now).await?;
        let what = "was said to have made it, and is being asked: it may have";
        show_in_tx(app, tx, (refund, collected), what).await?;
    }
    Ok(())
}

/// Has the channel asked about a locked refund, by a task; by whoever has it no more.
pub(super) async fn put_question_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    compensation::append_anew(tx, &drive::task_of(refund, Action::QueryRefund, now), now).await
}

/// What was shown of a locked refund, be it while its channel could not be asked, needs nobody any more, as somebody says for a
/// reason; and nobody asks the channel again.
pub(super) async fn end_question_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    by: (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // The tasks before what is open about them, as by whoever has one tried again.
    end_tasks_in_tx(tx, refund, now).await?;
    let (id, kind) = (refund.refund_id.as_str(), ExceptionKind::Contradiction);
    exceptions::settle_by_in_tx(tx, id, Some(kind), ExceptionAction::None, by, now).await
}

/// Nobody asks the channel again, nor is shown that nobody does.
async fn end_tasks_in_tx(tx: &mut Tx, refund: &Refund, now: OffsetDateTime) -> Result<(), DbError> {
    compensation::finish_by_subject(tx, Action::QueryRefund, &refund.refund_id, now).await?;
    compensation::settle_given_up_in_tx(tx, Action::QueryRefund, &refund.refund_id, now).await
}

/// The same by what the channel says. What a person was shown of one that was made after all is theirs to see to for as long
/// as that is so.
async fn answer_question_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    truth: Truth,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    if truth == Truth::Made && refund.made_after_all_at.is_some() {
        return end_tasks_in_tx(tx, refund, now).await;
    }
    end_question_in_tx(tx, refund, ("payonce", truth.answer()), now).await
}

async fn show_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    what: &str,
) -> Result<(), DbError> {
    let Refund { refund_no, amount, currency, .. } = refund;
    let (trade, out_trade_no) = (collected.transaction_id(), collected.out_trade_no());
    let (channel, money) = (collected.channel(), format!("{amount} {currency} (minor units)"));
    let before = match refund.status {
        RefundStatus::AwaitingApproval => {
            format!("nobody has approved refund {refund_no} of {money}, {channel}")
        }
        RefundStatus::Succeeded => format!("{channel} had made refund {refund_no} of {money} and"),
        _ => format!("refund {refund_no} of {money} stands failed, and {channel}"),
    };
    let detail = format!("{before} {what} gone back, from trade {trade} for {out_trade_no}");
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: refund.merchant_id.as_deref(),
        order_no: refund.order_no.as_deref(),
        subject: &refund.refund_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}
