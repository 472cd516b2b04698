//! Asking for a refund as the simulation does: by one order's figures, at the desk that batches use.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;

use super::create::AskedBy;
use super::desk::{Ask, Desk, Terms};
use super::model::{NewRefund, RefundStatus};
use crate::money::Amount;
use crate::orders::{OrderKey, OrderKind, OrderStatus};

/// An order as the desk sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sold {
    pub(crate) kind: OrderKind,
    pub(crate) status: OrderStatus,
    /// Minor units that were paid.
    pub(crate) amount: i64,
    pub(crate) is_paid_by_one: bool,
    /// Minor units of refunds that have not failed.
    pub(crate) asked: i64,
    /// What its user can spend.
    pub(crate) available: i64,
    /// Above so many minor units an operator must let a refund go.
    pub(crate) approval_above: i64,
}

/// The amount and the state of the refund that is made where so much is asked for (what is left, for nothing named);
/// nothing where it is refused.
pub(crate) fn ask(sold: &Sold, amount: Option<i64>) -> Option<(i64, RefundStatus)> {
    let key = OrderKey { merchant_id: "m".parse().ok()?, order_no: "A".parse().ok()? };
    let terms = Terms {
        kind: sold.kind,
        status: sold.status,
        user_id: "u".to_owned(),
        amount: sold.amount,
        currency: "CNY".parse().ok()?,
        paid_by: sold.is_paid_by_one.then(|| "po_1".to_owned()),
        asked: sold.asked,
        gone: 0,
        approval_above: Some(sold.approval_above),
        may_begin: true,
        is_charged: false,
    };
    let account = terms.wallet(&key.merchant_id).available;
    let ask = Ask {
        refund_id: "rf_1".parse().ok()?,
        merchant_id: key.merchant_id.clone(),
        new: NewRefund {
            refund_no: "R1".parse().ok()?,
            order_no: key.order_no.clone(),
            amount: amount.and_then(|minor| Amount::try_from(minor).ok()),
            reason: String::new(),
            return_stock: false,
        },
        asked_by: AskedBy::Merchant(None),
        leased_until: None,
        now: OffsetDateTime::UNIX_EPOCH,
    };
    let mut desk = Desk {
        orders: HashMap::from([(key, terms)]),
        available: BTreeMap::from([(account, sold.available)]),
        ..Desk::default()
    };
    desk.ask(&ask).ok().map(|created| (created.refund.amount, created.refund.status))
}
