//! Payouts: money sent out. The sandbox has all the money in the world, so they succeed at once; one may come back.

use time::OffsetDateTime;

use crate::money::Currency;

use super::faults::{FaultOp, act_under};
use super::gateway::{Gateway, GatewayError, Refused};
use super::protocol::{Call, Payout, PayoutAnswer, QueryPayout, payout_number};
use super::store;

/// What of a payout decides whether a call repeats it.
#[derive(Clone, Debug)]
pub(super) struct PayoutRow {
    pub(super) account: String,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) taken_back_at: Option<OffsetDateTime>,
}

impl PayoutRow {
    fn was_made_by(&self, call: &Payout) -> bool {
        self.account == call.account && self.amount == call.amount.minor() && self.currency == call.currency
    }

    fn answer(&self, payout_id: &str) -> PayoutAnswer {
        match self.taken_back_at {
            None => PayoutAnswer::Succeeded { number: payout_number(payout_id) },
            Some(_) => PayoutAnswer::TakenBack,
        }
    }
}

impl Call for Payout {
    const OPERATION: &'static str = "payout";
    type Answer = PayoutAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<PayoutAnswer, GatewayError> {
        let fault = gateway.claim_fault(FaultOp::Payout).await?;
        act_under(fault, gateway.db().retrying(|| gateway.pay_out(&self))).await
    }
}

impl Gateway {
    async fn pay_out(&self, call: &Payout) -> Result<PayoutAnswer, GatewayError> {
        let mut conn = self.conn().await?;
        store::payouts::insert(&mut conn, call, self.now()).await?;
        match store::payouts::find(&mut conn, &call.payout_id).await? {
            Some(made) if made.was_made_by(call) => Ok(made.answer(&call.payout_id)),
            _ => Err(Refused::ParamsDiffer.into()),
        }
    }
}

impl Call for QueryPayout {
    const OPERATION: &'static str = "query_payout";
    type Answer = PayoutAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<PayoutAnswer, GatewayError> {
        let payout = store::payouts::find(&mut gateway.conn().await?, &self.payout_id).await?;
        Ok(payout.map_or(PayoutAnswer::Unseen, |made| made.answer(&self.payout_id)))
    }
}
