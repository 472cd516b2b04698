//! Whether what the merchant's endpoint heard is so: each piece of news against the thing that it tells of.

use std::collections::BTreeMap;

use serde_json::Value;

use super::heard::Heard;
use super::told::{Index, Kind, Thing, text};

/// News that there may be.
struct News {
    name: &'static str,
    /// What tells it, and the field that says which one.
    of: &'static [Kind],
    named_by: &'static str,
    /// Where that stands in the end: an order that was paid may have been given back since.
    stands: &'static [&'static str],
    /// What is said of it, in its own words.
    says: &'static [&'static str],
    /// What must be so besides.
    besides: fn(&Index, &Thing, &Value) -> bool,
}

/// No channel here takes a refund back, nobody keeps stray money or is charged for a top-up that never came, and nothing is sold by
/// the cycle: of those there is no news.
const NEWS: &[News] = &[
    News {
        name: "order.paid",
        of: &[Kind::Order],
        named_by: "order_no",
        stands: &["PAID", "PARTIALLY_REFUNDED", "REFUNDED"],
        says: &["user_id", "amount", "currency"],
        besides: is_paid_by_it,
    },
    News {
        name: "order.closed",
        of: &[Kind::Order],
        named_by: "order_no",
        stands: &["CLOSED"],
        says: &["user_id", "close_reason"],
        besides: nothing,
    },
    News {
        name: "order.settled",
        of: &[Kind::Settlement],
        named_by: "order_no",
        stands: &["SETTLED", "CLAWED_BACK"],
        says: &["user_id", "base_amount", "commission", "currency"],
        besides: nothing,
    },
    News {
        name: "settlement.clawed_back",
        of: &[Kind::Settlement],
        named_by: "order_no",
        stands: &["SETTLED", "CLAWED_BACK"],
        says: &["user_id", "commission", "currency"],
        besides: follows_a_refund,
    },
    News {
        name: "stray_payment.received",
        of: &[Kind::Stray],
        named_by: "stray_id",
        stands: &["HELD", "REFUNDING", "REFUNDED", "KEPT"],
        says: &["order_no", "reason", "amount", "currency", "pay_order_id", "channel", "transaction_id"],
        besides: nothing,
    },
    News {
        name: "refund.finished",
        of: &[Kind::Refund, Kind::WayBack],
        named_by: "refund_no",
        stands: &["SUCCEEDED", "FAILED"],
        says: &[
            "order_no",
            "status",
            "amount",
            "currency",
            "refund_id",
            "pay_order_id",
            "stray_id",
            "reason",
            "failure",
        ],
        besides: nothing,
    },
    News {
        name: "withdrawal.finished",
        of: &[Kind::Withdrawal],
        named_by: "withdrawal_no",
        stands: &["SUCCEEDED", "REVERSED"],
        says: &["user_id", "status", "amount", "currency", "failure"],
        besides: nothing,
    },
    News {
        name: "usage.charged",
        of: &[Kind::Hold],
        named_by: "hold_id",
        stands: &["CONFIRMED"],
        says: &["user_id", "product_code", "units", "charged", "shortfall", "currency", "late"],
        besides: nothing,
    },
    News {
        name: "usage.hold_exhausted",
        of: &[Kind::Hold],
        named_by: "hold_id",
        stands: &["HELD", "RELEASED", "EXPIRED", "CONFIRMED"],
        says: &["user_id", "product_code", "currency"],
        besides: was_used,
    },
    News {
        name: "usage.hold_expired",
        of: &[Kind::Hold],
        named_by: "hold_id",
        stands: &["EXPIRED", "CONFIRMED"],
        says: &["user_id", "product_code", "currency"],
        besides: ran_out,
    },
];

fn nothing(_: &Index, _: &Thing, _: &Value) -> bool {
    true
}

/// By the attempt that is named, and by money of that attempt.
fn is_paid_by_it(there: &Index, order: &Thing, said: &Value) -> bool {
    let money = there.known_as(Kind::Money, &text(said, "transaction_id"));
    let paid_by = &said["pay_order_id"];
    order.reads("paid_by") == paid_by && money.is_some_and(|money| money.reads("out_trade_no") == paid_by)
}

/// Of this order, and it succeeded.
fn follows_a_refund(there: &Index, settlement: &Thing, said: &Value) -> bool {
    let is_it = |refund: &Thing| {
        refund.reads("refund_id") == &said["reference"]
            && refund.reads("order_no") == settlement.reads("order_no")
            && refund.reads("status") == "SUCCEEDED"
    };
    there.all(Kind::Refund).any(is_it)
}

fn was_used(_: &Index, hold: &Thing, said: &Value) -> bool {
    said["units"].as_i64() <= hold.reads("units").as_i64()
}

/// Work may go on after its hold, and then is charged late.
fn ran_out(there: &Index, hold: &Thing, said: &Value) -> bool {
    let did = hold.reads("status") == "EXPIRED" || hold.reads("late") == true;
    did && was_used(there, hold, said)
}

/// What was heard and is not so.
pub fn untruths(there: &Index, heard: &[Heard]) -> Vec<String> {
    let untrue = heard.iter().filter_map(|one| Some(format!("{}: {one:#?}", untruth(there, one)?)));
    untrue.chain(claw_backs_that_do_not_add_up(there, heard)).collect()
}

fn untruth(there: &Index, heard: &Heard) -> Option<String> {
    let told = heard.told();
    let said = &told["data"];
    let Some(news) = NEWS.iter().find(|news| told["type"] == news.name) else {
        return Some("nobody tells such news".to_owned());
    };
    let name = text(said, news.named_by);
    let Some(thing) = news.of.iter().find_map(|kind| there.known_as(*kind, &name)) else {
        return Some(format!("there is no {name}"));
    };
    let is_so = news.stands.contains(&text(&thing.standing, "status").as_str())
        && news.says.iter().all(|field| *thing.reads(field) == said[*field])
        && (news.besides)(there, thing, said);
    (!is_so).then(|| format!("there is {thing:#?}"))
}

/// Piece by piece the merchant heard of all that is clawed back, and of no more.
fn claw_backs_that_do_not_add_up<'a>(there: &Index<'a>, heard: &[Heard]) -> impl Iterator<Item = String> {
    let pieces: BTreeMap<_, _> = heard.iter().map(|one| (&one.id, one.told())).collect();
    let mut sums = BTreeMap::<String, i64>::new();
    for told in pieces.values().filter(|told| told["type"] == "settlement.clawed_back") {
        let (name, amount) = (text(&told["data"], "order_no"), told["data"]["amount"].as_i64());
        *sums.entry(name).or_default() += amount.unwrap_or_default();
    }
    there.all(Kind::Settlement).filter_map(move |settlement| {
        let sum = sums.get(&settlement.name).copied().unwrap_or_default();
        let is_all = settlement.reads("clawed_back").as_i64() == Some(sum);
        (!is_all).then(|| format!("{sum} were told to be clawed back: {settlement:#?}"))
    })
}
