//! A kept callback read again, by an operator's wish: through the same function as the first time.
//!
//! Its signature was checked when it came in, and its timestamp is old by now, so it is not verified again. What it
//! says is judged by what is true now; money that it already brought is known by its trade number and stays where
//! it is.

use super::inbox::Kept;
use super::inbox_id::InboxId;
use super::receive::bounded;
use super::{UNDECIDED, store};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels::{Callback, CallbackEvent};
use crate::infra::db::DbError;
use crate::pay::PayError;
use crate::pay::report::{self, Origin, Outcome, Report, Verdict};
use crate::refunds::{self, Applied, Claim, RefundReport, Source};

/// What came of a replay, or would come of it.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The callback as it stands now.
    pub kept: Kept,
    /// What it was judged before.
    pub earlier: Verdict,
    /// What was done, or would be.
    pub outcome: Outcome,
}

/// Why a callback was not replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No such callback.
    #[error("there is no such callback")]
    NotFound,
    /// Its channel does not run here.
    #[error("there is no channel {0} here")]
    NoChannel(String),
    /// It cannot be read any more.
    #[error("the kept body is not what its channel sends")]
    Unreadable,
    /// It was judged, and could not be carried out.
    #[error(transparent)]
    Pay(#[from] PayError),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Reads a kept callback again and does what it calls for; without an entry for the admin log it only says what
/// that would be, and writes nothing.
///
/// # Errors
/// See [`ReplayError`].
pub async fn replay(app: &App, id: &InboxId, entry: Option<Entry>) -> Result<Replayed, ReplayError> {
    let kept = store::find(&mut app.db.conn().await?, id).await?.ok_or(ReplayError::NotFound)?;
    let Some(channel) = app.channels.get(&kept.channel) else {
        return Err(ReplayError::NoChannel(kept.channel));
    };
    let read = channel.read(&kept.body, kept.received_at).and_then(bounded);
    let callback = read.map_err(|_| ReplayError::Unreadable)?;
    let is_dry = entry.is_none();
    if let Some(entry) = entry {
        admin_log::append(app, &Entry { order: kept.order(), ..entry }).await?;
    }
    let outcome = match &callback.event {
        CallbackEvent::Trade { .. } => replay_trade(app, channel.name(), &kept, &callback, is_dry).await?,
        CallbackEvent::Refund { .. } => replay_refund(app, channel.name(), &kept, &callback, is_dry).await?,
        CallbackEvent::Other => nothing(kept.verdict),
    };
    let earlier = kept.verdict;
    // Also where nothing was left to do: by a first try whose answer was lost, or by somebody else meanwhile.
    let kept = if is_dry {
        kept
    } else {
        store::find(&mut app.db.conn().await?, id).await?.ok_or(ReplayError::NotFound)?
    };
    Ok(Replayed { kept, earlier, outcome })
}

const fn nothing(verdict: Verdict) -> Outcome {
    Outcome { verdict, remedy: "NOTHING", moves: false }
}

async fn replay_trade(
    app: &App,
    channel: &str,
    kept: &Kept,
    callback: &Callback,
    is_dry: bool,
) -> Result<Outcome, ReplayError> {
    let CallbackEvent::Trade { pay_order_id, state } = &callback.event else {
        return Ok(nothing(kept.verdict));
    };
    let origin = Origin::Replay { event_id: &kept.event_id, account_matches: callback.account_matches };
    let report = Report { channel, pay_order_id, state: state.clone(), origin };
    Ok(if is_dry { report::preview(app, &report).await? } else { report::replay(app, &report).await? })
}

async fn replay_refund(
    app: &App,
    channel: &str,
    kept: &Kept,
    callback: &Callback,
    is_dry: bool,
) -> Result<Outcome, ReplayError> {
    let CallbackEvent::Refund { refund_id, money, state } = &callback.event else {
        return Ok(nothing(kept.verdict));
    };
    if !callback.account_matches {
        return Ok(nothing(Verdict::WrongAccount));
    }
    let source = Source::Callback(Claim { channel, money: *money });
    let report = RefundReport { refund_id, state, source };
    let (applied, moves) = refunds::preview_result(app, &report).await?;
    let would = judge(kept, applied, moves)?;
    if !would.moves || is_dry {
        return Ok(would);
    }
    // What was foreseen may be outrun, or answered otherwise by the channel: what counts is what was done.
    let done = match refunds::apply_result(app, &report).await? {
        Applied::Yes if applied == Applied::Contradiction => {
            Outcome { verdict: Verdict::Applied, remedy: "NOTHING", moves }
        }
        Applied::Stands => nothing(Verdict::Recorded),
        applied => Outcome { moves, ..judge(kept, applied, moves)? },
    };
    store::set_verdict(&mut app.db.conn().await?, kept, done.verdict, app.now()).await?;
    Ok(done)
}

/// What it means for a callback that its refund came to that, or would come to it.
fn judge(kept: &Kept, applied: Applied, moves: bool) -> Result<Outcome, ReplayError> {
    Ok(match applied {
        Applied::Yes if moves => Outcome { verdict: Verdict::Applied, remedy: "END_THE_REFUND", moves },
        Applied::Yes => nothing(Verdict::Repeated),
        Applied::Unknown | Applied::Stands => nothing(Verdict::Recorded),
        // A person was shown it when it came in.
        Applied::Mismatch if kept.verdict == Verdict::AmountMismatch => nothing(Verdict::AmountMismatch),
        Applied::Mismatch => Outcome { verdict: Verdict::AmountMismatch, remedy: "SHOW_TO_A_PERSON", moves },
        // Unless the channel says, when it is asked, that it took the refund back.
        Applied::Contradiction => Outcome { verdict: Verdict::Recorded, remedy: "SHOW_TO_A_PERSON", moves },
        Applied::Undecided => {
            return Err(PayError::ChannelUnavailable(UNDECIDED.to_owned()).into());
        }
    })
}
