//! Keys of requests as anybody may write them.

use proptest::prelude::*;

use super::{MAX_KEY, unquoted};
use crate::infra::fuzz::cases;

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_key_is_the_same_quoted_and_bare(key in prop_oneof!["[!-~]{1,260}", "[ -~]{1,260}"]) {
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        let expected = Some(key.clone()).filter(|key| key.len() <= MAX_KEY);
        prop_assert_eq!(unquoted(&quoted), expected.clone());
        // A quote within would make a bare one mean two things, and a space would end it.
        let bare = expected.filter(|key| !key.contains(['"', ' ']));
        prop_assert_eq!(unquoted(&key).filter(|_| !key.starts_with('"')), bare);
    }

    #[test]
    fn what_is_read_is_a_key(text in prop_oneof!["\\PC{0,300}", "[\"\\\\ a]{0,12}"]) {
        if let Some(key) = unquoted(&text) {
            prop_assert!((1..=MAX_KEY).contains(&key.len()), "{key:?}");
            prop_assert!(key.bytes().all(|b| matches!(b, b' '..=b'~')), "{key:?}");
            prop_assert!(key.len() <= text.len());
        }
    }
}
