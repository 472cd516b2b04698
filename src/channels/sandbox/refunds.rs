//! Refunds: money given back out of one payment.
//!
//! Always true: a refund id moves money once, and the refunds of a payment never exceed it. A guarded update and a CHECK
//! hold that. What is not plain (a fault that waits, a repeat, a refusal) is decided under the trade's row lock.

use crate::infra::db::Tx;

use super::books::RefundView;
use super::faults::{FaultOp, act_under};
use super::gateway::{Gateway, GatewayError, Refused};
use super::protocol::{Call, QueryRefund, Refund, RefundAnswer, refund_number};
use super::store;
use super::store::refunds::Give;
use super::webhooks::{Notice, RefundNotice, announce_in_tx};

impl Call for Refund {
    const OPERATION: &'static str = "refund";
    type Answer = RefundAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<RefundAnswer, GatewayError> {
        if Box::pin(gateway.give(&self)).await? {
            return Ok(gateway.given(&self));
        }
        let fault = gateway.claim_fault(FaultOp::Refund).await?;
        act_under(fault, gateway.refund(&self)).await
    }
}

impl Gateway {
    async fn refund(&self, call: &Refund) -> Result<RefundAnswer, GatewayError> {
        match self.db().retrying(|| self.refund_once(call)).await {
            // The same id for another trade at the same moment: their row locks do not meet, the key does.
            Err(error) if error.constraint() == Some("sandbox_refunds_pkey") => {
                Err(Refused::ParamsDiffer.into())
            }
            refunded => {
                refunded?;
                Ok(self.given(call))
            }
        }
    }

    /// The plain refund, with whoever gives money back at the same time; `false` when it is not plain.
    async fn give(&self, call: &Refund) -> Result<bool, GatewayError> {
        let (notice, now) = (RefundNotice::succeeded(self.new_number("evt_"), call), self.now());
        let give = Give {
            event_id: notice.event_id.clone(),
            body: Notice::Refund(notice).body()?,
            call: call.clone(),
            now,
        };
        match self.db().retrying(|| self.db().gather(give.clone())).await {
            // The same id at the same moment.
            Err(error) if error.constraint() == Some("sandbox_refunds_pkey") => Ok(false),
            given => Ok(given?),
        }
    }

    fn given(&self, call: &Refund) -> RefundAnswer {
        self.something_to_deliver();
        RefundAnswer::Succeeded { number: refund_number(call.refund_id.as_str()) }
    }

    async fn refund_once(&self, call: &Refund) -> Result<(), GatewayError> {
        let mut tx = self.begin().await?;
        let outcome = self.refund_in_tx(&mut tx, call).await;
        tx.finish(outcome).await
    }

    async fn refund_in_tx(&self, tx: &mut Tx, call: &Refund) -> Result<(), GatewayError> {
        let trade = store::trades::lock(tx, &call.pay_order_id).await?.ok_or(Refused::TradeNotFound)?;
        let now = self.now();
        if let Some(earlier) = store::refunds::find(tx, &call.refund_id).await? {
            return if made_by(&earlier, call) { Ok(()) } else { Err(Refused::ParamsDiffer.into()) };
        }

        let payment = store::payments::find(tx, &call.pay_order_id, &call.transaction_id)
            .await?
            .ok_or(Refused::TradeNotFound)?;
        if payment.currency != call.currency {
            return Err(Refused::CurrencyDiffers.into());
        }
        if !store::payments::take_refund(tx, &call.transaction_id, call.amount, now).await? {
            return Err(Refused::RefundExceedsPayment.into());
        }

        store::refunds::insert(tx, call, now).await?;
        let notice = RefundNotice::succeeded(self.new_number("evt_"), call);
        announce_in_tx(tx, &trade, Notice::Refund(notice), now).await?;
        Ok(())
    }
}

/// The reason is for people and may be worded anew.
fn made_by(earlier: &RefundView, call: &Refund) -> bool {
    earlier.transaction_id == call.transaction_id
        && earlier.amount == call.amount.minor()
        && earlier.currency == call.currency
}

impl Call for QueryRefund {
    const OPERATION: &'static str = "query_refund";
    type Answer = RefundAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<RefundAnswer, GatewayError> {
        let refund = store::refunds::find(&mut gateway.conn().await?, &self.refund_id).await?;
        Ok(match refund {
            Some(RefundView { taken_back_at: Some(_), .. }) => RefundAnswer::TakenBack,
            Some(refund) => RefundAnswer::Succeeded { number: refund_number(&refund.refund_id) },
            None => RefundAnswer::Unseen,
        })
    }
}
