//! Names in paths, bodies and headers: what is read is what was written.

use payonce::ids::{MerchantId, OrderNo};
use payonce::infra::{base64, body};
use payonce::ledger::TransactionId;
use payonce::orders::OrderKey;
use payonce::outbox::parse_event_id;
use payonce::webhooks::InboxId;
use proptest::prelude::*;
use serde_json::Value;

use super::cases;

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn an_identifier_is_short_and_plain_and_stays_as_it_is(text in prop_oneof!["[0-9A-Za-z_.-]{0,70}", "\\PC{0,70}"]) {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        let is_one = (1..=64).contains(&text.len()) && text.bytes().all(is_plain);
        let read: Result<OrderNo, _> = text.parse();
        prop_assert_eq!(read.is_ok(), is_one);
        if let Ok(order_no) = read {
            prop_assert_eq!(order_no.as_str(), text.as_str());
            let by_json: OrderNo = serde_json::from_str(&serde_json::to_string(&order_no).expect("JSON")).expect("one");
            prop_assert_eq!(by_json, order_no);
        }
    }

    #[test]
    fn two_orders_never_have_one_key(
        one in ("[0-9A-Za-z_.-]{1,64}", "[0-9A-Za-z_.-]{1,64}"),
        other in ("[0-9A-Za-z_.-]{1,64}", "[0-9A-Za-z_.-]{1,64}"),
        text in "\\PC{0,40}",
    ) {
        let key = |(merchant_id, order_no): &(String, String)| OrderKey {
            merchant_id: merchant_id.parse::<MerchantId>().expect("a merchant"),
            order_no: order_no.parse().expect("a number"),
        };
        let (one, other) = (key(&one), key(&other));
        prop_assert_eq!(OrderKey::from_member(&one.member()), Some(one.clone()));
        prop_assert_eq!(one == other, one.lock_key() == other.lock_key());
        if let Some(read) = OrderKey::from_member(&text) {
            prop_assert_eq!(read.member(), text);
        }
    }

    #[test]
    fn a_callbacks_name_in_a_path_is_read_back(channel in "\\PC{0,40}", event_id in "\\PC{0,120}", text in "[~:0-9a-fA-Z]{0,60}") {
        let id = InboxId { channel, event_id };
        let told = id.to_string();
        prop_assert!(told.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-~:".contains(&b)), "{}", told);
        if told.len() <= 1024 {
            prop_assert_eq!(told.parse::<InboxId>().ok(), Some(id));
        }
        if let Ok(read) = text.parse::<InboxId>() {
            prop_assert_eq!(read.to_string().parse::<InboxId>().ok(), Some(read));
        }
    }

    #[test]
    fn a_bookings_name_in_a_path_is_plain(text in prop_oneof!["[A-Z_:]{0,30}[0-9A-Za-z_:.-]{0,190}", "\\PC{0,60}"]) {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-:".contains(&b);
        let is_one = (1..=200).contains(&text.len()) && text.bytes().all(is_plain);
        prop_assert_eq!(text.parse::<TransactionId>().is_ok(), is_one);
    }

    #[test]
    fn an_events_name_is_its_number(number in any::<i64>(), text in prop_oneof!["(evt_)?[0-9]{1,22}", "(evt_){0,2}[-+0-9 ]{0,6}", "\\PC{0,12}"]) {
        let is_one = number >= 0;
        prop_assert_eq!(parse_event_id(&format!("evt_{number}")), Some(number).filter(|_| is_one));
        prop_assert_eq!(parse_event_id(&number.to_string()), Some(number).filter(|_| is_one));
        if let Some(read) = parse_event_id(&text) {
            let digits = text.strip_prefix("evt_").unwrap_or(&text).trim_start_matches('0');
            let told = read.to_string();
            prop_assert_eq!(told.trim_start_matches('0'), digits);
        }
    }

    #[test]
    fn base64_is_read_back_and_no_text_breaks_its_reader(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}") {
        prop_assert_eq!(base64::decode(&base64::encode(&bytes)), Some(bytes.clone()));
        prop_assert_eq!(base64::decode(base64::encode(&bytes).trim_end_matches('=')), Some(bytes));
        if let Some(read) = base64::decode(&text) {
            prop_assert_eq!(read.len(), text.trim_end_matches('=').len() * 3 / 4);
        }
    }

    #[test]
    fn no_bytes_break_the_reader_of_bodies(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[{}\\[\\]\",:0-9a-z\\\\u .eE+-]{0,200}".prop_map(String::into_bytes),
    ]) {
        // It takes what serde_json takes, where that is an object without U+0000, and nothing else.
        let read = body::parse::<Value>(&bytes);
        let plain: Option<Value> = serde_json::from_slice(&bytes).ok().filter(Value::is_object);
        let has_nul = bytes.windows(6).any(|window| window == br"\u0000");
        prop_assert_eq!(read.ok(), plain.filter(|_| !has_nul));
    }
}
