//! What goes out: the bodies of the contract.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::money::Currency;
use crate::orders::{CloseReason, Metadata, OrderDetails, OrderItem, OrderKind, OrderStatus, SettleStatus};
use crate::pay::{Attempt, PayStatus, PayUrl};
use crate::refunds::{Refund, RefundStatus, StrayPayment, StrayReason, StrayStatus};
use crate::settlement::{Factor, Rate, Settlement, SettlementStatus};

/// A page of a list; the next one starts after its last entry.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// The entries.
    pub(super) data: Vec<T>,
    /// Whether there are more.
    pub(super) has_more: bool,
}

/// Which part of a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParams {
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    pub(super) limit: Option<u8>,
    /// The last entry of the page before.
    pub(super) starting_after: Option<String>,
}

/// Entries of a page that does not say how many.
const DEFAULT_LIMIT: u16 = 20;
/// Entries of a page at most.
const MAX_LIMIT: u16 = 100;

impl PageParams {
    /// How many entries to read: one more than asked for tells whether there are more.
    pub(super) fn limit(&self) -> Result<usize, super::error::Problem> {
        limit_of(self.limit.map(u16::from), DEFAULT_LIMIT, MAX_LIMIT)
    }

    /// The id of the last entry of the page before, which stands under that name there and begins so. What is no id of
    /// that kind would stand before or behind them all.
    pub(super) fn after_id(&self, name: &str, prefix: &str) -> Result<Option<&str>, super::error::Problem> {
        self.after(&format!("the `{name}`"), |text| text.starts_with(prefix).then_some(text))
    }

    /// The last entry of the page before, where it is named by more than one word: in such a form.
    pub(super) fn after<'a, T>(
        &'a self,
        form: &str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<Option<T>, super::error::Problem> {
        let Some(text) = self.starting_after.as_deref() else { return Ok(None) };
        let wrong = || {
            super::error::Problem::invalid(
                "starting_after",
                format!("expected {form} of the last entry before"),
            )
        };
        read(text).map(Some).ok_or_else(wrong)
    }
}

/// How many entries a page has at most, of those that were asked for.
pub(super) fn limit_of(asked: Option<u16>, default: u16, most: u16) -> Result<usize, super::error::Problem> {
    let limit = asked.unwrap_or(default);
    if (1..=most).contains(&limit) {
        return Ok(usize::from(limit));
    }
    Err(super::error::Problem::invalid("limit", format!("expected a whole number from 1 to {most}")))
}

impl<T> Page<T> {
    /// A page of at most `limit` of the rows, of which one more was read.
    pub(super) fn of<R>(mut rows: Vec<R>, limit: usize, view: impl FnMut(R) -> T) -> Self {
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        Self { data: rows.into_iter().map(view).collect(), has_more }
    }
}

/// A line of an order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ItemView {
    /// What is sold.
    sku: String,
    /// How many.
    quantity: i64,
    /// Minor units each.
    unit_price: i64,
}

impl From<OrderItem> for ItemView {
    fn from(item: OrderItem) -> Self {
        Self { sku: item.sku.into(), quantity: item.quantity, unit_price: item.unit_price }
    }
}

/// Who earns a commission, and how much.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RebateView {
    /// The earner, where it is not the buyer.
    user_id: Option<String>,
    /// The share, as a decimal string.
    #[schema(value_type = Option<String>)]
    rate: Option<Decimal>,
}

/// An order with all that belongs to it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"order_no": "A-1", "user_id": "u1", "kind": "SALE", "status": "PENDING",
    "close_reason": null, "amount": 1990, "currency": "CNY", "refunded_amount": 0,
    "items": [{"sku": "TEA", "quantity": 1, "unit_price": 1990}], "rebate": null, "subject": "Tea",
    "paid_by": null, "paid_at": null, "expires_at": "2026-11-21T10:30:00Z", "settle_status": "UNSETTLED",
    "pay_orders": [], "refunds": [], "stray_payments": [], "settlement": null, "metadata": null,
    "created_at": "2026-11-21T10:00:00Z"}))]
pub(super) struct OrderView {
    /// Its number.
    order_no: String,
    /// Whose order; told to operators only.
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_id: Option<String>,
    /// The buyer.
    user_id: String,
    /// What it is for.
    kind: OrderKind,
    /// Where it stands.
    status: OrderStatus,
    /// Why it was closed.
    close_reason: Option<CloseReason>,
    /// Minor units.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// Minor units of what paid it that went back. Stray money's refunds do not count here, nor those that failed and were made
    /// after all.
    refunded_amount: i64,
    /// Its lines.
    items: Vec<ItemView>,
    /// The commission's own terms.
    rebate: Option<RebateView>,
    /// What the buyer reads.
    subject: Option<String>,
    /// The attempt that paid.
    paid_by: Option<String>,
    /// When it was paid, by the channel's clock; not before it was made, nor after we heard of it.
    #[serde(with = "time::serde::rfc3339::option")]
    paid_at: Option<OffsetDateTime>,
    /// Its deadline.
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
    /// Whether its commission was settled.
    settle_status: SettleStatus,
    /// Its last hundred attempts, oldest first.
    pay_orders: Vec<PayOrderView>,
    /// Money that went back, or is on its way: the last hundred refunds, oldest first.
    refunds: Vec<RefundView>,
    /// Money that it did not accept: the last hundred times, oldest first.
    stray_payments: Vec<StrayPaymentView>,
    /// Its settlement.
    settlement: Option<SettlementView>,
    /// The merchant's own notes.
    #[schema(value_type = Option<serde_json::Value>)]
    metadata: Option<Metadata>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl OrderView {
    /// The same, as operators see it.
    pub(super) fn with_merchant(self, merchant_id: String) -> Self {
        Self { merchant_id: Some(merchant_id), ..self }
    }
}

impl From<OrderDetails> for OrderView {
    fn from(details: OrderDetails) -> Self {
        let OrderDetails { order, items, pay_orders, refunds, stray_payments, settlement } = details;
        // Without the zeros that the column's scale adds: the first answer and every later one read the same.
        let rate = order.rebate_rate.map(|rate| rate.normalize());
        let rebate = (order.rebate_user_id.is_some() || rate.is_some())
            .then(|| RebateView { user_id: order.rebate_user_id.map(Into::into), rate });
        Self {
            order_no: order.order_no.into(),
            merchant_id: None,
            user_id: order.user_id.into(),
            kind: order.kind,
            status: order.status,
            close_reason: order.close_reason,
            amount: order.amount,
            currency: order.currency,
            refunded_amount: order.refunded_amount,
            items: items.into_iter().map(Into::into).collect(),
            rebate,
            subject: order.subject,
            paid_by: order.paid_by,
            paid_at: order.paid_at,
            expires_at: order.expires_at,
            settle_status: order.settle_status,
            pay_orders: pay_orders.into_iter().map(Into::into).collect(),
            refunds: refunds.into_iter().map(Into::into).collect(),
            stray_payments: stray_payments.into_iter().map(Into::into).collect(),
            settlement: settlement.map(Into::into),
            metadata: order.metadata,
            created_at: order.created_at,
        }
    }
}

/// What an order's user earned by it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"order_no": "A-1", "user_id": "u1", "base_amount": 1990, "rate": "0.05", "factor": "1.2",
    "commission": 119, "clawed_back": 0, "currency": "CNY", "status": "SETTLED", "created_at": "2026-11-21T10:00:00Z"}))]
pub(super) struct SettlementView {
    /// Which order.
    order_no: String,
    /// Who earns it.
    user_id: String,
    /// Minor units that it was computed on: what had not gone back by then.
    base_amount: i64,
    /// The share over all lines, as a decimal string; frozen.
    #[schema(value_type = String)]
    rate: Rate,
    /// The factor of who earns, as a decimal string; frozen.
    #[schema(value_type = String)]
    factor: Factor,
    /// Minor units given.
    commission: i64,
    /// Minor units claimed back since, because money of the order went back.
    clawed_back: i64,
    /// Of what.
    currency: Currency,
    /// Where it stands.
    status: SettlementStatus,
    /// When it was settled.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Settlement> for SettlementView {
    fn from(settlement: Settlement) -> Self {
        Self {
            order_no: settlement.order_no.into(),
            user_id: settlement.user_id.into(),
            base_amount: settlement.base_amount,
            rate: settlement.rate,
            factor: settlement.factor,
            commission: settlement.commission,
            clawed_back: settlement.clawed_back,
            currency: settlement.currency,
            status: settlement.status,
            created_at: settlement.created_at,
        }
    }
}

/// An attempt to pay.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PayOrderView {
    /// Its id.
    pay_order_id: String,
    /// Its order.
    order_no: String,
    /// Who pays.
    payer_id: String,
    /// Its channel.
    channel: String,
    /// Where it stands.
    status: PayStatus,
    /// The link.
    pay_url: Option<String>,
    /// Minor units.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// The channel's number of the trade.
    transaction_id: Option<String>,
    /// When it was paid.
    #[serde(with = "time::serde::rfc3339::option")]
    paid_at: Option<OffsetDateTime>,
    /// The channel's code of a refusal.
    channel_code: Option<String>,
    /// The channel's words for it.
    channel_message: Option<String>,
    /// When the link dies.
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
    /// When it was begun.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Attempt> for PayOrderView {
    fn from(attempt: Attempt) -> Self {
        Self {
            pay_order_id: attempt.pay_order_id.into(),
            order_no: attempt.order_no.into(),
            payer_id: attempt.payer_id.into(),
            channel: attempt.channel,
            status: attempt.status,
            pay_url: attempt.pay_url,
            amount: attempt.amount,
            currency: attempt.currency,
            transaction_id: attempt.transaction_id,
            paid_at: attempt.paid_at,
            channel_code: attempt.channel_code,
            channel_message: attempt.channel_message,
            expires_at: attempt.expires_at,
            created_at: attempt.created_at,
        }
    }
}

/// Money that went back, or is on its way.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RefundView {
    /// Its id, as channels know it and claw-backs name it.
    #[schema(example = "rf_06H8K2M4N6P8R0T2V4X6Z8B0D2")]
    refund_id: String,
    /// Its number.
    refund_no: String,
    /// Its order.
    order_no: Option<String>,
    /// The paying attempt that it takes from; none when it gives a stray payment back.
    pay_order_id: Option<String>,
    /// The stray payment that it gives back, where it is one's.
    stray_id: Option<String>,
    /// Minor units.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// Where it stands.
    status: RefundStatus,
    /// Why it is made.
    reason: String,
    /// Why it failed.
    failure: Option<String>,
    /// Of one that stands `FAILED`: when its channel said that it made it after all. Its money has gone, and nothing goes back in
    /// its place.
    #[serde(with = "time::serde::rfc3339::option")]
    made_after_all_at: Option<OffsetDateTime>,
}

impl From<Refund> for RefundView {
    fn from(refund: Refund) -> Self {
        Self {
            refund_id: refund.refund_id,
            refund_no: refund.refund_no,
            order_no: refund.order_no,
            pay_order_id: refund.pay_order_id,
            stray_id: refund.stray_id,
            amount: refund.amount,
            currency: refund.currency,
            status: refund.status,
            reason: refund.reason,
            failure: refund.failure,
            made_after_all_at: refund.made_after_all_at,
        }
    }
}

/// A refund as operators see it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MerchantRefundView {
    /// Whose, where it is known.
    merchant_id: Option<String>,
    /// Whether the order's stock comes back, once all of its money has gone back.
    return_stock: bool,
    /// The operator who asked for it, where one did.
    asked_by: Option<String>,
    /// The rest, as its merchant sees it.
    #[serde(flatten)]
    refund: RefundView,
}

impl From<Refund> for MerchantRefundView {
    fn from(refund: Refund) -> Self {
        Self {
            merchant_id: refund.merchant_id.clone(),
            return_stock: refund.return_stock,
            asked_by: refund.asked_by.clone(),
            refund: refund.into(),
        }
    }
}

/// Money that an order did not accept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StrayPaymentView {
    /// Its id.
    stray_id: String,
    /// Whose, where it is known.
    merchant_id: Option<String>,
    /// Of which order, where it is known.
    order_no: Option<String>,
    /// Which attempt, where it is known.
    pay_order_id: Option<String>,
    /// Which channel took it.
    channel: String,
    /// The channel's number of the trade.
    transaction_id: String,
    /// Minor units really taken.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// Why the order did not accept it.
    reason: StrayReason,
    /// Where it stands.
    status: StrayStatus,
    /// When it was taken.
    #[serde(with = "time::serde::rfc3339")]
    paid_at: OffsetDateTime,
}

impl From<StrayPayment> for StrayPaymentView {
    fn from(stray: StrayPayment) -> Self {
        Self {
            stray_id: stray.stray_id,
            merchant_id: stray.merchant_id,
            order_no: stray.order_no,
            pay_order_id: stray.pay_order_id,
            channel: stray.channel,
            transaction_id: stray.transaction_id,
            amount: stray.amount,
            currency: stray.currency,
            reason: stray.reason,
            status: stray.status,
            paid_at: stray.paid_at,
        }
    }
}

/// A link and what it collects.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"pay_order_id": "po_06H8K2M4N6P8R0T2V4X6Z8B0D2", "order_no": "A-1", "channel": "sandbox",
    "status": "PAYING", "pay_url": "https://pay.example/sandbox/cashier/po_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    "amount": 1990, "currency": "CNY", "expires_at": "2026-11-21T10:30:00Z"}))]
pub(super) struct PayUrlView {
    /// The attempt.
    pay_order_id: String,
    /// Its order.
    order_no: String,
    /// Its channel.
    channel: String,
    /// Always `PAYING`.
    status: PayStatus,
    /// Where the buyer pays.
    pay_url: String,
    /// Minor units.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// When the link dies; never after the order.
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

impl From<PayUrl> for PayUrlView {
    fn from(link: PayUrl) -> Self {
        Self {
            pay_order_id: link.pay_order_id.into(),
            order_no: link.order_no.into(),
            channel: link.channel,
            status: PayStatus::Paying,
            pay_url: link.pay_url,
            amount: link.amount,
            currency: link.currency,
            expires_at: link.expires_at,
        }
    }
}
