//! An update that was put aside is applied where it still fits: each write names the state that it was decided on, so
//! the second time, or after somebody else, it meets nothing.

use std::error::Error;

use crate::app::App;
use crate::channels::CreatedTrade;
use crate::compensation::{Drive, Task, Update};
use crate::{pay, refunds, withdrawals};

/// Applies the update of a task.
pub(super) async fn replay(app: &App, task: &Task) -> Result<Drive, Box<dyn Error + Send + Sync>> {
    let payload = task.payload.as_deref().unwrap_or_default();
    let update = match serde_json::from_str::<Update>(payload) {
        Ok(update) => update,
        Err(error) => return Ok(Drive::Never(format!("the update cannot be read: {error}"))),
    };
    match update {
        Update::LinkMade { pay_order_id, pay_url, channel_ref, expires_at } => {
            let created = CreatedTrade { pay_url, channel_ref, expires_at };
            Ok(pay::replay_link(app, &pay_order_id, created).await?)
        }
        Update::RefundMade { refund_id, channel_refund_id } => {
            Ok(refunds::replay(app, &refund_id, channel_refund_id).await?)
        }
        Update::PayoutMade { withdrawal_id, channel_payout_id } => {
            Ok(withdrawals::replay(app, &withdrawal_id, channel_payout_id).await?)
        }
    }
}
