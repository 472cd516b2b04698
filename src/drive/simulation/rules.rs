//! What our side goes by: the project's own pure functions, and nothing else. A check of the checks bends one of them.

use std::cell::RefCell;
use std::future::ready;

use futures_util::FutureExt;

use super::channel::Channels;
use super::ops::Fault;
use super::world::{Task, Try};
use crate::channels::{
    self, Answerer, CallError, PayoutState, RefundState, TradeState, ask_redo_ask, make_then_ask,
};
use crate::compensation::{self, Action, TaskStatus};
use crate::drive::decide::{Remedy, decide};
use crate::drive::store::Facts;
use crate::orders::{self, OrderEvent, OrderStatus};
use crate::pay::report::Verdict;
use crate::pay::report::simulated::{Judge, Judged, Seen};
use crate::pay::simulated::{Live, Seller, Told};
use crate::pay::{PayEvent, PayStatus};
use crate::refunds::simulated::Sold;
use crate::refunds::{self, Next, RefundEvent, RefundStatus, StrayEvent, StrayStatus};
use crate::settlement::{self, SettlementStatus, Shares};
use crate::withdrawals::{WithdrawalEvent, WithdrawalStatus};

/// A question that the channels are asked about a call, with what goes wrong on the way there and back.
type Asking<T> = fn(&mut Channels, Call, [Fault; 2]) -> T;
/// What is asked for of an order, and what is made of it: its amount and its state.
type Wish = fn(&Sold, Option<i64>) -> Option<(i64, RefundStatus)>;
/// Who asks for a link is told something, by the order and its deadline, the live attempt, the channel, and now.
type Telling = fn(&mut Seller, (OrderStatus, i64), Option<Live>, usize, i64) -> Told;
/// Its state, all of it, what was claimed back before, what is due on the rest.
type Following = fn(SettlementStatus, i64, i64, i64) -> Option<(i64, SettlementStatus)>;

/// The functions by name. `None` is a refusal.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) pay: fn(PayStatus, PayEvent) -> Option<PayStatus>,
    pub(super) order: fn(OrderStatus, OrderEvent) -> Option<OrderStatus>,
    pub(super) stray: fn(StrayStatus, StrayEvent) -> Option<StrayStatus>,
    pub(super) approval: fn(RefundStatus, RefundEvent) -> Option<RefundStatus>,
    pub(super) withdrawal: fn(WithdrawalStatus, WithdrawalEvent) -> Option<WithdrawalStatus>,
    /// What a result does to a refund: its state, the event, what of ours it answers.
    pub(super) result: fn(RefundStatus, RefundEvent, Option<Answerer>) -> Next,
    /// What refunds do to an order: its amount, what had gone back, what has.
    pub(super) refunded: fn(i64, i64, i64) -> OrderEvent,
    /// Whether a refund may be asked for, and of how much.
    pub(super) ask: Wish,
    /// What somebody is told who asks for a link.
    pub(super) tell: Telling,
    pub(super) judge: fn(&mut Judge, &Seen) -> (Judged, Verdict),
    pub(super) remedy: fn(Action, &Facts) -> Remedy,
    pub(super) retry_after: fn(Action, i32) -> Option<i64>,
    /// Whether whoever made that try has the task: what every statement about it asks.
    pub(super) is_held: fn(&Task, Try) -> bool,
    /// How a commission follows.
    pub(super) follow: Following,
    pub(super) shares: fn(i64, i64, i64) -> Shares,
    /// A refund: its number, the payment, minor units, and whether it may have been asked for before.
    pub(super) refund: Asking<(Answerer, Result<RefundState, CallError>)>,
    pub(super) payout: Asking<Result<PayoutState, CallError>>,
}

/// A call that moves money out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: usize,
    pub(super) payment: usize,
    pub(super) minor: i64,
    pub(super) is_first: bool,
}

impl Rules {
    pub(super) fn ours() -> Self {
        Self {
            pay: PayStatus::after,
            order: |from, event| from.after(event).ok(),
            stray: StrayStatus::after,
            approval: RefundStatus::after,
            withdrawal: WithdrawalStatus::after,
            result: Next::of,
            refunded: orders::event_of_refunds,
            ask: refunds::simulated::ask,
            tell: Seller::tell,
            judge: Judge::judge,
            remedy: decide,
            retry_after: |action, tries| {
                compensation::retry_after(action, tries).map(time::Duration::whole_seconds)
            },
            is_held: |task, of| (task.id, task.claims, task.status) == (of.id, of.claim, TaskStatus::Running),
            follow: settlement::follow,
            shares: Shares::of,
            refund,
            payout,
        }
    }
}

const UNHEARD: &str = "a ready future is ready";

fn refund(
    books: &mut Channels,
    call: Call,
    faults: [Fault; 2],
) -> (Answerer, Result<RefundState, CallError>) {
    let books = RefCell::new(books);
    let make = || ready(books.borrow_mut().refund(call.number, call.payment, call.minor, faults[0]));
    let ask = || ready(books.borrow().query_refund(call.number, faults[1]));
    let is_unseen = |state: &RefundState| *state == RefundState::Unseen;
    let told = match call.is_first {
        true => make_then_ask(make, ask, is_unseen).now_or_never(),
        // What was declined is not done by an earlier call that comes late, so nothing has to settle.
        false => ask_redo_ask(ask, make, is_unseen, true).now_or_never(),
    };
    told.expect(UNHEARD)
}

fn payout(books: &mut Channels, call: Call, faults: [Fault; 2]) -> Result<PayoutState, CallError> {
    let books = RefCell::new(books);
    let make = || ready(books.borrow_mut().payout(call.number, call.minor, faults[0]));
    let ask = || ready(books.borrow().query_payout(call.number, faults[1]));
    let is_unseen = |state: &PayoutState| *state == PayoutState::Unseen;
    let told = match call.is_first {
        true => make_then_ask(make, ask, is_unseen).now_or_never(),
        false => ask_redo_ask(ask, make, is_unseen, true).now_or_never(),
    };
    told.expect(UNHEARD).1
}

/// Closes a trade, and asks where the close does not say what became of its money.
pub(super) fn close(
    books: &mut Channels,
    attempt: usize,
    faults: [Fault; 2],
) -> Result<TradeState, CallError> {
    let closing = books.close(attempt, faults[0]);
    let ask = || ready(books.query(attempt, faults[1]));
    channels::close_then_ask(closing, ask).now_or_never().expect(UNHEARD)
}
