//! Whether what merchants were told is so: the log of all answers against what is there when all is calm. No store and
//! no clock is asked here, so that every rule can be seen to fail.
//!
//! Together with the audit this is also "what was refused moved no money and sold no stock": stock and ledger agree with
//! the things that are there (audit), and no thing is there that was refused or not asked for (here).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What the merchant asked for and was told.
#[derive(Clone, Debug)]
pub struct Told {
    pub path: String,
    pub key: String,
    pub body: Value,
    pub status: u16,
    pub answer: String,
}

/// What kind of thing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Order,
    Attempt,
    Refund,
    Settlement,
    Withdrawal,
    Hold,
}

/// A thing that is there, under the name by which it was asked for.
#[derive(Clone, Debug)]
pub struct Thing {
    pub kind: Kind,
    pub name: String,
    /// What never changes: as it was told, so it must read.
    pub fields: Value,
    /// Where it stands, as it must read in every answer that told of an end.
    pub standing: Value,
}

/// What must be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A key that was answered says the same, byte for byte.
    ToldAlike,
    /// What was done is there.
    DoneIsThere,
    /// It reads as it was told.
    ReadsAsTold,
    /// What had come to its end stays as it was told.
    EndsStay,
    /// Who was told that it is paid was told the truth.
    PaidIsPaid,
    /// Usage that was acknowledged is not forgotten.
    UsageIsHeard,
    /// What was refused is not there.
    RefusedIsAbsent,
    /// However often it was asked for until the answer was known, it is there once.
    OneEffect,
    /// Nothing is there that nobody asked for.
    NothingUnasked,
}

/// A rule that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

/// Where an order or a hold never leaves again.
const ENDS: [&str; 3] = ["CLOSED", "CONFIRMED", "RELEASED"];

impl Told {
    pub fn reply(&self) -> Value {
        serde_json::from_str(&self.answer).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        text(&self.reply(), "code")
    }

    /// Which door it knocked at: the path without numbers.
    pub fn route(&self) -> String {
        let is_word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase());
        self.path.split('/').filter(is_word).collect::<Vec<_>>().join(" ")
    }

    pub fn is_done(&self) -> bool {
        matches!(self.status, 200 | 201)
    }

    /// The thing that it asked for, where it asked for one.
    pub fn asked_for(&self) -> Option<(Kind, String)> {
        Some(match self.path.as_str() {
            "/orders" => (Kind::Order, text(&self.body["metadata"], "mark")),
            // Its name is allotted; what is refused has none.
            "/pay/url" if self.is_done() => (Kind::Attempt, text(&self.reply(), "pay_order_id")),
            "/refunds" => (Kind::Refund, text(&self.body, "refund_no")),
            "/settlements" => (Kind::Settlement, text(&self.body, "order_no")),
            "/withdrawals" => (Kind::Withdrawal, text(&self.body, "withdrawal_no")),
            "/usage/holds" => (Kind::Hold, text(&self.body, "idempotency_key")),
            _ => return None,
        })
    }

    /// The order or hold that it is about, by the number that the service knows it by.
    fn is_about(&self) -> Option<(Kind, String)> {
        let mut parts = self.path.split('/').skip(1);
        match (parts.next()?, parts.next(), parts.next()) {
            ("orders", Some(order_no), Some(_)) => Some((Kind::Order, order_no.to_owned())),
            ("usage", Some("holds"), Some(hold_id)) => Some((Kind::Hold, hold_id.to_owned())),
            ("usage", ..) => Some((Kind::Hold, text(&self.reply(), "hold_id"))),
            ("orders", ..) => Some((Kind::Order, text(&self.reply(), "order_no"))),
            ("pay", ..) => Some((Kind::Order, text(&self.body, "order_no"))),
            _ => None,
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// All that is not so.
pub fn judge(log: &[Told], there: &[Thing]) -> Vec<Violation> {
    let mut case = Case { log, there: Index::of(there), violations: Vec::new() };
    case.keys_say_the_same();
    case.things_are_as_told();
    case.things_were_asked_for();
    case.ends_stay();
    case.violations
}

/// How a thing reads, where that is not as it was told.
pub fn differences(thing: &Thing, reply: &Value) -> Vec<String> {
    let fields = thing.fields.as_object().into_iter().flatten();
    let differing = fields.filter(|(field, value)| reply[field.as_str()] != **value);
    differing
        .map(|(field, value)| format!("{field} is {value} and was told as {}", reply[field.as_str()]))
        .collect()
}

/// What is there, by the names that merchants gave and by the numbers of the service.
struct Index<'a> {
    by_name: BTreeMap<Kind, BTreeMap<&'a str, Vec<&'a Thing>>>,
    by_number: BTreeMap<(Kind, String), &'a Thing>,
}

impl<'a> Index<'a> {
    fn of(there: &'a [Thing]) -> Self {
        let mut by_name = BTreeMap::<_, BTreeMap<_, Vec<_>>>::new();
        let mut by_number = BTreeMap::new();
        for thing in there {
            by_name.entry(thing.kind).or_default().entry(thing.name.as_str()).or_default().push(thing);
            let number = match thing.kind {
                Kind::Order => text(&thing.fields, "order_no"),
                Kind::Hold => text(&thing.fields, "hold_id"),
                _ => continue,
            };
            by_number.insert((thing.kind, number), thing);
        }
        Self { by_name, by_number }
    }

    fn named(&self, kind: Kind, name: &str) -> &[&'a Thing] {
        self.by_name.get(&kind).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
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

    fn keys_say_the_same(&mut self) {
        let mut first = BTreeMap::<&str, &Told>::new();
        for told in self.log {
            match first.get(told.key.as_str()) {
                Some(before) if (before.status, &before.answer) != (told.status, &told.answer) => {
                    self.complain(Rule::ToldAlike, format!("{before:#?} and then {told:#?}"));
                }
                None if told.is_done() => {
                    first.insert(&told.key, told);
                }
                _ => {}
            }
        }
    }

    fn things_are_as_told(&mut self) {
        for told in self.log {
            let Some((kind, name)) = told.asked_for() else { continue };
            match (told.is_done(), self.there.named(kind, &name).first().copied()) {
                (true, None) => self.complain(Rule::DoneIsThere, format!("{told:#?}")),
                (true, Some(thing)) => {
                    for difference in differences(thing, &told.reply()) {
                        self.complain(Rule::ReadsAsTold, format!("{difference}: {told:#?}"));
                    }
                }
                (false, Some(thing)) => {
                    self.complain(Rule::RefusedIsAbsent, format!("{told:#?}, and there is {thing:#?}"));
                }
                (false, None) => {}
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
            // An attempt that was refused is there too, and nobody heard its name.
            if kind != Kind::Attempt && !asked.contains(&(kind, name.to_owned())) {
                self.complain(Rule::NothingUnasked, format!("{kind:?} {name}"));
            }
        }
    }

    fn ends_stay(&mut self) {
        for told in self.log {
            let Some(thing) = told.is_about().and_then(|number| self.there.by_number.get(&number).copied())
            else {
                continue;
            };
            let (reply, standing) = (told.reply(), &thing.standing);
            let is_end = ENDS.contains(&text(&reply, "status").as_str()) && told.path != "/pay/url";
            let mut ends = standing.as_object().into_iter().flatten();
            if told.is_done() && is_end && ends.any(|(field, value)| reply[field.as_str()] != *value) {
                self.complain(Rule::EndsStay, format!("{told:#?}, and it stands as {standing}"));
            }
            let is_paid = !matches!(standing["status"].as_str(), Some("PENDING" | "CLOSED"));
            if told.code() == "ORDER_IS_ALREADY_PAID" && !is_paid {
                self.complain(Rule::PaidIsPaid, format!("{told:#?}, and it stands as {standing}"));
            }
            let reported = told.body["cumulative_units"].as_i64().filter(|_| told.is_done());
            if reported > standing["units"].as_i64() {
                self.complain(Rule::UsageIsHeard, format!("{told:#?}, and it stands as {standing}"));
            }
        }
    }
}
