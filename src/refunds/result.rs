//! What a channel says of a refund, applied once: the same function for callbacks and for answers to questions.
//!
//! Round trips of a plain success (see [`super::plain`]): 5 (BEGIN, orders with their refunds, all that is written,
//! booking, COMMIT); commits: 1, all shared with the refunds that end at the same time. Of a callback about it, before
//! or behind: 1 more, to look. Anything else takes a transaction of its own and up to 20 round trips, and waits for a place.

use time::OffsetDateTime;

use super::collected::{Collected, find_with_refund, lock_with_refund};
use super::contradiction::{self, Truth};
use super::model::{Refund, RefundEvent, RefundStatus};
use super::next::Next;
use super::plain::Succeed;
use super::store::FindFacts;
use super::{book, payment, store, stray, told};
use crate::app::App;
use crate::channels::{Answerer, RefundState};
use crate::compensation::{self, Action, Hold};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::RefundId;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::ledger;
use crate::money::{Currency, Money};

/// What a channel says of a refund.
#[derive(Clone, Copy, Debug)]
pub struct RefundReport<'a> {
    /// Which refund.
    pub refund_id: &'a str,
    /// What became of it.
    pub state: &'a RefundState,
    /// How we know.
    pub source: Source<'a>,
}

/// How we know what a channel says of a refund.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The answer to the call that makes it, of whoever has its task so. A refusal of that call says nothing of one that
    /// succeeded under the same number before, or of one that somebody makes who has the task by now.
    Call(Hold),
    /// We asked what became of it, under our own reference.
    Query,
    /// The same, as the task that asks about what contradicts what is known. It counts for as long as the task is the asker's:
    /// else somebody has an answer behind this one, or has told something since that is to be asked about.
    Question(Hold),
    /// The channel called us.
    Callback(Claim<'a>),
}

/// What a callback claims of a refund.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Which channel speaks.
    pub channel: &'a str,
    /// What went back, where it says so.
    pub money: Option<Money>,
}

/// What came of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It moved the refund, or the refund stood there already.
    Yes,
    /// Nobody knows that refund. An exception is open where it was made, and its number has the form of ours.
    Unknown,
    /// It claims another channel, amount or currency than the refund's: nothing moved, an exception is open.
    Mismatch,
    /// It says that a refund was made which was refused, or which nobody has approved, and the channel does not say that it
    /// was taken back: the refund stands as it was, an exception is open.
    Contradiction,
    /// A callback says that a refund failed which was made, and the channel says that it stands; or one that has not come to
    /// its end, and the channel knows of none: nothing moved.
    Stands,
    /// Nothing moved. It contradicts what is known, or a callback tells of a failure, and the channel cannot say more now: a
    /// callback must come again, and what contradicts is an exception until then, and asked about by a task. Or a call was
    /// refused, or a question answered, and somebody else has its task by now.
    Undecided,
}

/// Applies a final result, wherever it comes from; a result that is there already changes nothing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn apply_result(app: &App, report: &RefundReport<'_>) -> Result<Applied, DbError> {
    match apply_plainly(app, report).await? {
        Some(applied) => Ok(applied),
        None => Box::pin(apply_answer(app, report.refund_id)).await,
    }
}

/// Applies what the channel says of a refund of which a callback tells that it failed. Whoever drives it may be making it
/// anew in this moment, so that it is free on no other word; where the channel knows of no such refund it is left to them:
/// made again under the same number it goes back once, or is refused for good.
async fn apply_answer(app: &App, refund_id: &str) -> Result<Applied, DbError> {
    let state = match contradiction::query(app, refund_id).await? {
        Some(Ok(state @ (RefundState::Succeeded { .. } | RefundState::Failed(_)))) => state,
        Some(Ok(RefundState::Processing) | Err(_)) => return Ok(Applied::Undecided),
        None | Some(Ok(RefundState::Unseen)) => return Ok(Applied::Stands),
    };
    let answer = RefundReport { refund_id, state: &state, source: Source::Query };
    // Only a callback's failure is asked about first.
    Ok(apply_plainly(app, &answer).await?.unwrap_or(Applied::Undecided))
}

/// Applies a result; one that contradicts what is known, with what the channel says behind it. Nothing where a callback tells
/// of a failure before the end, or what was asked about has been let go meanwhile: then nothing moved, and the channel is asked
/// first.
async fn apply_plainly(app: &App, report: &RefundReport<'_>) -> Result<Option<Applied>, DbError> {
    let applied = app.db.retrying(|| apply_once(app, report, None)).await?;
    if applied != Some(Applied::Contradiction) {
        return Ok(applied);
    }
    let truth = Box::pin(contradiction::ask(app, report)).await?;
    let applied = app.db.retrying(|| apply_once(app, report, Some(truth))).await?;
    if applied == Some(Applied::Undecided) {
        app.compensation_wake.notify_one();
    }
    Ok(applied)
}

/// Applies a result. One that says of a failed refund, or of one that waits for an approval, that it was made, or that one
/// failed which was made, is written only with what the channel says by now (`truth`); a failure before the end that a callback
/// tells, or whatever was asked about before it was let go and has failed, is not written.
pub(super) async fn apply_once(
    app: &App,
    report: &RefundReport<'_>,
    truth: Option<Truth>,
) -> Result<Option<Applied>, DbError> {
    // What was asked about is not plain.
    if let (RefundState::Succeeded { channel_refund_id }, None) = (report.state, truth) {
        if is_known(app, report).await? {
            return Ok(Some(Applied::Yes));
        }
        let succeed = Succeed {
            refund_id: report.refund_id.to_owned(),
            channel_refund_id: channel_refund_id.clone(),
            claim: report.claim().map(|Claim { channel, money }| (channel.to_owned(), money)),
            now: app.now(),
        };
        if effect!("refunds.succeed", app.db.gather(succeed).await)? {
            return Ok(Some(Applied::Yes));
        }
    }
    // Boxed: what a plain refund does not need takes no room in its future.
    Box::pin(async {
        // Whoever has their order in hand would make all connections wait.
        let _place = app.db.place().await?;
        let mut tx = app.db.begin().await?;
        let applied = apply_in_tx(app, &mut tx, report, truth).await;
        effect!("refunds.result", tx.finish(applied).await)
    })
    .await
}

/// Whether a callback tells of a success that is written down already, as nearly all do: the answer to the call is
/// faster. That costs a look and no lock.
async fn is_known(app: &App, report: &RefundReport<'_>) -> Result<bool, DbError> {
    let Some(claim) = report.claim() else { return Ok(false) };
    let facts = app.db.gather(FindFacts(report.refund_id.to_owned())).await?;
    Ok(facts.is_some_and(|facts| {
        facts.status == RefundStatus::Succeeded
            && is_as_asked(claim.channel, claim.money, &facts.channel, facts.money)
    }))
}

impl<'a> RefundReport<'a> {
    /// What it claims, where it is a callback.
    const fn claim(&self) -> Option<Claim<'a>> {
        match self.source {
            Source::Callback(claim) => Some(claim),
            Source::Call(_) | Source::Query | Source::Question(_) => None,
        }
    }

    /// Whether it speaks of this very refund.
    fn fits(&self, refund: &Refund, collected: &Collected) -> bool {
        let money = (refund.amount, refund.currency);
        self.claim().is_none_or(|claim| is_as_asked(claim.channel, claim.money, collected.channel(), money))
    }
}

/// What [`apply_result`] would come to now, and whether that changes anything. Writes nothing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn preview_result(app: &App, report: &RefundReport<'_>) -> Result<(Applied, bool), DbError> {
    let event = match report.state {
        RefundState::Succeeded { .. } => RefundEvent::Succeeded,
        RefundState::Failed(_) => RefundEvent::Failed,
        RefundState::Processing | RefundState::Unseen => return Ok((Applied::Yes, false)),
    };
    let found = find_with_refund(&mut app.db.conn().await?, report.refund_id).await?;
    Ok(match found {
        None => (Applied::Unknown, false),
        Some((refund, collected)) if !report.fits(&refund, &collected) => (Applied::Mismatch, true),
        Some((refund, _)) => match next(&refund, event, report.source) {
            Next::Moves(_) => (Applied::Yes, true),
            Next::Stays => (Applied::Yes, false),
            // Unless the channel says otherwise when it is asked.
            Next::Doubtful => (Applied::Yes, true),
            Next::Contradicts if event == RefundEvent::Failed => (Applied::Yes, true),
            Next::Contradicts => (Applied::Contradiction, true),
        },
    })
}

async fn apply_in_tx(
    app: &App,
    tx: &mut Tx,
    report: &RefundReport<'_>,
    truth: Option<Truth>,
) -> Result<Option<Applied>, DbError> {
    let (event, channel_refund_id) = match report.state {
        RefundState::Succeeded { channel_refund_id } => {
            (RefundEvent::Succeeded, Some(channel_refund_id.as_str()))
        }
        RefundState::Failed(_) => (RefundEvent::Failed, None),
        RefundState::Processing | RefundState::Unseen => return Ok(Some(Applied::Yes)),
    };
    let Some((refund, collected)) = lock_with_refund(tx, report.refund_id).await? else {
        show_unknown_in_tx(app, tx, report).await?;
        return Ok(Some(Applied::Unknown));
    };
    if let Source::Question(hold) = report.source
        && !compensation::is_held_in_tx(tx, hold).await?
    {
        return Ok(Some(Applied::Undecided));
    }
    if !report.fits(&refund, &collected) {
        open_mismatch_in_tx(app, tx, report, &refund).await?;
        return Ok(Some(Applied::Mismatch));
    }
    let now = app.now();
    let to = match next(&refund, event, report.source) {
        // What was asked about has been let go since, and may be made in this moment: whoever does so asks, too.
        Next::Moves(RefundStatus::Failed) if truth.is_some() => return Ok(None),
        // Told to have been made, and taken back since: the channel's answer counts.
        Next::Moves(_) if truth == Some(Truth::TakenBack) => return Ok(None),
        Next::Moves(to) => to,
        Next::Stays => {
            contradiction::note_agreement_in_tx(tx, &refund, truth, now).await?;
            return Ok(Some(Applied::Yes));
        }
        Next::Doubtful => return Ok(None),
        Next::Contradicts => {
            let number = channel_refund_id.unwrap_or_default();
            match contradiction::note_in_tx(app, tx, (&refund, &collected), number, truth).await? {
                // The channel says so too.
                Applied::Yes if refund.status == RefundStatus::Succeeded => RefundStatus::Failed,
                applied => return Ok(Some(applied)),
            }
        }
    };

    if let (RefundEvent::Failed, Source::Call(hold)) = (event, report.source)
        && !compensation::is_held_in_tx(tx, hold).await?
    {
        return Ok(Some(Applied::Undecided));
    }
    move_in_tx(app, tx, report, (&refund, &collected), to, now).await?;
    Ok(Some(Applied::Yes))
}

/// Moves a locked refund to its end, or back from it, with all that follows.
async fn move_in_tx(
    app: &App,
    tx: &mut Tx,
    report: &RefundReport<'_>,
    (refund, collected): (&Refund, &Collected),
    to: RefundStatus,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (channel_refund_id, failure) = match report.state {
        RefundState::Succeeded { channel_refund_id } => (Some(channel_refund_id.as_str()), None),
        RefundState::Failed(refusal) => (None, Some(refusal.to_string())),
        RefundState::Processing | RefundState::Unseen => (None, None),
    };
    store::set_result(tx, refund, to, channel_refund_id, failure.as_deref(), now).await?;
    match collected {
        Collected::Stray(stray) => stray::end_refund_in_tx(app, tx, stray, failure.as_deref(), now).await?,
        Collected::Payment(payment) => payment::end_refund_in_tx(tx, payment, refund, to, now).await?,
    }
    compensation::settle_given_up_in_tx(tx, Action::DriveRefund, &refund.refund_id, now).await?;
    told::tell_in_tx(tx, refund, &told::ended(refund, to, failure.as_deref()), now).await?;
    if to == RefundStatus::Succeeded {
        let posting = book::given_back(refund, collected.account(), collected.channel());
        return ledger::post_in_tx(tx, &[posting], now).await;
    }
    if let Source::Call(_) = report.source {
        // What it refuses now, and knows nothing of, something may have told to be made before anybody approved it.
        let refused = Refund { status: to, failure, ..refund.clone() };
        contradiction::ask_of_refused_in_tx(app, tx, (&refused, collected)).await?;
    }
    let had_succeeded = refund.status == RefundStatus::Succeeded;
    book::reverse_in_tx(tx, refund, collected, had_succeeded, now).await
}

/// Whether a callback of that channel, which says that so much went back, speaks of a refund of that channel and of so
/// many minor units.
pub(super) fn is_as_asked(
    channel: &str,
    money: Option<Money>,
    of_channel: &str,
    of_money: (i64, Currency),
) -> bool {
    let is_same = |money: Money| (money.amount.minor(), money.currency) == of_money;
    channel == of_channel && money.is_none_or(is_same)
}

fn next(refund: &Refund, event: RefundEvent, source: Source<'_>) -> Next {
    // What is told of one that was made after all is judged as of any other that was made.
    let status = if refund.is_made() { RefundStatus::Succeeded } else { refund.status };
    let answers = match source {
        Source::Call(_) => Some(Answerer::Call),
        Source::Query | Source::Question(_) => Some(Answerer::Query),
        Source::Callback(_) => None,
    };
    Next::of(status, event, answers)
}

async fn open_mismatch_in_tx(
    app: &App,
    tx: &mut Tx,
    report: &RefundReport<'_>,
    refund: &Refund,
) -> Result<(), DbError> {
    let detail = format!(
        "a callback does not fit refund {} of {} {} (minor units): {}",
        refund.refund_no,
        refund.amount,
        refund.currency,
        claimed(report.source)
    );
    let exception = NewException {
        kind: ExceptionKind::AmountMismatch,
        merchant_id: refund.merchant_id.as_deref(),
        order_no: refund.order_no.as_deref(),
        subject: &refund.refund_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}

/// Money went back under a number of ours of which the database knows nothing (any more): it may be asked for once more.
async fn show_unknown_in_tx(app: &App, tx: &mut Tx, report: &RefundReport<'_>) -> Result<(), DbError> {
    let RefundState::Succeeded { channel_refund_id } = report.state else { return Ok(()) };
    // Of one that is here without the payment that it gives back, its task tells.
    if !RefundId::is_formed(report.refund_id) || store::find_refund(tx, report.refund_id).await?.is_some() {
        return Ok(());
    }
    let claimed = claimed(report.source);
    let detail =
        format!("refund {} was made as {channel_refund_id}, and is not here: {claimed}", report.refund_id);
    let exception = NewException {
        kind: ExceptionKind::UnknownOrder,
        merchant_id: None,
        order_no: None,
        subject: report.refund_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}

/// What is said of a refund, for people.
fn claimed(source: Source<'_>) -> String {
    match source {
        Source::Callback(Claim { channel, money: Some(money) }) => format!("{channel} says {money}"),
        Source::Callback(Claim { channel, money: None }) => format!("{channel} speaks of it"),
        Source::Call(_) | Source::Query | Source::Question(_) => "its channel has answered so".to_owned(),
    }
}
