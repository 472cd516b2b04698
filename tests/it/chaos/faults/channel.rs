//! What a channel does when it misbehaves.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

use super::Faults;
use crate::chaos::client::ANSWER_WITHIN;
use crate::support::OPERATOR;

/// The channel acts and hangs, hangs without acting, refuses, repeats and reorders callbacks, and takes money before it
/// has given the link away or after it has closed the trade. It loses no callback: of money that came behind a close, and
/// was told of to nobody, only a statement tells.
pub const MISDEEDS: [(FaultOp, FaultKind); 16] = [
    (FaultOp::Create, FaultKind::TimeoutAfter),
    (FaultOp::Create, FaultKind::TimeoutBefore),
    (FaultOp::Create, FaultKind::Refuse),
    (FaultOp::Create, FaultKind::Reorder),
    (FaultOp::Query, FaultKind::TimeoutBefore),
    (FaultOp::Close, FaultKind::TimeoutAfter),
    (FaultOp::Close, FaultKind::TimeoutBefore),
    (FaultOp::Close, FaultKind::PayAfterClose),
    (FaultOp::Refund, FaultKind::TimeoutAfter),
    (FaultOp::Refund, FaultKind::TimeoutBefore),
    (FaultOp::Refund, FaultKind::Refuse),
    (FaultOp::Payout, FaultKind::TimeoutAfter),
    (FaultOp::Payout, FaultKind::TimeoutBefore),
    (FaultOp::Payout, FaultKind::Refuse),
    (FaultOp::Webhook, FaultKind::Repeat),
    (FaultOp::Webhook, FaultKind::Reorder),
];

impl Faults {
    /// Has the channel do one of them; gives whether it will. Its database may just be away: then it goes on to behave.
    pub(super) async fn channel_misbehaves(&mut self) -> bool {
        let (op, fault) = self.misdeeds.draw(&mut self.chance);
        let app = &self.shop.app;
        let body = json!({"op": op, "fault": fault, "times": 2, "ms": 1_000});
        let order = app.http.put(format!("{}/sandbox/faults", app.url)).bearer_auth(OPERATOR).json(&body);
        let Ok(answer) = order.timeout(ANSWER_WITHIN).send().await else { return false };
        let status = answer.status().as_u16();
        assert!(status == 200 || status >= 500, "the channel is told to misbehave by {body}: {status}");
        status == 200
    }
}
