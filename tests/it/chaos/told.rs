//! What the log and the books are made of: what was told, and what is there.

use std::collections::BTreeMap;

use serde_json::Value;

/// Where the channel tells of money.
pub const CALLBACKS: &str = "/webhooks/sandbox";

/// What somebody asked for, told of or looked at, and was answered.
#[derive(Clone, Debug)]
pub struct Told {
    pub path: String,
    /// Empty for what is only looked at, and for a callback.
    pub key: String,
    pub body: Value,
    pub status: u16,
    pub answer: String,
    /// How many answers had been noted when it was asked: it came after all of those.
    pub after: usize,
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
    /// A payment of the channel that pays an order or is stray.
    Money,
    /// Such a payment that no order accepts.
    Stray,
    /// The refund of one.
    WayBack,
}

/// A thing that is there, under the name by which it was asked for.
#[derive(Clone, Debug)]
pub struct Thing {
    pub kind: Kind,
    pub name: String,
    /// What never changes: as it was told, so it must read.
    pub fields: Value,
    /// Where it stands: of an order and a hold as it must read in every answer that told of an end, of the rest whatever
    /// the books know.
    pub standing: Value,
}

impl Told {
    pub fn reply(&self) -> Value {
        serde_json::from_str(&self.answer).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        text(&self.reply(), "code")
    }

    /// Which door it knocked at: the path without numbers.
    pub fn route(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        let is_word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase());
        path.split('/').filter(is_word).collect::<Vec<_>>().join(" ")
    }

    pub fn is_done(&self) -> bool {
        matches!(self.status, 200 | 201)
    }

    /// Whether its key has this answer from then on: what was done, and what a channel refused for good.
    pub fn is_kept(&self) -> bool {
        !self.key.is_empty() && (self.is_done() || self.status == 402)
    }

    /// Whether it was a callback that was taken in.
    pub fn is_acknowledged(&self) -> bool {
        self.path == CALLBACKS && self.status == 200 && self.answer == "SUCCESS"
    }

    /// Whether an order was looked at.
    pub fn is_look(&self) -> bool {
        self.key.is_empty() && self.path.starts_with("/orders/")
    }

    /// What was reported of usage, where that was heard. One that passes what can be set aside, and one of a hold that ran
    /// out (no seller reports behind its own end), is refused, and heard all the same.
    pub fn heard_units(&self) -> Option<i64> {
        let but_heard = ["INSUFFICIENT_BALANCE", "QUOTA_EXCEEDED", "HOLD_CLOSED"];
        let is_heard = self.is_done() || but_heard.contains(&self.code().as_str());
        self.body["cumulative_units"].as_i64().filter(|_| is_heard)
    }

    /// Whether this is what it did to its order or hold.
    pub fn did(&self, action: &str) -> bool {
        self.is_done() && self.path.ends_with(action)
    }

    /// The refund that an operator decided over, and whether it was let go.
    pub fn decides(&self) -> Option<(&str, bool)> {
        let (refund_no, verb) = self.path.strip_prefix("/admin/refunds/")?.split_once('/')?;
        Some((refund_no, verb == "approve"))
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
    pub fn is_about(&self) -> Option<(Kind, String)> {
        let path = self.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        Some(match parts.as_slice() {
            ["orders"] => (Kind::Order, text(&self.reply(), "order_no")),
            ["orders", order_no, ..] => (Kind::Order, (*order_no).to_owned()),
            ["pay", "url"] => (Kind::Order, text(&self.body, "order_no")),
            ["usage", "holds"] => (Kind::Hold, text(&self.reply(), "hold_id")),
            ["usage", "holds", hold_id, ..] => (Kind::Hold, (*hold_id).to_owned()),
            _ => return None,
        })
    }
}

impl Thing {
    /// What it reads under that name; null where it has none such.
    pub fn reads(&self, field: &str) -> &Value {
        self.fields.get(field).unwrap_or(&self.standing[field])
    }

    /// What the merchant must have heard of where it stands, in the words of [`super::heard::Heard::news`].
    pub fn news(&self) -> Option<String> {
        let (name, status) = (&self.name, text(&self.standing, "status"));
        let number = |field| text(&self.fields, field);
        Some(match (self.kind, status.as_str()) {
            (Kind::Order, "CLOSED") => format!("order.closed {}", number("order_no")),
            (Kind::Order, "PAID" | "PARTIALLY_REFUNDED" | "REFUNDED") => {
                format!("order.paid {}", number("order_no"))
            }
            (Kind::Settlement, _) => format!("order.settled {name}"),
            (Kind::Stray, _) => format!("stray_payment.received {name}"),
            (Kind::Refund | Kind::WayBack, "SUCCEEDED" | "FAILED") => {
                format!("refund.finished {name} {status}")
            }
            (Kind::Withdrawal, "SUCCEEDED" | "REVERSED") => format!("withdrawal.finished {name} {status}"),
            (Kind::Hold, "CONFIRMED") => format!("usage.charged {}", number("hold_id")),
            (Kind::Hold, "EXPIRED") => format!("usage.hold_expired {}", number("hold_id")),
            _ => return None,
        })
    }
}

pub fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
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
pub struct Index<'a> {
    pub by_name: BTreeMap<Kind, BTreeMap<&'a str, Vec<&'a Thing>>>,
    pub by_number: BTreeMap<(Kind, String), &'a Thing>,
}

impl<'a> Index<'a> {
    pub fn of(there: &'a [Thing]) -> Self {
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

    /// The thing that the service itself calls so.
    pub fn known_as(&self, kind: Kind, name: &str) -> Option<&'a Thing> {
        match kind {
            Kind::Order | Kind::Hold => self.by_number.get(&(kind, name.to_owned())).copied(),
            _ => self.named(kind, name).first().copied(),
        }
    }

    /// All of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &'a Thing> {
        self.by_name.get(&kind).into_iter().flat_map(|names| names.values().flatten().copied())
    }

    pub fn named(&self, kind: Kind, name: &str) -> &[&'a Thing] {
        self.by_name.get(&kind).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
    }
}
