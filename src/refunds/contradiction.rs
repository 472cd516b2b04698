//! A refund of which something says the opposite of what is known. What the channel says when it is asked behind both counts;
//! where it knows of no such refund, what was told. While it cannot be asked a person is shown that: whoever told of it may
//! never do so again.
//!
//! One that failed, or that nobody has approved, and of which something says that the channel made it: either it was made
//! and taken back, and its success is heard behind its reversal; then it has failed, and nothing is left to see to. Or the
//! channel made it after all, and a person must hear of it.
//!
//! One that was made, and of which something says that it failed: either the channel took it back, and its order goes back
//! with it; or that is from before the channel made it and is heard late, and it stands.
//!
//! One that waits for an approval was approved by somebody whose word is lost, as with a database that was put back. It
//! goes on waiting: approved, it is asked for under the same number and found to be made.

use super::collected::Collected;
use super::drive;
use super::model::{Refund, RefundStatus};
use super::result::{Applied, RefundReport, Source};
use super::store;
use crate::app::App;
use crate::channels::{CallError, RefundState};
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};

/// What became of such a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// The channel took it back.
    TakenBack,
    /// As far as can be known, its money has gone.
    Made,
    /// The channel cannot say now, and will tell of it again.
    Unknown,
}

/// What the channel says of a refund by now; nothing where there is none to ask.
pub(super) async fn query(
    app: &App,
    refund_id: &str,
) -> Result<Option<Result<RefundState, CallError>>, DbError> {
    let Some(facts) = drive::find(app, refund_id).await? else { return Ok(None) };
    let (Some(channel), Some(call)) = (app.channels.get(&facts.channel), drive::call(&facts)?) else {
        return Ok(None);
    };
    Ok(Some(channel.query_refund(&call).await))
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
            Source::Call(_) | Source::Query if !is_failure => told,
            _ => Truth::Unknown,
        },
    })
}

/// Notes of a locked refund what was asked about it. That one which failed was made is no news from then on. What could not
/// be answered is shown to a person, and stays news; so does what nobody has approved, until somebody does. One that was
/// made, and that the channel took back, is left to be moved.
pub(super) async fn note_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    channel_refund_id: &str,
    truth: Option<Truth>,
) -> Result<Applied, DbError> {
    let Some(truth) = truth else { return Ok(Applied::Contradiction) };
    let (now, kind) = (app.now(), ExceptionKind::Contradiction);
    let is_made = refund.status == RefundStatus::Succeeded;
    if truth == Truth::Unknown {
        let what = if is_made {
            "says that it failed, and cannot be asked now: it may not have"
        } else {
            "says that it made it, and cannot be asked now: it may have"
        };
        show_in_tx(app, tx, (refund, collected), what).await?;
        return Ok(Applied::Undecided);
    }
    // What was shown while it could not be asked is answered.
    exceptions::settle_in_tx(tx, &refund.refund_id, Some(kind), ExceptionAction::None, now).await?;
    if refund.status == RefundStatus::Failed {
        store::set_made_after_all(tx, refund, channel_refund_id, now).await?;
    }
    if truth == Truth::TakenBack {
        return Ok(Applied::Yes);
    }
    if is_made {
        tracing::warn!(
            "refund {} was told to have failed, and stands by the channel's word",
            refund.refund_id
        );
        return Ok(Applied::Stands);
    }
    show_in_tx(app, tx, (refund, collected), "made it after all: it has").await?;
    Ok(Applied::Contradiction)
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
        _ => format!("{channel} had refused refund {refund_no} of {money} and"),
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
