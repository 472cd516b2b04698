//! Signatures by Standard Webhooks: `v1,` and the Base64 of HMAC-SHA256 over `id.timestamp.body`.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use time::OffsetDateTime;

use crate::infra::base64;

/// A secret that is none of this scheme's.
#[derive(Debug, thiserror::Error)]
#[error("a secret for notifications is not of the form whsec_ and Base64")]
pub(super) struct BadSecret;

/// Every secret that is valid now, the newest first.
#[derive(Clone)]
pub(super) struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    pub(super) fn new(secrets: &[SecretString]) -> Result<Self, BadSecret> {
        let key = |secret: &SecretString| {
            let text = secret.expose_secret().strip_prefix("whsec_").ok_or(BadSecret)?;
            let bytes = base64::decode(text).filter(|bytes| !bytes.is_empty()).ok_or(BadSecret)?;
            Hmac::new_from_slice(&bytes).map_err(|_| BadSecret)
        };
        let keys = secrets.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(BadSecret) } else { Ok(Self { keys }) }
    }

    /// The value of `webhook-signature`: one signature for each secret.
    pub(super) fn sign(&self, id: &str, at: OffsetDateTime, body: &str) -> String {
        let signature = |key: &Hmac<Sha256>| {
            let mut mac = key.clone();
            mac.update(id.as_bytes());
            mac.update(format!(".{}.", at.unix_timestamp()).as_bytes());
            mac.update(body.as_bytes());
            format!("v1,{}", base64::encode(&mac.finalize().into_bytes()))
        };
        self.keys.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // The example of the Standard Webhooks specification.
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signer = Signer::new(std::slice::from_ref(&secret)).unwrap();
        let at = OffsetDateTime::from_unix_timestamp(1_614_265_330).unwrap();
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = Signer::new(&[secret, "whsec_bmV3".into()]).unwrap();
        let signed = both.sign("a", datetime!(2026-01-01 00:00 UTC), "{}");
        assert_eq!(signed.split(' ').filter(|one| one.starts_with("v1,")).count(), 2);
    }

    #[test]
    fn a_secret_of_another_form_signs_nothing() {
        for wrong in ["", "whsec_", "bmV3", "whsec_!"] {
            assert!(Signer::new(&[wrong.into()]).is_err(), "{wrong}");
        }
        assert!(Signer::new(&[]).is_err());
    }
}
