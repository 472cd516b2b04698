//! The plain success of a refund, as nearly all end: of an order whose commission was not settled, told as it was asked
//! for. Pure.
//!
//! A batch puts the refunds and orders that it has locked on a sheet, notes one success after the other, each seeing
//! what the one before it left, and then writes the sheet down. What is not plain is left to [`super::result`].

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::collected::account_of;
use super::model::{Refund, RefundEvent, RefundStatus};
use super::{book, result, told};
use crate::ledger::Posting;
use crate::money::{Currency, Money};
use crate::orders::{self, OrderEvent, OrderKind, OrderStatus};
use crate::outbox::Event;

/// Writes down that a refund was made.
#[derive(Clone, Debug)]
pub(super) struct Succeed {
    pub(super) refund_id: String,
    /// The channel's number of it.
    pub(super) channel_refund_id: String,
    /// What a callback says: its channel, and what went back where it says so.
    pub(super) claim: Option<(String, Option<Money>)>,
    pub(super) now: OffsetDateTime,
}

/// A locked refund of an order.
#[derive(Clone, Debug)]
pub(super) struct Locked {
    pub(super) refund: Refund,
    /// The channel that collected its money.
    pub(super) channel: String,
}

/// A locked order, as it stands and as it was found.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) kind: OrderKind,
    pub(super) user_id: String,
    pub(super) status: OrderStatus,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) refunded_amount: i64,
    pub(super) version: i32,
    pub(super) is_settled: bool,
    /// Whether a refund of this batch wants its stock back.
    pub(super) wants_stock: bool,
}

/// A change of an order's state.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) order: OrderNames,
    pub(super) seq: i32,
    pub(super) from: OrderStatus,
    pub(super) to: OrderStatus,
    pub(super) event: OrderEvent,
}

/// Merchant and number, in the order in which rows are locked.
pub(super) type OrderNames = (String, String);

/// What a batch has locked, and what is to be written.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) refunds: BTreeMap<String, Locked>,
    pub(super) orders: BTreeMap<OrderNames, Standing>,
    /// Refunds that were made, with the channel's number of each.
    pub(super) made: Vec<(Refund, String)>,
    pub(super) changes: Vec<Change>,
    pub(super) postings: Vec<Posting>,
    pub(super) events: Vec<(OrderNames, Event)>,
}

impl Sheet {
    /// Notes a success; `false` for what is not plain: nothing is noted of it.
    pub(super) fn note(&mut self, success: &Succeed) -> bool {
        let Some(locked) = self.refunds.get_mut(&success.refund_id) else { return false };
        let refund = &locked.refund;
        let names =
            (refund.merchant_id.clone().unwrap_or_default(), refund.order_no.clone().unwrap_or_default());
        let Some(order) = self.orders.get_mut(&names) else { return false };
        if let Some((channel, money)) = &success.claim
            && !result::is_as_asked(channel, *money, &locked.channel, (refund.amount, refund.currency))
        {
            return false;
        }
        if refund.status == RefundStatus::Succeeded {
            return true;
        }
        let refunded_amount = order.refunded_amount + refund.amount;
        let event = orders::event_of_refunds(order.amount, order.refunded_amount, refunded_amount);
        let (Some(status), Ok(to)) = (refund.status.after(RefundEvent::Succeeded), order.status.after(event))
        else {
            return false;
        };
        if order.is_settled {
            return false;
        }
        if to != order.status {
            order.version += 1;
            let (order_names, seq, from) = (names.clone(), order.version, order.status);
            self.changes.push(Change { order: order_names, seq, from, to, event });
        }
        order.status = to;
        order.refunded_amount = refunded_amount;
        order.wants_stock |= refund.return_stock;
        let account = account_of(order.kind, &names.0, &order.user_id, order.currency);
        self.postings.push(book::given_back(refund, account, &locked.channel));
        self.events.push((names, told::ended(refund, status, None)));
        self.made.push((refund.clone(), success.channel_refund_id.clone()));
        locked.refund.status = status;
        true
    }

    /// The orders that were moved.
    pub(super) fn moved(&self) -> Vec<(&OrderNames, &Standing)> {
        let is_moved = |names: &&OrderNames| self.events.iter().any(|(of, _)| of == *names);
        self.orders.iter().filter(|(names, _)| is_moved(names)).collect()
    }
}
