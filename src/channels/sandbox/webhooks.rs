//! Webhooks as they are written down: what they say, and what a fault makes of them.
//!
//! Always true: an event is written in the transaction of what it tells of, with its final bytes.

use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::ids::PayOrderId;
use crate::infra::db::{DbError, Tx};
use crate::infra::words::words;

use super::books::PaymentView;
use super::faults::{ClaimedFault, FaultKind, FaultOp};
use super::protocol::Refund;
use super::store;
use super::trades::Trade;

/// How many times over the fault `repeat` sends an event.
const REPEATED_COPIES: i32 = 3;

words! {
    /// How far the sending of an event came.
    pub enum DeliveryStatus {
        /// Still to be sent.
        Pending = "PENDING",
        /// The receiver acknowledged it.
        Delivered = "DELIVERED",
        /// The retry schedule is over.
        GaveUp = "GAVE_UP",
        /// Swallowed by the fault `drop`.
        Dropped = "DROPPED",
    }
}

/// The body of a webhook.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Notice {
    Payment(PaymentNotice),
    Refund(RefundNotice),
}

/// Tells what became of a trade.
#[derive(Debug, Serialize)]
pub(super) struct PaymentNotice {
    event_id: String,
    transaction_id: String,
    out_trade_no: PayOrderId,
    total_fee: i64,
    currency: String,
    trade_status: &'static str,
    #[serde(with = "time::serde::rfc3339::option")]
    paid_at: Option<OffsetDateTime>,
}

/// Tells what became of a refund.
#[derive(Debug, Serialize)]
pub(super) struct RefundNotice {
    pub(super) event_id: String,
    kind: &'static str,
    refund_id: String,
    out_trade_no: PayOrderId,
    refund_fee: i64,
    currency: String,
    status: &'static str,
}

impl PaymentNotice {
    pub(super) fn success(event_id: String, trade: &Trade, payment: &PaymentView) -> Self {
        Self {
            event_id,
            transaction_id: payment.transaction_id.clone(),
            out_trade_no: trade.pay_order_id.clone(),
            total_fee: payment.amount,
            currency: payment.currency.into(),
            trade_status: "SUCCESS",
            paid_at: Some(payment.paid_at),
        }
    }

    /// The number is of the attempt that failed; no payment has it.
    pub(super) fn failed(event_id: String, transaction_id: String, trade: &Trade) -> Self {
        Self {
            event_id,
            transaction_id,
            out_trade_no: trade.pay_order_id.clone(),
            total_fee: trade.amount,
            currency: trade.currency.into(),
            trade_status: "FAILED",
            paid_at: None,
        }
    }
}

impl RefundNotice {
    pub(super) fn succeeded(event_id: String, refund: &Refund) -> Self {
        Self {
            event_id,
            kind: "REFUND",
            refund_id: refund.refund_id.to_string(),
            out_trade_no: refund.pay_order_id.clone(),
            refund_fee: refund.amount.minor(),
            currency: refund.currency.into(),
            status: "SUCCEEDED",
        }
    }
}

impl Notice {
    fn event_id(&self) -> &str {
        match self {
            Self::Payment(notice) => &notice.event_id,
            Self::Refund(notice) => &notice.event_id,
        }
    }

    fn money(&mut self) -> (&mut i64, &mut String) {
        match self {
            Self::Payment(notice) => (&mut notice.total_fee, &mut notice.currency),
            Self::Refund(notice) => (&mut notice.refund_fee, &mut notice.currency),
        }
    }

    /// The bytes to send.
    pub(super) fn body(&self) -> Result<String, DbError> {
        serde_json::to_string(self).map_err(|error| DbError::Other(sqlx::Error::Encode(Box::new(error))))
    }

    /// Makes the body lie where the fault says so.
    fn distort(&mut self, fault: FaultKind) {
        let (amount, currency) = self.money();
        match fault {
            FaultKind::WrongAmount => *amount += 1,
            FaultKind::WrongCurrency => *currency = other_currency(currency),
            _ => {}
        }
    }
}

/// A real currency, but not this one.
pub(super) fn other_currency(currency: &str) -> String {
    if currency == "USD" { "CNY".to_owned() } else { "USD".to_owned() }
}

/// How an event is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) status: DeliveryStatus,
    pub(super) is_held: bool,
    pub(super) wait: Duration,
    pub(super) copies: i32,
}

impl Plan {
    fn under(fault: Option<ClaimedFault>) -> Self {
        let plain = Self { status: DeliveryStatus::Pending, is_held: false, wait: Duration::ZERO, copies: 1 };
        let Some(ClaimedFault { kind, pause }) = fault else { return plain };
        let wait = Duration::try_from(pause).unwrap_or(Duration::ZERO);
        match kind {
            FaultKind::Drop => Self { status: DeliveryStatus::Dropped, ..plain },
            FaultKind::Repeat => Self { copies: REPEATED_COPIES, ..plain },
            FaultKind::Reorder => Self { is_held: true, wait, ..plain },
            FaultKind::Delay => Self { wait, ..plain },
            _ => plain,
        }
    }
}

/// An event to write down.
#[derive(Debug)]
pub(super) struct NewDelivery<'a> {
    pub(super) event_id: &'a str,
    pub(super) pay_order_id: &'a PayOrderId,
    pub(super) notify_url: &'a str,
    pub(super) body: String,
    pub(super) plan: Plan,
}

/// Writes an event down in the transaction of what it tells of, as the next webhook fault says.
pub(super) async fn announce_in_tx(
    tx: &mut Tx,
    trade: &Trade,
    mut notice: Notice,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let fault = store::faults::claim(tx, FaultOp::Webhook, now).await?;
    if let Some(fault) = fault {
        notice.distort(fault.kind);
    }
    let delivery = NewDelivery {
        event_id: notice.event_id(),
        pay_order_id: &trade.pay_order_id,
        notify_url: &trade.notify_url,
        body: notice.body()?,
        plan: Plan::under(fault),
    };
    store::deliveries::insert(tx, &delivery, now).await
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::channels::sandbox::trades::TradeStatus;

    fn notice() -> Notice {
        let at = datetime!(2026-01-01 00:00 UTC);
        let trade = Trade {
            pay_order_id: "po_1".parse().unwrap(),
            amount: 1990,
            currency: "CNY".parse().unwrap(),
            subject: String::new(),
            payer_id: String::new(),
            return_url: None,
            notify_url: String::new(),
            status: TradeStatus::Paid,
            expires_at: at,
            created_at: at,
        };
        let payment = PaymentView {
            transaction_id: "txn_1".into(),
            amount: 1990,
            currency: trade.currency,
            refunded_amount: 0,
            paid_at: at,
        };
        Notice::Payment(PaymentNotice::success("evt_1".into(), &trade, &payment))
    }

    #[test]
    fn the_body_is_the_documented_one() {
        let expected = r#"{"event_id":"evt_1","transaction_id":"txn_1","out_trade_no":"po_1","total_fee":1990,"currency":"CNY","trade_status":"SUCCESS","paid_at":"2026-01-01T00:00:00Z"}"#;
        assert_eq!(serde_json::to_string(&notice()).unwrap(), expected);
    }

    #[test]
    fn a_lying_body_lies_in_one_field() {
        for (fault, expected) in [
            (FaultKind::WrongAmount, (1991, "CNY")),
            (FaultKind::WrongCurrency, (1990, "USD")),
            (FaultKind::Delay, (1990, "CNY")),
        ] {
            let mut notice = notice();
            notice.distort(fault);
            let (amount, currency) = notice.money();
            assert_eq!((*amount, currency.as_str()), expected, "{fault}");
        }
        assert_eq!(other_currency("USD"), "CNY");
    }
}
