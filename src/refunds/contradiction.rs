//! A refund that failed, or that nobody has approved, and of which something says that the channel made it.
//!
//! Either it was made and taken back, and its success is heard behind its reversal: then it has failed, and nothing is left
//! to see to. Or the channel made it after all, and a person must hear of it. What the channel says when it is asked behind
//! both tells them apart. While it cannot be asked a person is shown that too: whoever told of it may never do so again.
//!
//! One that waits for an approval was approved by somebody whose word is lost, as with a database that was put back. It
//! goes on waiting: approved, it is asked for under the same number and found to be made.

use super::collected::Collected;
use super::drive;
use super::model::{Refund, RefundStatus};
use super::result::{Applied, RefundReport, Source};
use super::store;
use crate::app::App;
use crate::channels::RefundState;
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

/// Asks the channel. What was answered to us comes only once, so that it is taken for made where the channel cannot say.
pub(super) async fn ask(app: &App, report: &RefundReport<'_>) -> Result<Truth, DbError> {
    let Some(facts) = drive::find(app, report.refund_id).await? else { return Ok(Truth::Made) };
    let (Some(channel), Some(call)) = (app.channels.get(&facts.channel), drive::call(&facts)?) else {
        return Ok(Truth::Made);
    };
    Ok(match channel.query_refund(&call).await {
        Ok(RefundState::Failed(_)) => Truth::TakenBack,
        // One that it made and does not know cannot be, either.
        Ok(RefundState::Succeeded { .. } | RefundState::Unseen) => Truth::Made,
        Ok(RefundState::Processing) | Err(_) => match report.source {
            Source::Callback(_) => Truth::Unknown,
            Source::Call(_) | Source::Query => Truth::Made,
        },
    })
}

/// Notes of a locked refund that it was made, once that was asked about: from then on it is no news. What could not be
/// answered is shown to a person, and stays news; so does what nobody has approved, until somebody does.
pub(super) async fn note_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    channel_refund_id: &str,
    truth: Option<Truth>,
) -> Result<Applied, DbError> {
    let Some(truth) = truth else { return Ok(Applied::Contradiction) };
    let (now, kind) = (app.now(), ExceptionKind::Contradiction);
    if truth == Truth::Unknown {
        show_in_tx(
            app,
            tx,
            (refund, collected),
            "says that it made it, and cannot be asked now: it may have",
        )
        .await?;
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
