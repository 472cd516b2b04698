//! Calls of remote adapters that are signed well and say anything.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::problem::parse;
use super::*;
use crate::infra::fuzz::cases;
use crate::money::MAX_MINOR;

/// What is read of an envelope, as it would travel again.
fn read_back<C: Call>(bytes: &[u8]) -> Option<Value> {
    let envelope: Envelope<C> = parse(bytes).ok()?;
    Some(serde_json::to_value(envelope).expect("JSON"))
}

/// The same of every operation.
fn read_back_by_any(bytes: &[u8]) -> [Option<Value>; 8] {
    [
        read_back::<Create>(bytes),
        read_back::<Query>(bytes),
        read_back::<Close>(bytes),
        read_back::<Refund>(bytes),
        read_back::<QueryRefund>(bytes),
        read_back::<Payout>(bytes),
        read_back::<QueryPayout>(bytes),
        read_back::<Statement>(bytes),
    ]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[0-9A-Za-z_.-]{1,64}", 1 => "\\PC{0,70}"]
}

fn is_id(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_bytes_break_any_reader(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "\\{\"operation\":\"[a-z_]{1,12}\",\"call\":[{}\\[\\]\",:0-9a-z_]{0,80}\\}".prop_map(String::into_bytes),
    ]) {
        for told in read_back_by_any(&bytes).into_iter().flatten() {
            let said: Value = serde_json::from_slice(&bytes).expect("JSON");
            prop_assert_eq!(&told["operation"], &said["operation"]);
        }
    }

    #[test]
    fn money_goes_out_as_it_was_said_or_not_at_all(
        ids in (id(), id(), "\\PC{0,40}"),
        amount in prop_oneof![4 => -2..=MAX_MINOR + 2, 1 => any::<i64>()],
        currency in prop_oneof![3 => Just("CNY"), 1 => Just("cny"), 1 => Just("XXY")],
        more in "[a-z]{1,8}",
    ) {
        let (refund_id, pay_order_id, words) = ids;
        let is_money = (1..=MAX_MINOR).contains(&amount) && currency.parse::<Currency>().is_ok();
        let refund = json!({"operation": "refund", "call": {
            "refund_id": refund_id, "pay_order_id": pay_order_id, "transaction_id": words, "amount": amount,
            "currency": currency, "reason": words,
        }});
        let payout = json!({"operation": "payout", "call": {
            "payout_id": words, "amount": amount, "currency": currency, "account": words,
        }});
        let told = read_back_by_any(refund.to_string().as_bytes());
        let is_right = is_money && is_id(&refund_id) && is_id(&pay_order_id);
        prop_assert_eq!(told.into_iter().flatten().collect::<Vec<_>>(), is_right.then(|| refund.clone()).into_iter().collect::<Vec<_>>());
        let told = read_back_by_any(payout.to_string().as_bytes());
        prop_assert_eq!(told.into_iter().flatten().collect::<Vec<_>>(), is_money.then(|| payout.clone()).into_iter().collect::<Vec<_>>());
        // One that says more than it should is not half understood.
        for mut call in [refund, payout] {
            call["call"][format!("{more}_")] = json!(1);
            prop_assert!(read_back_by_any(call.to_string().as_bytes()).iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_place_in_the_books_is_read_as_it_was_written(
        day in "(20[0-9]{2}|[0-9]{4})-[01][0-9]-[0-3][0-9]",
        kind in prop::sample::select(&["payment", "refund", "payout", "fee"][..]),
        key in "\\PC{0,40}",
        is_first in any::<bool>(),
    ) {
        let after = if is_first { Value::Null } else { json!({"kind": kind, "at": format!("{day}T00:00:00Z"), "key": key}) };
        let said = json!({"operation": "statement", "call": {"day": day, "after": after}});
        let told = read_back::<Statement>(said.to_string().as_bytes());
        prop_assert!(told.is_none() || told.as_ref() == Some(&said), "{:?}", told);
        let is_day = day_text::deserialize(&json!(day)).is_ok();
        prop_assert_eq!(told.is_some(), is_day && (is_first || kind != "fee"));
    }
}
