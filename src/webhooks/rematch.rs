//! Callbacks that came before their pay order, and the end of old ones.

use time::Duration;

use super::store;
use crate::app::App;
use crate::channels::CallbackEvent;
use crate::compensation::Drive;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError};
use crate::pay::PayError;
use crate::pay::report::{self, Origin, Report};

/// How long a callback waits for its pay order.
const PATIENCE: Duration = Duration::minutes(10);
/// How long callbacks are kept: channels repeat for more than a day, and people ask for months.
const KEPT_FOR: Duration = Duration::days(90);
/// Callbacks forgotten in one batch.
const BATCH: usize = 1000;

/// Looks for the pay order of a kept callback, named `channel/event_id`.
///
/// # Errors
/// When the database cannot be reached: the task tries again.
pub async fn rematch(app: &App, subject: &str) -> Result<Drive, PayError> {
    let Some((channel_name, event_id)) = subject.split_once('/') else { return Ok(Drive::Done) };
    let Some(channel) = app.channels.get(channel_name) else {
        return Ok(Drive::Again(format!("there is no channel {channel_name} here")));
    };
    let kept = store::find_unmatched(&mut app.db.conn().await?, channel_name, event_id).await?;
    let Some(kept) = kept else { return Ok(Drive::Done) };
    if !kept.has_pay_order && app.now() < kept.received_at + PATIENCE {
        return Ok(Drive::Again("its pay order is not here yet".into()));
    }
    // Its signature was checked when it came in.
    match channel.read(&kept.body, kept.received_at).map(|callback| callback.event) {
        Ok(CallbackEvent::Trade { pay_order_id, state }) => {
            let origin = Origin::Rematch { event_id };
            report::apply(app, &Report { channel: channel_name, pay_order_id: &pay_order_id, state, origin })
                .await?;
            Ok(Drive::Done)
        }
        _ => Ok(Drive::Again("the kept callback cannot be read any more".into())),
    }
}

/// Forgets callbacks that are older than any repeat.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(app: &App) -> Result<Batch, DutyError> {
    let mut conn = app.db.conn().await?;
    let (horizon, limit) = (app.now() - KEPT_FOR, i64::try_from(BATCH)?);
    let forgotten = effect!("webhooks.forget", store::delete_before(&mut conn, horizon, limit).await)?;
    Ok(Batch::of(usize::try_from(forgotten)?, BATCH))
}
