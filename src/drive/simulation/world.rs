//! Our side: rows as the database holds them, each write whole or not at all. What is only in the memory of a worker
//! that waits for a channel's answer is a [`Flight`], and dies with it.

use super::channel::{Channels, Said};
use super::rules::Rules;
use crate::channels::{Answerer, CallError, PayoutState, RefundState, TradeState};
use crate::compensation::{Action, TaskStatus};
use crate::orders::{CloseReason, OrderEvent, OrderKind, OrderStatus};
use crate::pay::report::Verdict;
use crate::pay::report::simulated::Judge;
use crate::pay::simulated::Seller;
use crate::pay::{PayEvent, PayStatus};
use crate::refunds::{RefundStatus, StrayEvent, StrayReason, StrayStatus};
use crate::settlement::{Factor, Rate, SettlementStatus, Terms};
use crate::withdrawals::{WithdrawalEvent, WithdrawalStatus};

/// What the order costs, and how long it lives.
pub(super) const AMOUNT: i64 = 100;
pub(super) const LIFE: i64 = 1_800;
/// Above so much an operator must let a refund go.
pub(super) const APPROVAL_ABOVE: i64 = 60;
/// What the user had before.
pub(super) const OPENING: i64 = 40;

pub(super) struct Order {
    pub(super) status: OrderStatus,
    pub(super) kind: OrderKind,
    pub(super) refunded: i64,
    pub(super) paid_by: Option<usize>,
}

pub(super) struct Attempt {
    pub(super) status: PayStatus,
    pub(super) channel: usize,
    pub(super) transaction: Option<usize>,
    pub(super) expires_at: i64,
    /// Callbacks know it, and no row is here yet.
    pub(super) is_hidden: bool,
}

/// Money that is written down: by which payment, and the stray row where it is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) payment: usize,
    pub(super) stray: Option<usize>,
}

pub(super) struct Stray {
    pub(super) status: StrayStatus,
    pub(super) reason: StrayReason,
    pub(super) payment: usize,
    pub(super) minor: i64,
    /// Whether an exception is open for it.
    pub(super) is_shown: bool,
}

/// What a refund gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Paid,
    Stray(usize),
}

pub(super) struct Refund {
    pub(super) status: RefundStatus,
    pub(super) source: Source,
    pub(super) minor: i64,
    pub(super) was_made: bool,
    /// An exception says that it was made although it had been refused: so much is not left.
    pub(super) is_contradicted: bool,
}

pub(super) struct Withdrawal {
    pub(super) status: WithdrawalStatus,
    pub(super) minor: i64,
}

pub(super) struct Settlement {
    pub(super) status: SettlementStatus,
    pub(super) commission: i64,
    pub(super) clawed_back: i64,
    pub(super) settled_on: i64,
}

/// A callback that is kept: by its id, and by the payment too where the id was used twice.
pub(super) struct Kept {
    pub(super) id: (usize, Option<usize>),
    pub(super) said: Said,
    pub(super) verdict: Verdict,
    pub(super) received_at: i64,
}

pub(super) struct Task {
    pub(super) id: u32,
    pub(super) action: Action,
    pub(super) subject: usize,
    pub(super) status: TaskStatus,
    pub(super) tries: i32,
    /// How often it was taken; this never goes back.
    pub(super) claims: u32,
    pub(super) due_at: i64,
}

/// A try of a task, by who took it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) id: u32,
    pub(super) tries: i32,
    pub(super) claim: u32,
    pub(super) action: Action,
    pub(super) subject: usize,
}

/// How a try ended, as it is written down: when it comes again, where it does, and whether it counts as none.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) of: Try,
    pub(super) again: Option<i64>,
    pub(super) is_untried: bool,
}

/// What a worker is about to ask a channel for, or the answer that nobody has written down yet.
pub(super) enum Half {
    MakeRefund(usize),
    MakePayout(usize),
    Link(usize, Result<(), CallError>),
    /// Of an attempt that stood so when it was asked.
    Close(usize, PayStatus, Result<TradeState, CallError>, Then),
    Refund(usize, Answerer, Result<RefundState, CallError>),
    Payout(usize, Result<PayoutState, CallError>),
}

/// What follows a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    CloseOrder(CloseReason),
}

pub(super) struct Flight {
    pub(super) half: Half,
    /// For which try, where a task is behind it.
    pub(super) of: Option<Try>,
}

/// A change of state, as history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Order(OrderStatus, OrderStatus),
    Attempt(usize, PayStatus, PayStatus),
    Stray(usize, StrayStatus, StrayStatus),
    Refund(usize, RefundStatus, RefundStatus),
    Withdrawal(usize, WithdrawalStatus, WithdrawalStatus),
    Settlement(SettlementStatus, SettlementStatus),
}

pub(super) struct World {
    pub(super) rules: Rules,
    pub(super) judge: Judge,
    pub(super) seller: Seller,
    pub(super) terms: Terms,
    pub(super) now: i64,
    pub(super) expires_at: i64,
    /// Whether stray money goes back at once.
    pub(super) refunds_strays: bool,
    pub(super) order: Order,
    pub(super) attempts: Vec<Attempt>,
    pub(super) known: Vec<Known>,
    pub(super) strays: Vec<Stray>,
    pub(super) refunds: Vec<Refund>,
    pub(super) withdrawals: Vec<Withdrawal>,
    pub(super) settlement: Option<Settlement>,
    pub(super) inbox: Vec<Kept>,
    /// What the user can spend, what is set aside, what is owed.
    pub(super) available: i64,
    pub(super) held: i64,
    pub(super) owed: i64,
    pub(super) tasks: Vec<Task>,
    pub(super) tasks_made: u32,
    pub(super) flights: Vec<Flight>,
    /// The last claim that was put back untried: nobody may have heard that it was, and then it is again.
    pub(super) put_back: Option<End>,
    pub(super) theirs: Channels,
    /// Since the last look: changes of state, and tasks that said they are done.
    pub(super) moves: Vec<Move>,
    pub(super) done: Vec<(Action, usize)>,
    /// What was decided and then refused by a table, or by a constraint.
    pub(super) stuck: Option<&'static str>,
    /// Whether anything was written since the last look.
    pub(super) is_touched: bool,
}

impl World {
    pub(super) fn new(rules: Rules, seed: u64) -> Self {
        let rate = |text: &str| Rate::try_from(text.to_owned()).expect("a rate");
        let factor = Factor::try_from("1.5".to_owned()).expect("a factor");
        Self {
            rules,
            judge: Judge::new(),
            seller: Seller::new(),
            // Two lines: 70 of them at 7 %, 30 at 11 %.
            terms: Terms::new(AMOUNT, [(70, rate("0.07")), (30, rate("0.11"))], factor),
            now: 0,
            expires_at: LIFE,
            refunds_strays: seed & 1 == 0,
            order: Order {
                status: OrderStatus::Pending,
                kind: if seed & 6 == 0 { OrderKind::TopUp } else { OrderKind::Sale },
                refunded: 0,
                paid_by: None,
            },
            attempts: Vec::new(),
            known: Vec::new(),
            strays: Vec::new(),
            refunds: Vec::new(),
            withdrawals: Vec::new(),
            settlement: None,
            inbox: Vec::new(),
            available: OPENING,
            held: 0,
            owed: 0,
            tasks: Vec::new(),
            tasks_made: 0,
            flights: Vec::new(),
            put_back: None,
            theirs: Channels::default(),
            moves: Vec::new(),
            done: Vec::new(),
            stuck: None,
            is_touched: false,
        }
    }

    /// The live attempt; the database takes no second one.
    pub(super) fn live(&self) -> Option<usize> {
        self.attempts.iter().position(|attempt| !attempt.is_hidden && attempt.status.is_live())
    }

    pub(super) fn is_visible(&self, attempt: usize) -> bool {
        self.attempts.get(attempt).is_some_and(|attempt| !attempt.is_hidden)
    }

    // ---- moves: each asks its table, and leaves its line of history -------------------------------------------

    pub(super) fn move_order(&mut self, event: OrderEvent) -> bool {
        let from = self.order.status;
        let Some(to) = (self.rules.order)(from, event) else { return false };
        if to != from {
            self.moves.push(Move::Order(from, to));
        }
        self.order.status = to;
        self.is_touched = true;
        true
    }

    pub(super) fn move_attempt(&mut self, number: usize, event: PayEvent) -> bool {
        let from = self.attempts[number].status;
        let Some(to) = (self.rules.pay)(from, event) else { return false };
        self.moves.push(Move::Attempt(number, from, to));
        self.attempts[number].status = to;
        self.is_touched = true;
        true
    }

    pub(super) fn move_stray(&mut self, number: usize, event: StrayEvent) -> bool {
        let from = self.strays[number].status;
        let Some(to) = (self.rules.stray)(from, event) else { return false };
        self.moves.push(Move::Stray(number, from, to));
        self.strays[number].status = to;
        self.is_touched = true;
        true
    }

    pub(super) fn set_refund(&mut self, number: usize, to: RefundStatus) {
        let from = self.refunds[number].status;
        self.moves.push(Move::Refund(number, from, to));
        self.refunds[number].status = to;
        self.is_touched = true;
    }

    pub(super) fn move_withdrawal(&mut self, number: usize, event: WithdrawalEvent) -> bool {
        let from = self.withdrawals[number].status;
        let Some(to) = (self.rules.withdrawal)(from, event) else { return false };
        self.moves.push(Move::Withdrawal(number, from, to));
        self.withdrawals[number].status = to;
        self.is_touched = true;
        true
    }

    pub(super) fn must(&mut self, moved: bool, what: &'static str) {
        if !moved {
            self.stuck = Some(what);
            self.is_touched = true;
        }
    }
}
