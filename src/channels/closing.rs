//! What a close comes to: the trade is asked about where the close alone does not say.

use super::{CallError, Closing, TradeState};

/// Reads the answer to a close; asks what became of the trade where that answer says nothing of its money. One that the
/// channel has not seen was not closed, and may come to stand yet.
///
/// # Errors
/// When neither the close nor the question was answered with what counts: the trade may still be paid.
pub async fn close_then_ask<Q>(
    closing: Result<Closing, CallError>,
    ask: impl FnOnce() -> Q,
) -> Result<TradeState, CallError>
where
    Q: Future<Output = Result<TradeState, CallError>>,
{
    match closing {
        Ok(Closing::Closed) => Ok(TradeState::Closed),
        Ok(Closing::Unseen) => Ok(TradeState::Unseen),
        Ok(Closing::AlreadyPaid(Some(payment))) => Ok(TradeState::Paid(payment)),
        Ok(Closing::AlreadyPaid(None)) => match ask().await {
            Ok(state @ TradeState::Paid(_)) => Ok(state),
            Ok(_) => Err(CallError::Silent("it says paid, but does not name the payment".into())),
            Err(error) => Err(error),
        },
        // A refusal to close says nothing about the money: ask.
        Err(CallError::Refused(refusal)) => match ask().await {
            Ok(TradeState::Pending | TradeState::Unseen) => Err(CallError::Refused(refusal)),
            other => other,
        },
        Err(error) => Err(error),
    }
}
