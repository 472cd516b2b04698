//! The sandbox's signatures: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`.
//!
//! Always true: an empty secret signs nothing and fits nothing, comparison takes the same time whatever
//! differs, and a signature holds for five minutes before and after its timestamp, not only after. The same
//! scheme covers webhooks and the calls of a remote adapter.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use time::OffsetDateTime;

use crate::channels::CallbackError;

/// The header that carries a signature.
pub const HEADER: &str = "X-Sandbox-Signature";

/// How far a timestamp may be from now, either way.
const TOLERANCE_SECS: u64 = 300;

/// More signatures than this in one header are an attack on our processor, not a rotation.
const MAX_SIGNATURES: usize = 8;

/// No secret was given, or an empty one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected at least one sandbox secret, and none of them empty")]
pub struct EmptySecret;

/// The secrets in use: the first signs, all of them verify, so that a secret can be replaced without a gap.
#[derive(Clone)]
pub struct Keys {
    signing: Hmac<Sha256>,
    verifying: Arc<[Hmac<Sha256>]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("verifying", &self.verifying.len()).finish_non_exhaustive()
    }
}

impl Keys {
    /// Keys from their secrets.
    ///
    /// # Errors
    /// [`EmptySecret`] when there is none, or one of them is empty: HMAC would accept both.
    pub fn new(secrets: &[SecretString]) -> Result<Self, EmptySecret> {
        let keyed = |secret: &SecretString| match secret.expose_secret().as_bytes() {
            [] => Err(EmptySecret),
            secret => Hmac::<Sha256>::new_from_slice(secret).map_err(|_| EmptySecret),
        };
        let verifying: Arc<[_]> = secrets.iter().map(keyed).collect::<Result<_, _>>()?;
        let signing = verifying.first().cloned().ok_or(EmptySecret)?;
        Ok(Self { signing, verifying })
    }

    /// The header's value for this body, made at this moment with the first secret.
    #[must_use]
    pub fn sign(&self, body: &[u8], at: OffsetDateTime) -> String {
        let timestamp = at.unix_timestamp().to_string();
        let mac = keyed_message(&self.signing, &timestamp, body).finalize().into_bytes();
        format!("t={timestamp},v1={}", hex(&mac))
    }

    /// Checks the one signature header of a message against every secret.
    ///
    /// # Errors
    /// [`CallbackError::BadSignature`] and, for a true signature that is too old or from the future,
    /// [`CallbackError::StaleTimestamp`].
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now: OffsetDateTime) -> Result<(), CallbackError> {
        let mut values = headers.get_all(HEADER).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(CallbackError::BadSignature);
        };
        let signed = value.to_str().ok().and_then(Signed::parse).ok_or(CallbackError::BadSignature)?;

        if !self.verifying.iter().any(|key| signed.fits(key, body)) {
            return Err(CallbackError::BadSignature);
        }
        if now.unix_timestamp().abs_diff(signed.unix_secs) > TOLERANCE_SECS {
            return Err(CallbackError::StaleTimestamp);
        }
        Ok(())
    }
}

/// A signature header, read.
struct Signed<'a> {
    /// The digits as they came, because they are what was signed.
    timestamp: &'a str,
    unix_secs: i64,
    signatures: Vec<[u8; 32]>,
}

impl<'a> Signed<'a> {
    /// Reads the header. Schemes we do not know are passed over, so that a `v2` can be introduced beside `v1`;
    /// anything else out of form spoils the whole header.
    fn parse(value: &'a str) -> Option<Self> {
        let mut timestamp = None;
        let mut signatures = Vec::new();
        for part in value.split(',') {
            match part.split_once('=')? {
                ("t", digits) if timestamp.is_none() => timestamp = Some((digits, unix_secs(digits)?)),
                ("t", _) => return None,
                ("v1", signature) => signatures.push(unhex(signature)?),
                _ => {}
            }
        }
        let (timestamp, unix_secs) = timestamp?;
        let is_sound = (1..=MAX_SIGNATURES).contains(&signatures.len());
        is_sound.then_some(Self { timestamp, unix_secs, signatures })
    }

    fn fits(&self, key: &Hmac<Sha256>, body: &[u8]) -> bool {
        let message = keyed_message(key, self.timestamp, body);
        self.signatures.iter().any(|signature| message.clone().verify_slice(signature).is_ok())
    }
}

fn keyed_message(key: &Hmac<Sha256>, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut message = key.clone();
    message.update(timestamp.as_bytes());
    message.update(b".");
    message.update(body);
    message
}

/// Only digits: `parse` alone would also take a sign.
fn unix_secs(digits: &str) -> Option<i64> {
    let is_number = (1..=12).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Lower case only: one signature, one spelling.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let bytes: Vec<u8> =
        pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
    const BODY: &[u8] = br#"{"event_id":"evt_1"}"#;

    fn keys(secrets: &[&str]) -> Keys {
        let secrets: Vec<_> = secrets.iter().map(|s| SecretString::from(*s)).collect();
        Keys::new(&secrets).unwrap()
    }

    fn check(keys: &Keys, value: &str, body: &[u8], now: OffsetDateTime) -> Result<(), CallbackError> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, value.parse().unwrap());
        keys.verify(&headers, body, now)
    }

    #[test]
    fn the_scheme_is_the_documented_one() {
        // python3 -c 'import hmac; print(hmac.new(b"s3cret", b"1767225600.{}", "sha256").hexdigest())'
        let expected = "t=1767225600,v1=29ee05578fef21788e25d00ee3270df92a9e454a1fb82bc2c22d2269c729892b";
        assert_eq!(keys(&["s3cret"]).sign(b"{}", NOW), expected);
    }

    #[test]
    fn empty_secrets_are_refused() {
        assert!(Keys::new(&[]).is_err());
        assert!(Keys::new(&[SecretString::from("")]).is_err());
        assert!(Keys::new(&[SecretString::from("good"), SecretString::from("")]).is_err());
    }

    #[test]
    fn a_secret_is_replaced_without_a_gap() {
        let (old, both, new) = (keys(&["old"]), keys(&["new", "old"]), keys(&["new"]));
        assert_eq!(check(&both, &old.sign(BODY, NOW), BODY, NOW), Ok(()));
        assert_eq!(check(&new, &both.sign(BODY, NOW), BODY, NOW), Ok(()));
        assert_eq!(check(&new, &old.sign(BODY, NOW), BODY, NOW), Err(CallbackError::BadSignature));
    }

    #[test]
    fn a_sender_may_sign_twice_and_in_schemes_we_do_not_know() {
        let (ours, other) = (keys(&["ours"]).sign(BODY, NOW), keys(&["other"]).sign(BODY, NOW));
        let (_, ours_v1) = ours.split_once(',').unwrap();
        assert_eq!(check(&keys(&["ours"]), &format!("{other},{ours_v1},v2=%"), BODY, NOW), Ok(()));
    }

    #[test]
    fn timestamps_hold_five_minutes_either_way() {
        let keys = keys(&["k"]);
        for (offset_secs, expected) in [
            (0, Ok(())),
            (300, Ok(())),
            (-300, Ok(())),
            (301, Err(CallbackError::StaleTimestamp)),
            (-301, Err(CallbackError::StaleTimestamp)),
        ] {
            let signed = keys.sign(BODY, NOW + Duration::seconds(offset_secs));
            assert_eq!(check(&keys, &signed, BODY, NOW), expected, "{offset_secs} s");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let keys = keys(&["k"]);
        let signed = keys.sign(BODY, NOW);
        for position in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[position / 8] ^= 1 << (position % 8);
            assert_eq!(check(&keys, &signed, &body, NOW), Err(CallbackError::BadSignature), "bit {position}");
        }
        for position in 0..signed.len() {
            let mut value = signed.clone().into_bytes();
            value[position] ^= 1;
            let value = String::from_utf8(value).unwrap();
            assert_eq!(check(&keys, &value, BODY, NOW), Err(CallbackError::BadSignature), "{value}");
        }
    }

    #[test]
    fn headers_out_of_form_are_refused() {
        let keys = keys(&["k"]);
        let good = keys.sign(BODY, NOW);
        let (t, v1) = good.split_once(',').unwrap();
        let upper = format!("{t},v1={}", v1[3..].to_uppercase());
        let many = format!("{t},{}", [v1; 9].join(","));
        for bad in [
            "",
            t,
            v1,
            &upper,
            &many,
            &format!("{t},{v1},"),
            &format!("{t},{t},{v1}"),
            &format!("{t}, {v1}"),
            &format!("{t},{}", &v1[..v1.len() - 1]),
            &format!("t=+1767225600,{v1}"),
            &format!("t=1767225600.0,{v1}"),
            &format!("{t},v1="),
        ] {
            assert_eq!(check(&keys, bad, BODY, NOW), Err(CallbackError::BadSignature), "{bad}");
        }
        let mut twice = HeaderMap::new();
        twice.append(HEADER, good.parse().unwrap());
        twice.append(HEADER, good.parse().unwrap());
        assert_eq!(keys.verify(&twice, BODY, NOW), Err(CallbackError::BadSignature));
        assert_eq!(keys.verify(&HeaderMap::new(), BODY, NOW), Err(CallbackError::BadSignature));
    }
}
