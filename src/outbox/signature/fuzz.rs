//! Our signatures before the scheme's own library.

use proptest::prelude::*;
use reqwest::header::{HeaderMap, HeaderValue};

use super::Signer;
use crate::infra::base64;
use crate::infra::clock::Clock;
use crate::infra::fuzz::cases;

fn headers(id: &str, at: i64, signature: &str) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).expect("a header");
    HeaderMap::from_iter([
        ("webhook-id".parse().expect("a name"), value(id)),
        ("webhook-timestamp".parse().expect("a name"), value(&at.to_string())),
        ("webhook-signature".parse().expect("a name"), value(signature)),
    ])
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn what_we_sign_is_believed_and_what_was_bent_is_not(
        secrets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..64), 1..4),
        id in "[a-zA-Z0-9_]{1,40}",
        body in "\\PC{1,200}",
        place in any::<prop::sample::Index>(),
        off in 1..10_i64,
    ) {
        let texts: Vec<String> = secrets.iter().map(|bytes| format!("whsec_{}", base64::encode(bytes))).collect();
        let given: Vec<_> = texts.iter().map(|text| text.as_str().into()).collect();
        let now = Clock::system().now();
        let (signed, at) = (Signer::new(&given).expect("secrets").sign(&id, now, &body), now.unix_timestamp());
        let mut bent: Vec<char> = body.chars().collect();
        let place = place.index(bent.len());
        bent[place] = if bent[place] == 'x' { 'y' } else { 'x' };
        let bent: String = bent.into_iter().collect();
        let other_id = format!("{id}x");
        for text in &texts {
            let judge = standardwebhooks::Webhook::new(text).expect("a secret");
            prop_assert!(judge.verify(body.as_bytes(), &headers(&id, at, &signed)).is_ok());
            prop_assert!(judge.verify(bent.as_bytes(), &headers(&id, at, &signed)).is_err());
            prop_assert!(judge.verify(body.as_bytes(), &headers(&other_id, at, &signed)).is_err());
            prop_assert!(judge.verify(body.as_bytes(), &headers(&id, at + off, &signed)).is_err());
        }
    }

    #[test]
    fn no_secret_breaks_its_reader(text in prop_oneof!["\\PC{0,40}", "whsec_[A-Za-z0-9+/=]{0,60}"]) {
        let is_read = Signer::new(&[text.as_str().into()]).is_ok();
        let bytes = text.strip_prefix("whsec_").and_then(base64::decode);
        prop_assert_eq!(is_read, bytes.is_some_and(|bytes| !bytes.is_empty()));
    }
}
