//! What is told of a hold while its work goes on, and at its end.
//!
//! Round trips to PostgreSQL: 2 (the holds, and all that is written), 1 more for messages with names; commits: 1. Where
//! more of a quota or more than what is set aside is looked at, where many speak of one hold, and where a hold was not as
//! it was read, 3 more (BEGIN, the holds under their locks, COMMIT) and 1 each for messages, cycles, balances and cycles that
//! changed; what was tried in vain is done again. All are shared with whoever tells something at the same time, also of the
//! same hold: a thousand reports of one hold are one write.

use super::Done;
use super::error::UsageError;
use super::model::{Report, Units};
use super::store::{Act, Deed};
use crate::app::App;
use crate::idempotency::Keep;
use crate::ids::{HoldId, MerchantId, MessageId};
use crate::infra::crash::effect;

/// Hears what was used so far. The largest report counts, in whatever order they come, and each message once.
///
/// # Errors
/// [`super::Refusal::InsufficientBalance`] and [`super::Refusal::QuotaExceeded`] when it passes what can be set aside:
/// it was heard all the same, what there was is set aside, and the work should stop. A report of an expired hold is heard
/// too ([`super::Refusal::HoldClosed`]): it counts when the hold is confirmed. After any other refusal nothing was changed.
pub async fn progress(
    app: &App,
    merchant_id: &MerchantId,
    hold_id: &HoldId,
    report: Report,
    keep: Option<Keep<Done>>,
) -> Result<Done, UsageError> {
    act(app, merchant_id, hold_id, Deed::Report(report), keep).await
}

/// Charges what was used and frees the rest; of an expired hold late.
///
/// # Errors
/// [`super::Refusal`]: nothing was moved.
pub async fn confirm(
    app: &App,
    merchant_id: &MerchantId,
    hold_id: &HoldId,
    message_id: Option<MessageId>,
    units: Option<Units>,
    keep: Option<Keep<Done>>,
) -> Result<Done, UsageError> {
    act(app, merchant_id, hold_id, Deed::Confirm { message_id, units }, keep).await
}

/// Frees all of it.
///
/// # Errors
/// [`super::Refusal`]: nothing was moved.
pub async fn release(
    app: &App,
    merchant_id: &MerchantId,
    hold_id: &HoldId,
    keep: Option<Keep<Done>>,
) -> Result<Done, UsageError> {
    act(app, merchant_id, hold_id, Deed::Release, keep).await
}

async fn act(
    app: &App,
    merchant_id: &MerchantId,
    hold_id: &HoldId,
    deed: Deed,
    keep: Option<Keep<Done>>,
) -> Result<Done, UsageError> {
    let command = || Act {
        merchant_id: merchant_id.clone(),
        hold_id: hold_id.clone(),
        deed: deed.clone(),
        now: app.now(),
        ids: app.ids.clone(),
        keep: keep.clone(),
    };
    // Every deed may be done again: the hold itself says what was done before.
    let once = || async { effect!("usage.act", app.db.gather(command()).await) };
    Ok(app.db.retrying(once).await??)
}
