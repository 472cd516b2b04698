//! A refund that failed, and of which something says that the channel made it.
//!
//! Either it was made and taken back, and its success is heard behind its reversal: then it has failed, and nothing is left
//! to see to. Or the channel made it after all, and a person must hear of it. What the channel says when it is asked behind
//! both tells them apart.

use super::collected::Collected;
use super::drive;
use super::model::Refund;
use super::result::{Applied, RefundReport, Source};
use super::store;
use crate::app::App;
use crate::channels::RefundState;
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};

/// What became of such a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// The channel took it back.
    TakenBack,
    /// As far as can be known, its money has gone.
    Made,
}

/// Asks the channel. Nothing where it cannot say now and will tell of it again; what was answered to us comes only once,
/// so that a person is rather shown too much of it.
pub(super) async fn ask(app: &App, report: &RefundReport<'_>) -> Result<Option<Truth>, DbError> {
    let Some(facts) = drive::find(app, report.refund_id).await? else { return Ok(Some(Truth::Made)) };
    let (Some(channel), Some(call)) = (app.channels.get(&facts.channel), drive::call(&facts)?) else {
        return Ok(Some(Truth::Made));
    };
    Ok(match channel.query_refund(&call).await {
        Ok(RefundState::Failed(_)) => Some(Truth::TakenBack),
        // One that it made and does not know cannot be, either.
        Ok(RefundState::Succeeded { .. } | RefundState::Unseen) => Some(Truth::Made),
        Ok(RefundState::Processing) | Err(_) => match report.source {
            Source::Callback(_) => None,
            Source::Call | Source::Query => Some(Truth::Made),
        },
    })
}

/// Notes of a locked refund that it was made, once that was asked about: from then on it is no news.
pub(super) async fn note_in_tx(
    app: &App,
    tx: &mut Tx,
    (refund, collected): (&Refund, &Collected),
    channel_refund_id: &str,
    truth: Option<Truth>,
) -> Result<Applied, DbError> {
    let Some(truth) = truth else { return Ok(Applied::Contradiction) };
    store::set_made_after_all(tx, refund, channel_refund_id, app.now()).await?;
    if truth == Truth::TakenBack {
        return Ok(Applied::Yes);
    }
    let detail = format!(
        "{} had refused refund {} of {} {} (minor units) and made it after all: so much of trade {} for {} has gone back",
        collected.channel(),
        refund.refund_no,
        refund.amount,
        refund.currency,
        collected.transaction_id(),
        collected.out_trade_no()
    );
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: refund.merchant_id.as_deref(),
        order_no: refund.order_no.as_deref(),
        subject: &refund.refund_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await?;
    Ok(Applied::Contradiction)
}
