//! The rules of billing: what becomes of holds, one step after the other. Pure.
//!
//! A batch puts on the desk what it has read or locked (holds, what their users can spend, their cycles), takes its steps in
//! their order, each seeing what the one before it left, and then writes down what the desk has noted.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::error::Refusal;
use super::model::{
    Bill, CycleKey, CycleUse, Hold, HoldEvent, HoldStatus, KeyScope, NewHold, Pricing, Report, Terms, Units,
};
use crate::ids::{Cycle, HoldId, MerchantId, MessageId};
use crate::ledger::{Account, Posting};
use crate::outbox::Event;

/// What a batch has found, and what is to be written.
#[derive(Debug)]
pub(super) struct Desk {
    now: OffsetDateTime,
    /// What users can spend, by account; one that never had anything is absent.
    pub(super) available: BTreeMap<Account, i64>,
    /// What was taken of the cycles that are locked, by key.
    pub(super) cycles: BTreeMap<CycleKey, CycleUse>,
    /// What messages said that were heard before, by hold and id.
    pub(super) heard: BTreeMap<(String, String), i64>,
    /// What is to be written beside the holds themselves.
    pub(super) notes: Notes,
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) changes: Vec<Change>,
    pub(super) marks: Vec<Mark>,
    pub(super) postings: Vec<Posting>,
    pub(super) events: Vec<(MerchantId, Event)>,
    /// Those of the locked cycles that are not as they were.
    pub(super) cycles: BTreeSet<CycleKey>,
    /// What is added to cycles that nobody had to look at.
    pub(super) added: BTreeMap<CycleKey, i64>,
    /// Holds whose users owe something.
    pub(super) shortfalls: Vec<Hold>,
}

/// A line of history.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) hold_id: HoldId,
    pub(super) seq: i32,
    pub(super) from: HoldStatus,
    pub(super) to: HoldStatus,
    pub(super) event: HoldEvent,
}

/// A message that had its effect.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) hold_id: HoldId,
    pub(super) message_id: MessageId,
    pub(super) units: i64,
}

/// A hold that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) hold_id: HoldId,
    pub(super) merchant_id: MerchantId,
    pub(super) new: NewHold,
    /// The present cycle, for one that names none.
    pub(super) present: Cycle,
}

impl Wanted {
    /// The hold as it would stand, with nothing taken for it yet.
    pub(super) fn hold(&self, terms: &Terms, now: OffsetDateTime) -> Hold {
        let new = &self.new;
        Hold {
            hold_id: self.hold_id.clone(),
            merchant_id: self.merchant_id.clone(),
            request_id: new.request_id.clone(),
            user_id: new.user_id.clone(),
            product_code: new.product_code.clone(),
            idempotency_key: new.idempotency_key.clone(),
            currency: new.currency,
            fx_version: new.fx_version.as_ref().map(ToString::to_string).unwrap_or_default(),
            cycle: new.cycle.clone().unwrap_or_else(|| self.present.clone()),
            pricing: terms.pricing,
            unit_price: terms.unit_price,
            cycle_quota: terms.cycle_quota,
            estimated_units: new.estimated_units.count(),
            units: None,
            counted_units: 0,
            carries_fee: false,
            held: 0,
            charged: 0,
            shortfall: 0,
            late: false,
            status: HoldStatus::Held,
            extensions: 0,
            exhausted: false,
            recoveries: 0,
            expires_at: now + time::Duration::seconds(new.expires_in),
            created_at: now,
            version: 1,
            written_by: 0,
        }
    }
}

/// What of a hold is a part of its key, beside user, product and idempotency key: its currency and its fx version.
pub(super) fn key_parts(scope: KeyScope, hold: &Hold) -> (&str, &str) {
    match scope {
        KeyScope::Request => ("", ""),
        KeyScope::RequestCurrencyFx => (hold.currency.as_str(), &hold.fx_version),
    }
}

impl Desk {
    pub(super) fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            available: BTreeMap::new(),
            cycles: BTreeMap::new(),
            heard: BTreeMap::new(),
            notes: Notes::default(),
        }
    }

    /// Takes what a new hold wants of its user's balance and its cycle: all of it, or nothing.
    pub(super) fn take(&mut self, mut hold: Hold) -> Result<Hold, Refusal> {
        let estimate = match hold.pricing {
            Pricing::PerUnit => hold.estimated_units,
            // It is one piece of work, however small.
            Pricing::PerCall | Pricing::PerCycle => hold.estimated_units.max(1),
        };
        let amount = hold.due_ceil(estimate).ok_or(Refusal::TooMuch("estimated_units"))?;
        let fee = self.fee_of(&hold)?;
        let counted = hold.reserve(estimate);
        self.check_quota(&hold, counted)?;
        if amount + fee.unwrap_or(0) > self.available_to(&hold) {
            return Err(Refusal::InsufficientBalance);
        }

        self.count(&mut hold, counted);
        self.spend(&hold, amount);
        hold.held = amount;
        self.notes.postings.push(hold.set_aside(amount));
        if let Some(fee) = fee {
            self.pay_cycle(&mut hold, fee);
        }
        Ok(hold)
    }

    /// Hears of usage: its maximum counts, in whatever order it comes, and each message once. What passes the estimate
    /// is taken too, as far as quota and balance go; where that is not all, the report is heard all the same, and the
    /// work should stop, until a repeat finds what it takes. That is announced too, because who reports by the broker has
    /// no answer: once, and again after all of it was there in between. Of a hold that ran out it is heard too, and counts
    /// when that is confirmed, but nothing is set aside, and a repeat is told so again.
    pub(super) fn report(&mut self, hold: &mut Hold, report: &Report) -> Result<(), Refusal> {
        let units = report.cumulative_units.count();
        let is_known = self.is_known(hold, &report.message_id, ("cumulative_units", units))?;
        match hold.status {
            HoldStatus::Held | HoldStatus::Expired => {}
            _ if is_known => return Ok(()),
            HoldStatus::Confirmed | HoldStatus::Released => return Err(Refusal::HoldClosed(hold.status)),
        }
        hold.due_ceil(units).ok_or(Refusal::TooMuch("cumulative_units"))?;

        self.mark(hold, &report.message_id, units);
        hold.units = hold.units.max(Some(units));
        match hold.status {
            HoldStatus::Expired => Err(Refusal::HoldClosed(hold.status)),
            _ => self.extend(hold),
        }
    }

    /// Charges what was used, and frees the rest. The same again changes nothing.
    pub(super) fn confirm(
        &mut self,
        hold: &mut Hold,
        message_id: Option<&MessageId>,
        units: Option<Units>,
    ) -> Result<(), Refusal> {
        let named = units.map(Units::count);
        if hold.status == HoldStatus::Confirmed {
            let is_same = named.is_none() || named == hold.units;
            return if is_same { Ok(()) } else { Err(Refusal::HoldClosed(hold.status)) };
        }
        let to = hold.status.after(HoldEvent::Confirmed).ok_or(Refusal::HoldClosed(hold.status))?;
        let one_piece = (hold.pricing != Pricing::PerUnit).then_some(1);
        let used = named.or(hold.units).or(one_piece).ok_or(Refusal::UnitsMissing)?;
        if let Some(reported) = hold.units.filter(|reported| used < *reported) {
            return Err(Refusal::UnitsShrink(reported));
        }
        if let Some(message_id) = message_id {
            self.is_known(hold, message_id, ("units", used))?;
        }
        let due = hold.due_half_up(used).ok_or(Refusal::TooMuch("units"))?;

        let bill = Bill::of(due, hold.held, self.available_to(hold));
        let posting = if due == 0 { hold.freed() } else { hold.charge(&bill) };
        self.notes.postings.push(posting);
        self.spend(hold, bill.from_available - (hold.held - bill.from_held));
        self.count(hold, hold.count(used));
        if let Some(message_id) = message_id {
            self.mark(hold, message_id, used);
        }
        hold.late = hold.status == HoldStatus::Expired;
        self.move_on(hold, HoldEvent::Confirmed, to);
        hold.units = Some(used);
        hold.held = 0;
        hold.charged += bill.charged();
        hold.shortfall = bill.shortfall;
        self.announce_charge(hold, bill.charged());
        Ok(())
    }

    /// Frees all of it. The same again changes nothing.
    pub(super) fn release(&mut self, hold: &mut Hold) -> Result<(), Refusal> {
        if hold.status == HoldStatus::Released {
            return Ok(());
        }
        let to = hold.status.after(HoldEvent::Released).ok_or(Refusal::HoldClosed(hold.status))?;
        self.free(hold);
        self.move_on(hold, HoldEvent::Released, to);
        Ok(())
    }

    /// Frees all of one whose time is over. What is not due, or at an end, stays as it is.
    pub(super) fn expire(&mut self, hold: &mut Hold) {
        let Some(to) = hold.status.after(HoldEvent::DeadlinePassed) else { return };
        if hold.expires_at > self.now {
            return;
        }
        let event = Event::UsageHoldExpired {
            hold_id: hold.hold_id.to_string(),
            user_id: hold.user_id.to_string(),
            product_code: hold.product_code.to_string(),
            units: hold.units,
            released: hold.held,
            currency: hold.currency,
        };
        self.notes.events.push((hold.merchant_id.clone(), event));
        self.free(hold);
        self.move_on(hold, HoldEvent::DeadlinePassed, to);
    }

    // ---- steps of the above ----------------------------------------------------------------------------------

    fn available_to(&self, hold: &Hold) -> i64 {
        self.available.get(&hold.wallet().available).copied().unwrap_or(0)
    }

    /// Takes so much from what can be spent; gives back what is below zero.
    fn spend(&mut self, hold: &Hold, amount: i64) {
        if let Some(available) = self.available.get_mut(&hold.wallet().available) {
            *available -= amount;
        }
    }

    /// What a hold has to pay for its cycle: nothing when another one did.
    fn fee_of(&self, hold: &Hold) -> Result<Option<i64>, Refusal> {
        let is_paid = || self.cycles.get(&hold.cycle_key()).is_some_and(|cycle| cycle.fee_hold_id.is_some());
        if hold.pricing != Pricing::PerCycle || is_paid() {
            return Ok(None);
        }
        hold.unit_price.times_half_up(1).map(Some).ok_or(Refusal::TooMuch("product_code"))
    }

    fn pay_cycle(&mut self, hold: &mut Hold, fee: i64) {
        let key = hold.cycle_key();
        self.cycles.entry(key.clone()).or_default().fee_hold_id = Some(hold.hold_id.to_string());
        self.notes.cycles.insert(key);
        hold.carries_fee = true;
        hold.charged = fee;
        self.spend(hold, fee);
        self.notes.postings.push(hold.pay_cycle(fee));
        let event = Event::UsageCycleCharged {
            hold_id: hold.hold_id.to_string(),
            user_id: hold.user_id.to_string(),
            product_code: hold.product_code.to_string(),
            cycle: hold.cycle.to_string(),
            charged: fee,
            currency: hold.currency,
        };
        self.notes.events.push((hold.merchant_id.clone(), event));
    }

    /// Whether the quota takes it that a hold counts for so much.
    fn check_quota(&self, hold: &Hold, counted: i64) -> Result<(), Refusal> {
        let Some(quota) = hold.cycle_quota else { return Ok(()) };
        let used = self.cycles.get(&hold.cycle_key()).map_or(0, |cycle| cycle.used_units);
        let others = used - hold.counted_units;
        // What is used up already takes no more, but refuses nothing that takes nothing.
        let has_room = counted <= hold.counted_units || others + counted <= quota;
        if has_room { Ok(()) } else { Err(Refusal::QuotaExceeded((quota - used).max(0))) }
    }

    /// Lets a hold count for so much, whatever the quota says.
    fn count(&mut self, hold: &mut Hold, counted: i64) {
        let more = counted - hold.counted_units;
        if more == 0 {
            return;
        }
        hold.counted_units = counted;
        let key = hold.cycle_key();
        match self.cycles.get_mut(&key) {
            Some(cycle) => {
                cycle.used_units += more;
                self.notes.cycles.insert(key);
            }
            None => *self.notes.added.entry(key).or_default() += more,
        }
    }

    fn extend(&mut self, hold: &mut Hold) -> Result<(), Refusal> {
        let used = hold.units.unwrap_or(0);
        let counted = hold.reserve(used).max(hold.counted_units);
        let counts = self.count_more(hold, counted);
        let extended = counts.and(self.set_aside_more(hold, used));
        match extended {
            Err(Refusal::InsufficientBalance) => self.announce_exhaustion(hold, "INSUFFICIENT_BALANCE"),
            Err(Refusal::QuotaExceeded(_)) => self.announce_exhaustion(hold, "QUOTA_EXCEEDED"),
            Err(_) => {}
            // Whoever was told to stop goes on, and is to be told once more when that is used up too.
            Ok(()) => hold.recoveries += i32::from(std::mem::take(&mut hold.exhausted)),
        }
        extended
    }

    /// As far as the quota goes: what was used is left to nobody else.
    fn count_more(&mut self, hold: &mut Hold, counted: i64) -> Result<(), Refusal> {
        match self.check_quota(hold, counted) {
            Err(Refusal::QuotaExceeded(left)) => {
                self.count(hold, hold.counted_units + left);
                Err(Refusal::QuotaExceeded(0))
            }
            counts => {
                self.count(hold, counted);
                counts
            }
        }
    }

    /// As far as there is something: it is for work that was done, and is charged in the end. What would be left to be
    /// spent elsewhere meanwhile would be owed then.
    fn set_aside_more(&mut self, hold: &mut Hold, used: i64) -> Result<(), Refusal> {
        let due = hold.due_ceil(used).ok_or(Refusal::TooMuch("cumulative_units"))?;
        let wanted = (due - hold.held).max(0);
        let more = wanted.min(self.available_to(hold));
        if more > 0 {
            self.spend(hold, more);
            hold.held += more;
            hold.extensions += 1;
            self.notes.postings.push(hold.set_aside(more));
        }
        if more < wanted { Err(Refusal::InsufficientBalance) } else { Ok(()) }
    }

    fn free(&mut self, hold: &mut Hold) {
        self.notes.postings.push(hold.freed());
        self.spend(hold, -hold.held);
        self.count(hold, 0);
        hold.held = 0;
    }

    /// Whether a message was heard before; then it said the same.
    fn is_known(
        &self,
        hold: &Hold,
        message_id: &MessageId,
        (field, units): (&'static str, i64),
    ) -> Result<bool, Refusal> {
        match self.heard.get(&(hold.hold_id.to_string(), message_id.to_string())) {
            Some(&said) if said != units => Err(Refusal::MessageReused { field, said }),
            said => Ok(said.is_some()),
        }
    }

    fn mark(&mut self, hold: &Hold, message_id: &MessageId, units: i64) {
        let key = (hold.hold_id.to_string(), message_id.to_string());
        if self.heard.contains_key(&key) {
            return;
        }
        self.heard.insert(key, units);
        let (hold_id, message_id) = (hold.hold_id.clone(), message_id.clone());
        self.notes.marks.push(Mark { hold_id, message_id, units });
    }

    fn move_on(&mut self, hold: &mut Hold, event: HoldEvent, to: HoldStatus) {
        hold.version += 1;
        let (hold_id, seq, from) = (hold.hold_id.clone(), hold.version, hold.status);
        self.notes.changes.push(Change { hold_id, seq, from, to, event });
        hold.status = to;
    }

    /// Once, until all that is wanted was there in between: the hold remembers it.
    fn announce_exhaustion(&mut self, hold: &mut Hold, reason: &'static str) {
        if std::mem::replace(&mut hold.exhausted, true) {
            return;
        }
        let event = Event::UsageHoldExhausted {
            hold_id: hold.hold_id.to_string(),
            user_id: hold.user_id.to_string(),
            product_code: hold.product_code.to_string(),
            units: hold.units.unwrap_or(0),
            held: hold.held,
            currency: hold.currency,
            reason,
        };
        self.notes.events.push((hold.merchant_id.clone(), event));
    }

    /// What was paid for its cycle was told when it was.
    fn announce_charge(&mut self, hold: &Hold, charged: i64) {
        let event = Event::UsageCharged {
            hold_id: hold.hold_id.to_string(),
            user_id: hold.user_id.to_string(),
            product_code: hold.product_code.to_string(),
            units: hold.units.unwrap_or(0),
            charged,
            shortfall: hold.shortfall,
            currency: hold.currency,
            late: hold.late,
        };
        self.notes.events.push((hold.merchant_id.clone(), event));
        if hold.shortfall > 0 {
            self.notes.shortfalls.push(hold.clone());
        }
    }
}
