//! Every event, typed and versioned.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::money::Currency;

/// Something the merchant must hear of. Fields may be added to a version; none changes, and none goes. Its title in the document
/// is its name.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Event {
    /// An order was paid.
    #[schema(title = "order.paid")]
    OrderPaid {
        /// Which order.
        order_no: String,
        /// Whose.
        user_id: String,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
        /// The attempt that paid.
        pay_order_id: String,
        /// Through which channel.
        channel: String,
        /// The channel's number of the trade.
        transaction_id: String,
        /// When, by the channel's clock; not before the order was made, nor after we heard of it.
        #[serde(with = "time::serde::rfc3339")]
        paid_at: OffsetDateTime,
    },
    /// An order was closed without being paid.
    #[schema(title = "order.closed")]
    OrderClosed {
        /// Which order.
        order_no: String,
        /// Whose.
        user_id: String,
        /// `TIMEOUT` or `CANCELLED`.
        close_reason: &'static str,
    },
    /// An order's commission was settled.
    #[schema(title = "order.settled")]
    OrderSettled {
        /// Which order.
        order_no: String,
        /// Who earns it.
        user_id: String,
        /// Minor units that it was computed on.
        base_amount: i64,
        /// Minor units; may be nothing.
        commission: i64,
        /// Of what.
        currency: Currency,
    },
    /// A refund of an order changed what is claimed back of its commission.
    #[schema(title = "settlement.clawed_back")]
    SettlementClawedBack {
        /// Which order.
        order_no: String,
        /// Who earned it.
        user_id: String,
        /// Minor units this time; below zero where the channel took a refund back and the user gets them again.
        amount: i64,
        /// Minor units in all.
        clawed_back: i64,
        /// Of so many.
        commission: i64,
        /// Of what.
        currency: Currency,
        /// The refund, by its id.
        reference: String,
    },
    /// A channel took money that the order does not accept.
    #[schema(title = "stray_payment.received")]
    StrayPaymentReceived {
        /// Which order, where it is known.
        order_no: Option<String>,
        /// Its id here.
        stray_id: String,
        /// Why it is not accepted.
        reason: &'static str,
        /// Minor units really taken.
        amount: i64,
        /// Of what.
        currency: Currency,
        /// The attempt that the channel named, where it is one of this order.
        pay_order_id: Option<String>,
        /// Which channel took it.
        channel: String,
        /// The channel's number of the trade.
        transaction_id: String,
        /// When, by the channel's clock.
        #[serde(with = "time::serde::rfc3339")]
        paid_at: OffsetDateTime,
    },
    /// Money that the order does not accept is kept, by a person's decision.
    #[schema(title = "stray_payment.kept")]
    StrayPaymentKept {
        /// Which order, where it is known.
        order_no: Option<String>,
        /// Its id here.
        stray_id: String,
        /// Why it was not accepted.
        reason: &'static str,
        /// Minor units, which are the merchant's now, or the service's own where none is known.
        amount: i64,
        /// Of what.
        currency: Currency,
    },
    /// A refund came to its end.
    #[schema(title = "refund.finished")]
    RefundFinished {
        /// Which order, where it is known.
        order_no: Option<String>,
        /// The refund's number.
        refund_no: String,
        /// `SUCCEEDED` or `FAILED`.
        status: &'static str,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
        /// Its id here, by which claw-backs name it.
        refund_id: String,
        /// The attempt whose money goes back; none where it is a stray payment's.
        pay_order_id: Option<String>,
        /// The stray payment that goes back, beside what its order paid; none where it is an order's own payment.
        stray_id: Option<String>,
        /// Why it was asked for, or of a stray payment why its order did not accept it.
        reason: String,
        /// Why it failed.
        failure: Option<String>,
    },
    /// The channel made a refund after all that had failed: what it gave back is gone.
    #[schema(title = "refund.made_after_all")]
    RefundMadeAfterAll {
        /// Which order, where it is known.
        order_no: Option<String>,
        /// The refund's number.
        refund_no: String,
        /// Minor units.
        amount: i64,
        /// Minor units of them that the user whose top-up it was did not have any more, and owes; 0 of anything else.
        owed: i64,
        /// Of what.
        currency: Currency,
        /// Its id here, by which claw-backs name it.
        refund_id: String,
        /// The attempt whose money goes back; none where it is a stray payment's.
        pay_order_id: Option<String>,
        /// The stray payment that goes back, beside what its order paid; none where it is an order's own payment.
        stray_id: Option<String>,
        /// Why it was asked for, or of a stray payment why its order did not accept it.
        reason: String,
    },
    /// A refund that had succeeded, or was made after all, was taken back by the channel; or the latter was never so.
    #[schema(title = "refund.reversed")]
    RefundReversed {
        /// Which order, where it is known.
        order_no: Option<String>,
        /// The refund's number.
        refund_no: String,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
        /// What it was: `SUCCEEDED`, or `MADE_AFTER_ALL` behind a failure.
        was: &'static str,
        /// Its id here, by which claw-backs name it.
        refund_id: String,
        /// The attempt whose money goes back; none where it is a stray payment's.
        pay_order_id: Option<String>,
        /// The stray payment that goes back, beside what its order paid; none where it is an order's own payment.
        stray_id: Option<String>,
        /// Why it was asked for, or of a stray payment why its order did not accept it.
        reason: String,
        /// Why it stands failed now: what the channel says of taking it back, or its failure from before.
        failure: Option<String>,
    },
    /// A withdrawal came to its end.
    #[schema(title = "withdrawal.finished")]
    WithdrawalFinished {
        /// The withdrawal's number.
        withdrawal_no: String,
        /// Whose money.
        user_id: String,
        /// `SUCCEEDED` or `REVERSED`.
        status: &'static str,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
        /// Why it was refused.
        failure: Option<String>,
    },
    /// The channel made a withdrawal after all that had been given back, or had come back: its money was taken from its user once
    /// more.
    #[schema(title = "withdrawal.made_after_all")]
    WithdrawalMadeAfterAll {
        /// The withdrawal's number.
        withdrawal_no: String,
        /// Whose money.
        user_id: String,
        /// Minor units.
        amount: i64,
        /// Minor units of them that the user did not have any more, and owes.
        owed: i64,
        /// Of what.
        currency: Currency,
    },
    /// The money of a withdrawal came back, after it had succeeded or was made after all; or the latter was never so. Its user has it
    /// again.
    #[schema(title = "withdrawal.returned")]
    WithdrawalReturned {
        /// The withdrawal's number.
        withdrawal_no: String,
        /// Whose money.
        user_id: String,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
    },
    /// What a user owes, or a part of it, was taken from what they have.
    #[schema(title = "receivable.collected")]
    ReceivableCollected {
        /// The operator's number of it.
        clearing_no: String,
        /// Who owes it no more.
        user_id: String,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
    },
    /// What a user owes, or a part of it, was written off: it is the merchant's loss.
    #[schema(title = "receivable.written_off")]
    ReceivableWrittenOff {
        /// The operator's number of it.
        clearing_no: String,
        /// Who owes it no more.
        user_id: String,
        /// Minor units.
        amount: i64,
        /// Of what.
        currency: Currency,
    },
    /// What had been written off came back, because what its user had owed it for was undone.
    #[schema(title = "receivable.recovered")]
    ReceivableRecovered {
        /// The number by which it was written off.
        clearing_no: String,
        /// Whose debt it was.
        user_id: String,
        /// Minor units this time.
        amount: i64,
        /// Minor units of it in all.
        recovered: i64,
        /// Of what.
        currency: Currency,
    },
    /// Metered work was charged.
    #[schema(title = "usage.charged")]
    UsageCharged {
        /// The hold.
        hold_id: String,
        /// Whose work.
        user_id: String,
        /// Of which product.
        product_code: String,
        /// What was used.
        units: i64,
        /// Minor units taken for it; what its cycle cost is told on its own.
        charged: i64,
        /// Minor units that were due and not there: the user owes them.
        shortfall: i64,
        /// Of what.
        currency: Currency,
        /// Whether its hold had expired before.
        late: bool,
    },
    /// Metered work that was paid with a top-up whose money never came was charged once more.
    #[schema(title = "compensating_charge.made")]
    CompensatingChargeMade {
        /// Its id here: the bookings on the user's balance name it.
        charge_id: String,
        /// Who is charged.
        user_id: String,
        /// The top-up's order.
        order_no: String,
        /// The attempt whose money never came.
        pay_order_id: String,
        /// Minor units that the top-up gave: all that is charged, taken and owed.
        amount: i64,
        /// Minor units of them that the user did not have any more, and owes.
        owed: i64,
        /// Of what.
        currency: Currency,
    },
    /// A compensating charge was given back, by a person's decision: its user has what it took again, and owes nothing for it.
    #[schema(title = "compensating_charge.reversed")]
    CompensatingChargeReversed {
        /// Its id here.
        charge_id: String,
        /// Who was charged.
        user_id: String,
        /// The top-up's order.
        order_no: String,
        /// The attempt whose money it was about.
        pay_order_id: String,
        /// Minor units that it was for, taken and owed. What that comes to on the user's balances by then is in their entries
        /// `REVERSAL:COMPENSATING_CHARGE:{charge_id}` and `CHARGE_PAID_BACK:{charge_id}`.
        amount: i64,
        /// Of what.
        currency: Currency,
    },
    /// A user's cycle was paid for, in advance.
    #[schema(title = "usage.cycle_charged")]
    UsageCycleCharged {
        /// The hold that did.
        hold_id: String,
        /// Whose cycle.
        user_id: String,
        /// Of which product.
        product_code: String,
        /// Which cycle.
        cycle: String,
        /// Minor units taken.
        charged: i64,
        /// Of what.
        currency: Currency,
    },
    /// Work passed what could be set aside for it, and should stop. Told once, and again when it does so after all of it
    /// could be set aside in between.
    #[schema(title = "usage.hold_exhausted")]
    UsageHoldExhausted {
        /// The hold.
        hold_id: String,
        /// Whose work.
        user_id: String,
        /// Of which product.
        product_code: String,
        /// What was used by then.
        units: i64,
        /// Minor units that are set aside for it.
        held: i64,
        /// Of what.
        currency: Currency,
        /// `INSUFFICIENT_BALANCE` or `QUOTA_EXCEEDED`.
        reason: &'static str,
    },
    /// A hold ran out before its work was confirmed, and its money is free again.
    #[schema(title = "usage.hold_expired")]
    UsageHoldExpired {
        /// The hold.
        hold_id: String,
        /// Whose work.
        user_id: String,
        /// Of which product.
        product_code: String,
        /// What was reported until then; nothing where nothing was.
        units: Option<i64>,
        /// Minor units freed.
        released: i64,
        /// Of what.
        currency: Currency,
    },
}

impl Event {
    /// The event's name, as subscribers filter by it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::OrderPaid { .. } => "order.paid",
            Self::OrderClosed { .. } => "order.closed",
            Self::OrderSettled { .. } => "order.settled",
            Self::SettlementClawedBack { .. } => "settlement.clawed_back",
            Self::StrayPaymentReceived { .. } => "stray_payment.received",
            Self::StrayPaymentKept { .. } => "stray_payment.kept",
            Self::RefundFinished { .. } => "refund.finished",
            Self::RefundMadeAfterAll { .. } => "refund.made_after_all",
            Self::RefundReversed { .. } => "refund.reversed",
            Self::WithdrawalFinished { .. } => "withdrawal.finished",
            Self::WithdrawalMadeAfterAll { .. } => "withdrawal.made_after_all",
            Self::WithdrawalReturned { .. } => "withdrawal.returned",
            Self::ReceivableCollected { .. } => "receivable.collected",
            Self::ReceivableWrittenOff { .. } => "receivable.written_off",
            Self::ReceivableRecovered { .. } => "receivable.recovered",
            Self::UsageCharged { .. } => "usage.charged",
            Self::CompensatingChargeMade { .. } => "compensating_charge.made",
            Self::CompensatingChargeReversed { .. } => "compensating_charge.reversed",
            Self::UsageCycleCharged { .. } => "usage.cycle_charged",
            Self::UsageHoldExhausted { .. } => "usage.hold_exhausted",
            Self::UsageHoldExpired { .. } => "usage.hold_expired",
        }
    }

    /// The version of the event's fields.
    #[must_use]
    pub const fn version(&self) -> i16 {
        1
    }

    /// The event's fields as JSON.
    #[must_use]
    pub fn payload(&self) -> Value {
        // Plain structs of texts and numbers always have a JSON form.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}
