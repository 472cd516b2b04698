//! The channels as they are outside: their own books, and what goes wrong on the way to them. An honest one keeps its
//! word: the same id is the same trade, refund or payout, what was refused for good stays refused, and what was declined
//! once is not done by an earlier call that comes late.

use time::OffsetDateTime;

use super::ops::Fault;
use crate::channels::{CallError, Closing, Payment, PayoutState, RefundState, Refusal, TradeState};
use crate::money::{Amount, Currency, Money};

/// Money that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// For which pay order.
    pub(super) attempt: usize,
    pub(super) minor: i64,
    /// Whether it is of the currency that was asked.
    pub(super) is_asked: bool,
    /// What went back of it, or is going.
    pub(super) given_back: i64,
}

/// A trade: whether it can be paid, and what paid it first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trade {
    pub(super) standing: Standing,
    pub(super) first: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    Failed,
    Closed,
}

/// Money on its way out: a refund of a payment, or a payout of none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) payment: Option<usize>,
    pub(super) minor: i64,
    pub(super) state: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Processing,
    Made,
    /// Was never taken in.
    Refused,
    /// Was taken in, and came to nothing.
    Failed,
    TakenBack,
}

/// A call that is still on its way.
#[derive(Clone, Copy, Debug)]
enum Late {
    Create(usize),
    Refund(usize, usize, i64),
    Payout(usize, i64),
}

/// What a callback says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Paid(usize),
    Failed(usize),
    Closed(usize),
    RefundMade(usize),
    RefundFailed(usize),
}

/// A callback: some channels use an id twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) id: usize,
    pub(super) said: Said,
}

/// The books of both channels. Pay orders, refunds and payouts go by our numbers.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) trades: Vec<Option<Trade>>,
    pub(super) taken: Vec<Taken>,
    pub(super) refunds: Vec<Option<Outgoing>>,
    pub(super) payouts: Vec<Option<Outgoing>>,
    late: Vec<Late>,
    /// All callbacks there were, and those that are under way.
    pub(super) messages: usize,
    pub(super) air: Vec<Message>,
    /// What a service that keeps its promises never asks for.
    pub(super) complaint: Option<&'static str>,
}

fn silent() -> CallError {
    CallError::Silent(String::new())
}

fn refused() -> CallError {
    CallError::Refused(Refusal { code: String::new(), message: String::new() })
}

fn refusal() -> Refusal {
    Refusal { code: String::new(), message: String::new() }
}

/// Where the call or its answer does not get through.
fn on_the_way(fault: Fault) -> Result<(), CallError> {
    match fault {
        Fault::SilentBefore | Fault::Late => Err(silent()),
        Fault::NotNow => Err(CallError::NotNow),
        _ => Ok(()),
    }
}

impl Channels {
    fn tell(&mut self, said: Said, reuses: Option<usize>) {
        let id = reuses.filter(|id| *id < self.messages).unwrap_or(self.messages);
        self.messages += 1;
        self.air.push(Message { id, said });
    }

    // ---- trades -----------------------------------------------------------------------------------------------

    pub(super) fn create(&mut self, attempt: usize, fault: Fault) -> Result<(), CallError> {
        if fault == Fault::Late {
            self.late.push(Late::Create(attempt));
        }
        on_the_way(fault)?;
        if fault == Fault::Refuses {
            return Err(refused());
        }
        let known = self.trades[attempt].is_some();
        let opened = self.open(attempt);
        match fault {
            Fault::SilentAfter => Err(silent()),
            Fault::Curt if known => Err(refused()),
            _ => opened,
        }
    }

    fn open(&mut self, attempt: usize) -> Result<(), CallError> {
        let new = Trade { standing: Standing::Open, first: None };
        match self.trades[attempt].get_or_insert(new) {
            Trade { standing: Standing::Open, first: None } => Ok(()),
            _ => Err(refused()),
        }
    }

    pub(super) fn query(&self, attempt: usize, fault: Fault) -> Result<TradeState, CallError> {
        match fault {
            Fault::SilentAfter => return Err(silent()),
            Fault::Refuses => return Err(refused()),
            _ => on_the_way(fault)?,
        }
        Ok(match self.trades[attempt] {
            None => TradeState::Unseen,
            Some(Trade { first: Some(payment), .. }) => TradeState::Paid(self.payment(payment)),
            Some(Trade { standing: Standing::Open, .. }) => TradeState::Pending,
            Some(Trade { standing: Standing::Failed, .. }) => TradeState::Failed(refusal()),
            Some(Trade { standing: Standing::Closed, .. }) => TradeState::Closed,
        })
    }

    pub(super) fn close(&mut self, attempt: usize, fault: Fault) -> Result<Closing, CallError> {
        on_the_way(fault)?;
        if fault == Fault::Refuses {
            return Err(refused());
        }
        let closing = match &mut self.trades[attempt] {
            None => Closing::Unseen,
            Some(Trade { first: Some(_), .. }) if fault == Fault::Curt => Closing::AlreadyPaid(None),
            Some(Trade { first: Some(payment), .. }) => {
                let payment = *payment;
                Closing::AlreadyPaid(Some(self.payment(payment)))
            }
            Some(trade) => {
                if trade.standing == Standing::Open {
                    trade.standing = Standing::Closed;
                    self.tell(Said::Closed(attempt), None);
                }
                Closing::Closed
            }
        };
        if fault == Fault::SilentAfter { Err(silent()) } else { Ok(closing) }
    }

    /// The number of a payment stands where the channel's own number does.
    fn payment(&self, payment: usize) -> Payment {
        let Taken { minor, is_asked, .. } = self.taken[payment];
        let code = if is_asked { "CNY" } else { "USD" };
        let currency: Currency = code.parse().expect("a currency");
        let amount = Amount::try_from(minor).expect("an amount");
        let paid_at = OffsetDateTime::UNIX_EPOCH;
        Payment { transaction_id: payment.to_string(), money: Money { amount, currency }, paid_at }
    }

    /// Takes money for a trade, and says so; perhaps under the id of an earlier callback.
    pub(super) fn take(&mut self, attempt: usize, minor: i64, is_asked: bool, reuses: Option<usize>) {
        let Some(trade) = &mut self.trades[attempt] else { return };
        let payment = self.taken.len();
        trade.first.get_or_insert(payment);
        self.taken.push(Taken { attempt, minor, is_asked, given_back: 0 });
        self.tell(Said::Paid(payment), reuses);
    }

    pub(super) fn decline(&mut self, attempt: usize) {
        if let Some(trade @ Trade { standing: Standing::Open, first: None }) = &mut self.trades[attempt] {
            trade.standing = Standing::Failed;
            self.tell(Said::Failed(attempt), None);
        }
    }

    // ---- refunds and payouts ----------------------------------------------------------------------------------

    pub(super) fn refund(
        &mut self,
        refund: usize,
        payment: usize,
        minor: i64,
        fault: Fault,
    ) -> Result<RefundState, CallError> {
        if fault == Fault::Late {
            self.late.push(Late::Refund(refund, payment, minor));
        }
        on_the_way(fault)?;
        let is_known = self.refunds[refund].is_some();
        if fault == Fault::Declines && !is_known {
            self.late.retain(|late| !matches!(late, Late::Refund(other, ..) if *other == refund));
            return Err(refused());
        }
        let state = self.take_refund_in(refund, payment, minor, fault);
        match (fault, state) {
            (Fault::SilentAfter, _) => Err(silent()),
            (Fault::Curt, _) if is_known => Err(refused()),
            (_, Way::Refused) => Err(refused()),
            (_, state) => Ok(refund_state(state)),
        }
    }

    fn take_refund_in(&mut self, refund: usize, payment: usize, minor: i64, fault: Fault) -> Way {
        if let Some(known) = self.refunds[refund] {
            if (known.payment, known.minor) != (Some(payment), minor) {
                self.complaint = Some("a refund's id came again with other money");
            }
            return known.state;
        }
        let taken = &mut self.taken[payment];
        let has_room = taken.given_back + minor <= taken.minor;
        if !has_room {
            self.complaint = Some("more was to go back than was taken");
        }
        let state = match fault {
            _ if !has_room => Way::Refused,
            Fault::Refuses => Way::Refused,
            Fault::Slow => Way::Processing,
            _ => Way::Made,
        };
        if state != Way::Refused {
            taken.given_back += minor;
        }
        self.refunds[refund] = Some(Outgoing { payment: Some(payment), minor, state });
        if state == Way::Made {
            self.tell(Said::RefundMade(refund), None);
        }
        state
    }

    pub(super) fn query_refund(&self, refund: usize, fault: Fault) -> Result<RefundState, CallError> {
        match fault {
            Fault::SilentAfter => return Err(silent()),
            Fault::Refuses => return Err(refused()),
            _ => on_the_way(fault)?,
        }
        Ok(self.refunds[refund].map_or(RefundState::Unseen, |known| refund_state(known.state)))
    }

    pub(super) fn payout(
        &mut self,
        payout: usize,
        minor: i64,
        fault: Fault,
    ) -> Result<PayoutState, CallError> {
        if fault == Fault::Late {
            self.late.push(Late::Payout(payout, minor));
        }
        on_the_way(fault)?;
        let is_known = self.payouts[payout].is_some();
        if fault == Fault::Declines && !is_known {
            self.late.retain(|late| !matches!(late, Late::Payout(other, ..) if *other == payout));
            return Err(refused());
        }
        let state = self.take_payout_in(payout, minor, fault);
        match (fault, state) {
            (Fault::SilentAfter, _) => Err(silent()),
            (Fault::Curt, _) if is_known => Err(refused()),
            (_, Way::Refused) => Err(refused()),
            (_, state) => Ok(payout_state(state)),
        }
    }

    fn take_payout_in(&mut self, payout: usize, minor: i64, fault: Fault) -> Way {
        let state = match fault {
            Fault::Refuses => Way::Refused,
            Fault::Slow => Way::Processing,
            _ => Way::Made,
        };
        let known = self.payouts[payout].get_or_insert(Outgoing { payment: None, minor, state });
        if known.minor != minor {
            self.complaint = Some("a payout's id came again with other money");
        }
        known.state
    }

    pub(super) fn query_payout(&self, payout: usize, fault: Fault) -> Result<PayoutState, CallError> {
        match fault {
            Fault::SilentAfter => return Err(silent()),
            Fault::Refuses => return Err(refused()),
            _ => on_the_way(fault)?,
        }
        Ok(self.payouts[payout].map_or(PayoutState::Unseen, |known| payout_state(known.state)))
    }

    // ---- what the channels do by themselves -------------------------------------------------------------------

    /// A call arrives that nobody waits for any more.
    pub(super) fn arrive(&mut self, pick: usize) {
        if self.late.is_empty() {
            return;
        }
        match self.late.swap_remove(pick % self.late.len()) {
            Late::Create(attempt) => drop(self.open(attempt)),
            Late::Refund(refund, payment, minor) => {
                self.take_refund_in(refund, payment, minor, Fault::Nothing);
            }
            Late::Payout(payout, minor) => {
                self.take_payout_in(payout, minor, Fault::Nothing);
            }
        }
    }

    /// Ends one thing that the channels are at, well or not. `false` where they are at nothing.
    pub(super) fn conclude(&mut self, pick: usize, well: bool) -> bool {
        let is_open = |known: &Option<Outgoing>| known.is_some_and(|known| known.state == Way::Processing);
        let refunds = self.refunds.iter().filter(|known| is_open(known)).count();
        let payouts = self.payouts.iter().filter(|known| is_open(known)).count();
        if refunds + payouts == 0 {
            return false;
        }
        let which = pick % (refunds + payouts);
        let end = if well { Way::Made } else { Way::Failed };
        let places = if which < refunds { &mut self.refunds } else { &mut self.payouts };
        let nth = if which < refunds { which } else { which - refunds };
        let mut open = places.iter_mut().enumerate().filter(|(_, known)| is_open(known));
        let Some((place, Some(known))) = open.nth(nth) else { return true };
        known.state = end;
        let (payment, minor) = (known.payment, known.minor);
        if let Some(payment) = payment {
            if !well {
                self.taken[payment].given_back -= minor;
            }
            self.tell(if well { Said::RefundMade(place) } else { Said::RefundFailed(place) }, None);
        }
        true
    }

    /// Takes a refund back that was made.
    pub(super) fn take_back(&mut self, pick: usize) {
        let count = self.refunds.len();
        if count == 0 {
            return;
        }
        let place = pick % count;
        let Some(known) = &mut self.refunds[place] else { return };
        let (Some(payment), Way::Made) = (known.payment, known.state) else { return };
        known.state = Way::TakenBack;
        self.taken[payment].given_back -= known.minor;
        self.tell(Said::RefundFailed(place), None);
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.late.is_empty()
    }
}

fn refund_state(state: Way) -> RefundState {
    match state {
        Way::Processing => RefundState::Processing,
        Way::Made => RefundState::Succeeded { channel_refund_id: String::new() },
        Way::Refused => RefundState::Unseen,
        Way::Failed | Way::TakenBack => RefundState::Failed(refusal()),
    }
}

fn payout_state(state: Way) -> PayoutState {
    match state {
        Way::Processing => PayoutState::Processing,
        Way::Made => PayoutState::Succeeded { channel_payout_id: String::new() },
        Way::Refused => PayoutState::Unseen,
        Way::Failed | Way::TakenBack => PayoutState::Failed(refusal()),
    }
}
