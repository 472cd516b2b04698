//! Messages of usage as anybody at the broker may send them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Message;
use crate::infra::fuzz::cases;
use crate::usage::MAX_UNITS;

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_bytes_break_the_reader(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "\\{(\"(merchant_id|hold_id|message_id|cumulative_units|final)\":(\"[a-z_]{0,70}\"|-?[0-9]{1,20}|true|null),?){0,6}\\}"
            .prop_map(String::into_bytes),
    ]) {
        if let Ok(message) = serde_json::from_slice::<Message>(&bytes) {
            prop_assert!((0..=MAX_UNITS).contains(&message.cumulative_units.count()));
            let said: Value = serde_json::from_slice(&bytes).expect("JSON");
            prop_assert_eq!(&said["cumulative_units"], &json!(message.cumulative_units.count()));
            prop_assert_eq!(&said["hold_id"], &json!(message.hold_id.as_str()));
        }
    }

    #[test]
    fn a_right_message_is_read_as_it_was_written_and_one_with_more_is_not(
        ids in ("[0-9A-Za-z_.-]{1,64}", "[0-9A-Za-z_.-]{1,64}", "[0-9A-Za-z_.-]{1,64}"),
        units in -2..=MAX_UNITS + 2,
        is_final in prop::option::of(any::<bool>()),
        more in "[a-z]{1,8}",
    ) {
        let (merchant_id, hold_id, message_id) = ids;
        let mut said = json!({
            "merchant_id": merchant_id, "hold_id": hold_id, "message_id": message_id, "cumulative_units": units,
        });
        if let Some(is_final) = is_final {
            said["final"] = json!(is_final);
        }
        let read: Result<Message, _> = serde_json::from_value(said.clone());
        prop_assert_eq!(read.is_ok(), (0..=MAX_UNITS).contains(&units));
        if let Ok(message) = read {
            let names = (message.merchant_id.as_str(), message.hold_id.as_str(), message.message_id.as_str());
            prop_assert_eq!(names, (merchant_id.as_str(), hold_id.as_str(), message_id.as_str()));
            prop_assert_eq!(message.is_final, is_final.unwrap_or(false));
        }
        if said.get(&more).is_none() {
            said[more] = json!(1);
            prop_assert!(serde_json::from_value::<Message>(said).is_err());
        }
    }
}
