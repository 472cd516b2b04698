//! The decision over a report as the simulation asks for it: by what is known, and without a database.

use time::OffsetDateTime;

use super::decide::{Remedy, decide};
use super::store::{Facts, Matched};
use super::{Origin, Report, Verdict};
use crate::channels::{Payment, Refusal, TradeState};
use crate::money::{Amount, Currency, Money};
use crate::orders::{OrderKey, OrderKind, OrderStatus};
use crate::pay::model::{PayEvent, PayStatus};
use crate::refunds::{StrayPolicy, StrayReason};

/// What a channel says of a trade, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// It took so many minor units; of the currency that was asked, or of another.
    Paid(i64, bool),
    /// It failed.
    Failed,
    /// It was closed.
    Closed,
    /// It waits.
    Pending,
    /// It was never seen.
    Unseen,
}

/// How a report comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a callback.
    Callback,
    /// By a callback that was kept.
    Rematch,
    /// By our question.
    Query,
    /// By our close, of an attempt that has moved since or not.
    Close { has_moved: bool },
    /// By a statement.
    Statement,
}

/// What is known when it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) earlier: Option<Verdict>,
    pub(crate) known_stray: Option<StrayReason>,
    pub(crate) is_trade_known: bool,
    /// The order's and the attempt's state, and what the attempt collects.
    pub(crate) matched: Option<(OrderStatus, PayStatus, i64)>,
    pub(crate) says: Says,
    pub(crate) way: Way,
}

/// What is done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Nothing,
    Split,
    Pay,
    Stray(StrayReason, Option<PayEvent>),
    End(PayEvent),
    Unmatched,
    GiveUp,
    WrongAccount,
}

/// The decision, with the texts that are the same each time.
pub(crate) struct Judge {
    asked: Currency,
    other: Currency,
    facts: Facts,
    matched: Option<Matched>,
}

impl Judge {
    pub(crate) fn new() -> Self {
        let asked = "CNY".parse().expect("a currency");
        let matched = Matched {
            key: OrderKey { merchant_id: "m".parse().expect("one"), order_no: "A".parse().expect("one") },
            pay_order_id: "po_1".to_owned(),
            user_id: "u".to_owned(),
            order_kind: OrderKind::Sale,
            order_status: OrderStatus::Pending,
            order_money: (1, asked),
            order_attempts: 1,
            order_made_at: OffsetDateTime::UNIX_EPOCH,
            attempt_status: PayStatus::Init,
            attempt_version: 1,
            attempt_money: (1, asked),
            stray_money: StrayPolicy::AutoRefund,
        };
        let facts =
            Facts { earlier: None, known_stray: None, is_trade_known: false, is_whole: true, matched: None };
        Self { asked, other: "USD".parse().expect("a currency"), facts, matched: Some(matched) }
    }

    /// What is done for a report, and the verdict that its callback is stored with.
    pub(crate) fn judge(&mut self, seen: &Seen) -> (Judged, Verdict) {
        let Facts { earlier, known_stray, is_trade_known, .. } = &mut self.facts;
        (*earlier, *known_stray, *is_trade_known) = (seen.earlier, seen.known_stray, seen.is_trade_known);
        if let (Some((order, attempt, amount)), Some(matched)) = (seen.matched, &mut self.matched) {
            (matched.order_status, matched.attempt_status) = (order, attempt);
            (matched.order_money.0, matched.attempt_money.0) = (amount, amount);
        }
        // Taken out and given back: its texts are not copied.
        if seen.matched.is_some() {
            self.facts.matched = self.matched.take();
        }
        let origin = match seen.way {
            Way::Callback => Origin::Callback { event_id: "e", body: b"", account_matches: true },
            Way::Rematch => Origin::Rematch { event_id: "e" },
            Way::Query => Origin::Query,
            // It is in its first version.
            Way::Close { has_moved } => Origin::Close { version: i32::from(!has_moved) },
            Way::Statement => Origin::Statement,
        };
        let state = self.state(seen.says);
        let report = Report { channel: "one", pay_order_id: "po_1", state, origin };
        let remedy = decide(&self.facts, &report);
        if seen.matched.is_some() {
            self.matched = self.facts.matched.take();
        }
        (Judged::of(remedy), remedy.verdict())
    }

    fn state(&self, says: Says) -> TradeState {
        match says {
            Says::Paid(minor, is_asked) => TradeState::Paid(Payment {
                transaction_id: String::new(),
                money: Money {
                    amount: Amount::try_from(minor).expect("an amount"),
                    currency: if is_asked { self.asked } else { self.other },
                },
                paid_at: OffsetDateTime::UNIX_EPOCH,
            }),
            Says::Failed => TradeState::Failed(Refusal { code: String::new(), message: String::new() }),
            Says::Closed => TradeState::Closed,
            Says::Pending => TradeState::Pending,
            Says::Unseen => TradeState::Unseen,
        }
    }
}

impl Judged {
    fn of(remedy: Remedy) -> Self {
        match remedy {
            Remedy::Repeat(_) | Remedy::Note(_) => Self::Nothing,
            Remedy::Split => Self::Split,
            Remedy::Pay => Self::Pay,
            Remedy::Stray { reason, event } => Self::Stray(reason, event),
            Remedy::End(event) => Self::End(event),
            Remedy::Unmatched => Self::Unmatched,
            Remedy::GiveUpMatching => Self::GiveUp,
            Remedy::WrongAccount => Self::WrongAccount,
        }
    }
}
