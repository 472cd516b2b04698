//! Signatures of callbacks: what was bent anywhere is not believed, and no header breaks the reader.

use payonce::channels::CallbackError;
use payonce::channels::sandbox::signature::{HEADER, Keys};
use proptest::prelude::*;
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::SecretString;
use time::OffsetDateTime;

use super::cases;

fn keys(secret: &str) -> Keys {
    Keys::new(&[SecretString::from(secret)]).expect("a secret")
}

fn check(keys: &Keys, header: &[u8], body: &[u8], now: OffsetDateTime) -> Result<(), CallbackError> {
    let mut headers = HeaderMap::new();
    match HeaderValue::from_bytes(header) {
        Ok(value) => headers.insert(HEADER, value),
        // No such header can come.
        Err(_) => return Err(CallbackError::BadSignature),
    };
    keys.verify(&headers, body, now)
}

fn moment() -> impl Strategy<Value = OffsetDateTime> {
    // Up to the year 9999, which has twelve digits at most.
    (0..253_402_300_799_i64).prop_map(|secs| OffsetDateTime::from_unix_timestamp(secs).expect("a time"))
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn what_was_signed_is_believed_for_five_minutes_either_way(
        secret in "\\PC{1,40}",
        body in prop::collection::vec(any::<u8>(), 0..200),
        at in moment(),
        off in -400..400_i64,
    ) {
        let keys = keys(&secret);
        let told = check(&keys, keys.sign(&body, at).as_bytes(), &body, at + time::Duration::seconds(off));
        let expected = if off.abs() <= 300 { Ok(()) } else { Err(CallbackError::StaleTimestamp) };
        prop_assert_eq!(told, expected);
    }

    #[test]
    fn one_bent_bit_is_enough(
        secret in "\\PC{1,40}",
        body in prop::collection::vec(any::<u8>(), 1..200),
        at in moment(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
        in_header in any::<bool>(),
    ) {
        let keys = keys(&secret);
        let (mut header, mut bent) = (keys.sign(&body, at).into_bytes(), body);
        let target = if in_header { &mut header } else { &mut bent };
        let place = place.index(target.len());
        target[place] ^= 1 << bit;
        prop_assert_eq!(check(&keys, &header, &bent, at), Err(CallbackError::BadSignature));
    }

    #[test]
    fn another_secret_or_a_longer_or_shorter_message_is_not_believed(
        secret in "[a-z]{1,20}",
        other in "[a-z]{1,20}",
        body in prop::collection::vec(any::<u8>(), 0..100),
        more in prop::collection::vec(any::<u8>(), 1..10),
        at in moment(),
    ) {
        prop_assume!(secret != other);
        let own = keys(&secret);
        let signed = own.sign(&body, at);
        prop_assert!(check(&keys(&other), signed.as_bytes(), &body, at).is_err());
        let longer = [body.clone(), more].concat();
        prop_assert!(check(&own, signed.as_bytes(), &longer, at).is_err());
        prop_assert!(check(&own, own.sign(&longer, at).as_bytes(), &body, at).is_err());
    }

    #[test]
    fn no_header_breaks_the_reader_and_none_is_guessed(
        header in prop_oneof![
            "[tv0-9a-f=, .+-]{0,200}",
            "(t=[0-9]{0,20},?|v1=[0-9a-f]{0,70},?|v2=.{0,5},?){0,12}",
            "\\PC{0,100}",
        ],
        body in prop::collection::vec(any::<u8>(), 0..50),
        at in moment(),
    ) {
        prop_assert!(check(&keys("a secret that nobody guesses"), header.as_bytes(), &body, at).is_err());
    }
}
