//! Whether what merchants were told is so: the log of all answers against what is there when all is calm. No store and
//! no clock is asked here, so that every rule can be seen to fail.
//!
//! Together with what must be so at rest this is also "what was refused moved no money and sold no stock": stock and
//! ledger agree with the things that are there ([`super::rest`] and the audit), and no thing is there that was refused or
//! not asked for (here).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::heard::Heard;
use super::told::{Index, Kind, Thing, Told, differences, text};
use super::truth::untruths;

/// The rules, and the list of them all.
macro_rules! rules {
    ($($(#[$meaning:meta])* $rule:ident,)*) => {
        /// What must be so.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[$meaning])* $rule,)*
        }

        impl Rule {
            pub const ALL: &[Self] = &[$(Self::$rule),*];
        }
    };
}

rules! {
    /// A key that was answered says the same, byte for byte.
    ToldAlike,
    /// What was done is there.
    DoneIsThere,
    /// It reads as it was told.
    ReadsAsTold,
    /// What had come to its end stays as it was told.
    EndsStay,
    /// Whoever looks at an order again sees it where it was, or further on.
    OrdersGoForward,
    /// Who was told that it is paid was told the truth.
    PaidIsPaid,
    /// Money that the channel told of, and that was acknowledged, pays its order or is stray.
    AcknowledgedMoneyIsKnown,
    /// An order is cancelled by whoever was told so.
    CancelledIsTold,
    /// Usage that was acknowledged is not forgotten.
    UsageIsHeard,
    /// A hold is moved by what was acknowledged, and by nothing that was refused.
    HoldsMoveAsTold,
    /// A refund that an operator let go is not kept back, nor the other way about.
    DecisionsStay,
    /// What was refused is not there.
    RefusedIsAbsent,
    /// However often it was asked for until the answer was known, it is there once.
    OneEffect,
    /// Nothing is there that nobody asked for.
    NothingUnasked,
    /// What the merchant's endpoint hears has one id and one body, however often it comes.
    HeardAlike,
    /// Every end was told to it.
    EndsAreHeard,
    /// And what it hears is so.
    HeardIsTrue,
    /// Of no attempt there is more to come, whoever was told of it: it has failed, is closed, or is paid by money that is
    /// known, and nobody can pay by it any more.
    AttemptsEnd,
    /// What a channel refused for good is an attempt that failed, and that was given to nobody.
    RefusedForGood,
}

/// A rule that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

/// Where an order or a hold never leaves again.
const ENDS: [&str; 3] = ["CLOSED", "CONFIRMED", "RELEASED"];
/// The way of an order that is paid. One that is not is closed instead.
const WAY: [&str; 4] = ["PENDING", "PAID", "PARTIALLY_REFUNDED", "REFUNDED"];

/// All that is not so, by what was told, what the merchant's endpoint heard, and what is there.
pub fn judge(log: &[Told], heard: &[Heard], there: &[Thing]) -> Vec<Violation> {
    let mut about = BTreeMap::<_, Vec<_>>::new();
    for (place, told) in log.iter().enumerate() {
        if let Some(number) = told.is_about() {
            about.entry(number).or_default().push((place, told));
        }
    }
    let mut case = Case { log, there: Index::of(there), violations: Vec::new() };
    case.keys_say_the_same();
    case.things_are_as_told();
    case.things_were_asked_for();
    case.acknowledged_money_is_known();
    case.decisions_stay();
    case.news_are_heard_alike(heard);
    case.ends_are_heard(heard, there);
    case.news_are_true(heard);
    case.attempts_end(there);
    case.refusals_are_attempts_that_failed();
    for (number, told) in about {
        let Some(thing) = case.there.by_number.get(&number).copied() else { continue };
        case.ends_stay(thing, &told);
        match thing.kind {
            Kind::Hold => case.holds_move_as_told(thing, &told),
            _ => case.orders_go_forward(thing, &told),
        }
    }
    case.violations
}

/// Whether an order goes from one state to the other, in any number of steps. Back goes only what a channel takes back,
/// and none does here.
fn leads_to(from: &str, to: &str) -> bool {
    let place = |status: &str| WAY.iter().position(|one| *one == status);
    match (place(from), place(to)) {
        (Some(from), Some(to)) => from <= to,
        (Some(from), None) => from == 0 && to == "CLOSED",
        (None, _) => from == to,
    }
}

struct Case<'a> {
    log: &'a [Told],
    there: Index<'a>,
    violations: Vec<Violation>,
}

impl Case<'_> {
    fn complain(&mut self, rule: Rule, what: String) {
        self.violations.push(Violation { rule, what });
    }

    /// What is kept is one answer. Another one may be given only to who asked before it was known.
    fn keys_say_the_same(&mut self) {
        let mut kept = BTreeMap::<&str, (usize, &Told)>::new();
        for (place, told) in self.log.iter().enumerate() {
            match kept.get(told.key.as_str()) {
                Some((known, first)) => {
                    let is_same = (first.status, &first.answer) == (told.status, &told.answer);
                    if !is_same && (told.is_kept() || told.after > *known) {
                        self.complain(Rule::ToldAlike, format!("{first:#?} and then {told:#?}"));
                    }
                }
                None if told.is_kept() => drop(kept.insert(&told.key, (place, told))),
                None => {}
            }
        }
    }

    fn things_are_as_told(&mut self) {
        let done: BTreeSet<_> =
            self.log.iter().filter(|told| told.is_done()).filter_map(Told::asked_for).collect();
        for told in self.log {
            let Some((kind, name)) = told.asked_for() else { continue };
            match (told.is_done(), self.there.named(kind, &name).first().copied()) {
                (true, None) => self.complain(Rule::DoneIsThere, format!("{told:#?}")),
                (true, Some(thing)) => {
                    for difference in differences(thing, &told.reply()) {
                        self.complain(Rule::ReadsAsTold, format!("{difference}: {told:#?}"));
                    }
                }
                // Of two who asked for the same one may have come too early.
                (false, Some(thing)) if !done.contains(&(kind, name)) => {
                    self.complain(Rule::RefusedIsAbsent, format!("{told:#?}, and there is {thing:#?}"));
                }
                (false, _) => {}
            }
        }
    }

    fn things_were_asked_for(&mut self) {
        let asked: BTreeSet<_> = self.log.iter().filter_map(Told::asked_for).collect();
        let names = |(kind, names): (&Kind, &BTreeMap<_, Vec<_>>)| {
            names.iter().map(|(name, things)| (*kind, *name, things.len())).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.there.by_name.iter().flat_map(names).collect();
        for (kind, name, count) in all {
            if count > 1 {
                self.complain(Rule::OneEffect, format!("{kind:?} {name} is there {count} times"));
            }
            // An attempt may be there of which nobody heard the name; money comes from the channel, and goes back to it.
            let has_no_asker = matches!(kind, Kind::Attempt | Kind::Money | Kind::Stray | Kind::WayBack);
            if !has_no_asker && !asked.contains(&(kind, name.to_owned())) {
                self.complain(Rule::NothingUnasked, format!("{kind:?} {name}"));
            }
        }
    }

    fn acknowledged_money_is_known(&mut self) {
        for told in self.log.iter().filter(|told| told.is_acknowledged()) {
            let known = self.there.named(Kind::Money, &text(&told.body, "transaction_id"));
            let wrong = known.first().map(|money| differences(money, &told.body));
            if wrong.as_ref().is_none_or(|wrong| !wrong.is_empty()) {
                self.complain(Rule::AcknowledgedMoneyIsKnown, format!("{told:#?}, and there: {wrong:#?}"));
            }
        }
    }

    fn decisions_stay(&mut self) {
        for told in self.log.iter().filter(|told| told.is_done()) {
            let Some((refund_no, is_let_go)) = told.decides() else { continue };
            let Some(refund) = self.there.named(Kind::Refund, refund_no).first() else { continue };
            let is_kept_back = text(&refund.standing, "failure").starts_with("rejected");
            if is_kept_back == is_let_go || is_kept_back && text(&refund.standing, "status") != "FAILED" {
                self.complain(Rule::DecisionsStay, format!("{told:#?}, and there is {refund:#?}"));
            }
        }
    }

    fn news_are_heard_alike(&mut self, heard: &[Heard]) {
        let (mut bodies, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for one in heard {
            let body = *bodies.entry(&one.id).or_insert(&one.body);
            let id = *ids.entry(one.news()).or_insert(&one.id);
            if *body != one.body || *id != one.id {
                self.complain(Rule::HeardAlike, format!("{id} with {body}, and then {one:#?}"));
            }
        }
    }

    fn ends_are_heard(&mut self, heard: &[Heard], there: &[Thing]) {
        let taken: BTreeSet<_> = heard.iter().filter(|one| one.is_taken).map(Heard::news).collect();
        for thing in there {
            if thing.news().is_some_and(|news| !taken.contains(&news)) {
                self.complain(Rule::EndsAreHeard, format!("{thing:#?}"));
            }
        }
    }

    fn news_are_true(&mut self, heard: &[Heard]) {
        for untruth in untruths(&self.there, heard) {
            self.complain(Rule::HeardIsTrue, untruth);
        }
    }

    fn attempts_end(&mut self, there: &[Thing]) {
        let calls = self.log.iter().filter(|told| told.path == "/pay/url");
        let asked: HashSet<_> = calls.map(|told| (&told.body["order_no"], &told.body["payer_id"])).collect();
        let paid: HashSet<_> = self.there.all(Kind::Money).map(|money| money.reads("out_trade_no")).collect();
        for attempt in there.iter().filter(|thing| thing.kind == Kind::Attempt) {
            let is_at_its_end = match text(&attempt.standing, "status").as_str() {
                "FAILED" | "CLOSED" => true,
                "PAID" => paid.contains(attempt.reads("pay_order_id")),
                _ => false,
            };
            if !is_at_its_end || attempt.reads("trade") == "OPEN" {
                self.complain(Rule::AttemptsEnd, format!("{attempt:#?}"));
            }
            if !asked.contains(&(attempt.reads("order_no"), attempt.reads("payer_id"))) {
                self.complain(Rule::NothingUnasked, format!("{attempt:#?}"));
            }
        }
    }

    /// Money may come all the same, from a channel that takes it behind what it closed.
    fn refusals_are_attempts_that_failed(&mut self) {
        let given: BTreeSet<_> =
            self.log.iter().filter(|told| told.is_done()).filter_map(Told::asked_for).collect();
        for told in self.log.iter().filter(|told| told.path == "/pay/url" && told.status == 402) {
            let is_it = |attempt: &Thing| {
                let is_of_the_call =
                    ["order_no", "payer_id"].iter().all(|field| *attempt.reads(field) == told.body[*field]);
                is_of_the_call
                    && *attempt.reads("channel_code") == told.reply()["channel_code"]
                    && matches!(text(&attempt.standing, "status").as_str(), "FAILED" | "PAID")
                    && !given.contains(&(Kind::Attempt, attempt.name.clone()))
            };
            if !self.there.all(Kind::Attempt).any(is_it) {
                self.complain(Rule::RefusedForGood, format!("{told:#?}"));
            }
        }
    }

    fn ends_stay(&mut self, thing: &Thing, told: &[(usize, &Told)]) {
        let standing = &thing.standing;
        for (_, told) in told {
            let reply = told.reply();
            let is_end = ENDS.contains(&text(&reply, "status").as_str()) && told.path != "/pay/url";
            let mut ends = standing.as_object().into_iter().flatten();
            if told.is_done() && is_end && ends.any(|(field, value)| reply[field.as_str()] != *value) {
                self.complain(Rule::EndsStay, format!("{told:#?}, and it stands as {standing}"));
            }
        }
    }

    fn orders_go_forward(&mut self, order: &Thing, told: &[(usize, &Told)]) {
        let standing = &order.standing;
        let status = text(standing, "status");
        for (_, told) in told.iter().filter(|(_, told)| told.code() == "ORDER_IS_ALREADY_PAID") {
            if matches!(status.as_str(), "PENDING" | "CLOSED") {
                self.complain(Rule::PaidIsPaid, format!("{told:#?}, and it stands as {standing}"));
            }
        }
        if standing["close_reason"] == "CANCELLED" && !told.iter().any(|(_, told)| told.did("/close")) {
            self.complain(Rule::CancelledIsTold, format!("nobody was told that {order:#?} is closed"));
        }
        let looks: Vec<_> = told.iter().filter(|(_, told)| told.is_look()).collect();
        for (place, look) in &looks {
            if look.status == 404 {
                self.complain(Rule::DoneIsThere, format!("{look:#?}, and there is {order:#?}"));
                continue;
            }
            let seen = text(&look.reply(), "status");
            let later = looks.iter().filter(|(_, later)| later.after > *place && later.is_done());
            let mut later = later.map(|(_, later)| text(&later.reply(), "status")).chain([status.clone()]);
            if let Some(back) = later.find(|later| !leads_to(&seen, later)) {
                self.complain(Rule::OrdersGoForward, format!("{look:#?}, and later {back}"));
            }
        }
    }

    /// What was acknowledged is the most that may have moved a hold, and the least that must have.
    fn holds_move_as_told(&mut self, hold: &Thing, told: &[(usize, &Told)]) {
        let standing = &hold.standing;
        let told = || told.iter().map(|(_, told)| *told);
        let units = standing["units"].as_i64();
        let reported = told().filter_map(Told::heard_units).max();
        if reported > units {
            self.complain(Rule::UsageIsHeard, format!("{reported:?} units, and it stands as {standing}"));
        }
        let confirmed: Vec<_> = told().filter(|told| told.did("/confirm")).collect();
        let named = confirmed.iter().filter_map(|told| told.body["units"].as_i64()).max();
        let is_told = match text(standing, "status").as_str() {
            "CONFIRMED" => !confirmed.is_empty(),
            "RELEASED" => told().any(|told| told.did("/release")),
            _ => true,
        };
        let is_charged = standing["charged"].as_i64() > Some(0) && confirmed.is_empty();
        if units > reported.max(named) || !is_told || is_charged {
            self.complain(
                Rule::HoldsMoveAsTold,
                format!("{hold:#?} after {:#?}", told().collect::<Vec<_>>()),
            );
        }
    }
}
