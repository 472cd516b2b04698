//! Every event that there is, told by an example of each.

use serde_json::{Value, json};
use time::macros::datetime;

use super::event::Event;

/// An event of the catalogue.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its name.
    pub name: &'static str,
    /// The version of its fields.
    pub version: i16,
    /// When it happens.
    pub summary: &'static str,
    /// The whole body, as an example.
    pub example: Value,
}

/// All of them.
#[must_use]
pub fn catalogue() -> Vec<Told> {
    let all = examples()
        .into_iter()
        .chain(examples_of_what_goes_back_or_out())
        .chain(receivable_examples())
        .chain(usage_examples());
    all.map(told).collect()
}

fn told(event: Event) -> Told {
    let (name, version) = (event.name(), event.version());
    let example = json!({"type": name, "version": version, "timestamp": "2026-11-21T10:00:00Z", "data": event.payload()});
    Told { name, version, summary: summary(&event), example }
}

const fn summary(event: &Event) -> &'static str {
    match event {
        Event::OrderPaid { .. } => "An order was paid",
        Event::OrderClosed { .. } => "An order was closed without being paid",
        Event::OrderSettled { .. } => "An order's commission was settled",
        Event::SettlementClawedBack { .. } => "A refund changed what is claimed back of a commission",
        Event::StrayPaymentReceived { .. } => "A channel took money that the order does not accept",
        Event::StrayPaymentKept { .. } => {
            "Money that the order does not accept is kept, by a person's decision"
        }
        Event::RefundFinished { .. } => "A refund came to its end",
        Event::RefundMadeAfterAll { .. } => "The channel made a refund after all that had failed",
        Event::RefundReversed { .. } => {
            "The channel took a refund back that had succeeded, or was made after all; or the latter was never so"
        }
        Event::WithdrawalFinished { .. } => "A withdrawal came to its end",
        Event::WithdrawalMadeAfterAll { .. } => {
            "The channel made a withdrawal after all that had been given back, or had come back"
        }
        Event::WithdrawalReturned { .. } => {
            "A withdrawal came back that had succeeded, or was made after all; or the latter was never so"
        }
        Event::ReceivableCollected { .. } => "What a user owes was taken from what they have",
        Event::ReceivableWrittenOff { .. } => "What a user owes was written off",
        Event::ReceivableRecovered { .. } => {
            "What was written off came back, because what its user owed it for was undone"
        }
        Event::UsageCharged { .. } => "Metered work was charged",
        Event::CompensatingChargeMade { .. } => {
            "Metered work that was paid with a top-up whose money never came was charged once more"
        }
        Event::CompensatingChargeReversed { .. } => {
            "A compensating charge was given back, by a person's decision"
        }
        Event::UsageCycleCharged { .. } => "A user's cycle was paid for, in advance",
        Event::UsageHoldExhausted { .. } => {
            "Metered work passed what could be set aside for it, and should stop: each time anew"
        }
        Event::UsageHoldExpired { .. } => "A hold ran out before its work was confirmed",
    }
}

fn examples() -> Vec<Event> {
    let Ok(currency) = "CNY".parse() else { return Vec::new() };
    let (order_no, user_id) = (|| "A-1".to_owned(), || "u1".to_owned());
    vec![
        Event::OrderPaid {
            order_no: order_no(),
            user_id: user_id(),
            amount: 1990,
            currency,
            pay_order_id: "po_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned(),
            channel: "sandbox".to_owned(),
            transaction_id: "txn_1".to_owned(),
            paid_at: datetime!(2026-11-21 10:00 UTC),
        },
        Event::OrderClosed { order_no: order_no(), user_id: user_id(), close_reason: "TIMEOUT" },
        Event::OrderSettled {
            order_no: order_no(),
            user_id: user_id(),
            base_amount: 1990,
            commission: 99,
            currency,
        },
        Event::SettlementClawedBack {
            order_no: order_no(),
            user_id: user_id(),
            amount: 49,
            clawed_back: 49,
            commission: 99,
            currency,
            reference: "rf_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned(),
        },
        Event::StrayPaymentReceived {
            order_no: Some(order_no()),
            stray_id: "sp_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned(),
            reason: "LATE_PAYMENT",
            amount: 1990,
            currency,
            pay_order_id: Some("po_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned()),
            channel: "sandbox".to_owned(),
            transaction_id: "txn_2".to_owned(),
            paid_at: datetime!(2026-11-21 10:00 UTC),
        },
        Event::StrayPaymentKept {
            order_no: Some(order_no()),
            stray_id: "sp_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned(),
            reason: "LATE_PAYMENT",
            amount: 1990,
            currency,
        },
    ]
}

fn examples_of_what_goes_back_or_out() -> Vec<Event> {
    let Ok(currency) = "CNY".parse() else { return Vec::new() };
    let (order_no, user_id) = (|| "A-1".to_owned(), || "u1".to_owned());
    let refund_id = || "rf_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned();
    let pay_order_id = || "po_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned();
    vec![
        Event::RefundFinished {
            order_no: Some(order_no()),
            refund_no: "R-1".to_owned(),
            status: "SUCCEEDED",
            amount: 990,
            currency,
            refund_id: refund_id(),
            pay_order_id: Some(pay_order_id()),
            stray_id: None,
            reason: "a cup was broken".to_owned(),
            failure: None,
        },
        Event::RefundMadeAfterAll {
            order_no: Some(order_no()),
            refund_no: "R-1".to_owned(),
            amount: 990,
            owed: 0,
            currency,
            refund_id: refund_id(),
            pay_order_id: Some(pay_order_id()),
            stray_id: None,
            reason: "a cup was broken".to_owned(),
        },
        Event::RefundReversed {
            order_no: Some(order_no()),
            refund_no: "R-1".to_owned(),
            amount: 990,
            currency,
            was: "SUCCEEDED",
            refund_id: refund_id(),
            pay_order_id: Some(pay_order_id()),
            stray_id: None,
            reason: "a cup was broken".to_owned(),
            failure: Some("refund account closed".to_owned()),
        },
        Event::WithdrawalFinished {
            withdrawal_no: "W-1".to_owned(),
            user_id: user_id(),
            status: "SUCCEEDED",
            amount: 4000,
            currency,
            failure: None,
        },
        Event::WithdrawalMadeAfterAll {
            withdrawal_no: "W-1".to_owned(),
            user_id: user_id(),
            amount: 4000,
            owed: 1500,
            currency,
        },
        Event::WithdrawalReturned {
            withdrawal_no: "W-1".to_owned(),
            user_id: user_id(),
            amount: 4000,
            currency,
        },
    ]
}

fn receivable_examples() -> Vec<Event> {
    let Ok(currency) = "CNY".parse() else { return Vec::new() };
    let (clearing_no, user_id) = (|| "C-1".to_owned(), || "u1".to_owned());
    vec![
        Event::ReceivableCollected { clearing_no: clearing_no(), user_id: user_id(), amount: 150, currency },
        Event::ReceivableWrittenOff { clearing_no: clearing_no(), user_id: user_id(), amount: 150, currency },
        Event::ReceivableRecovered {
            clearing_no: clearing_no(),
            user_id: user_id(),
            amount: 50,
            recovered: 50,
            currency,
        },
    ]
}

fn usage_examples() -> Vec<Event> {
    let Ok(currency) = "CNY".parse() else { return Vec::new() };
    let (hold_id, user_id) = (|| "uh_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned(), || "u1".to_owned());
    let charge_id = || "ri_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned();
    let pay_order_id = || "po_06H8K2M4N6P8R0T2V4X6Z8B0D2".to_owned();
    vec![
        Event::UsageCharged {
            hold_id: hold_id(),
            user_id: user_id(),
            product_code: "tokens".to_owned(),
            units: 900,
            charged: 450,
            shortfall: 0,
            currency,
            late: false,
        },
        Event::CompensatingChargeMade {
            charge_id: charge_id(),
            user_id: user_id(),
            order_no: "A-1".to_owned(),
            pay_order_id: pay_order_id(),
            amount: 1990,
            owed: 500,
            currency,
        },
        Event::CompensatingChargeReversed {
            charge_id: charge_id(),
            user_id: user_id(),
            order_no: "A-1".to_owned(),
            pay_order_id: pay_order_id(),
            amount: 1990,
            currency,
        },
        Event::UsageCycleCharged {
            hold_id: hold_id(),
            user_id: user_id(),
            product_code: "monthly".to_owned(),
            cycle: "2026-11".to_owned(),
            charged: 4000,
            currency,
        },
        Event::UsageHoldExhausted {
            hold_id: hold_id(),
            user_id: user_id(),
            product_code: "tokens".to_owned(),
            units: 1200,
            held: 500,
            currency,
            reason: "INSUFFICIENT_BALANCE",
        },
        Event::UsageHoldExpired {
            hold_id: hold_id(),
            user_id: user_id(),
            product_code: "tokens".to_owned(),
            units: Some(120),
            released: 500,
            currency,
        },
    ]
}
