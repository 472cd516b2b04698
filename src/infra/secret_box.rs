//! Secrets at rest: AES-256-GCM under a key derived from `ENCRYPTION_KEY`.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::ids::Ids;

/// A stored secret that cannot be read: another key, or changed bytes.
#[derive(Debug, thiserror::Error)]
#[error("a stored secret cannot be decrypted; ENCRYPTION_KEY is not the one it was stored under")]
pub struct Undecipherable;

/// Encrypts and decrypts stored secrets.
#[derive(Clone)]
pub struct SecretBox {
    key: std::sync::Arc<LessSafeKey>,
    ids: Ids,
}

impl std::fmt::Debug for SecretBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBox")
    }
}

impl SecretBox {
    /// A box for the given passphrase, which is long and random by the rules of the configuration.
    ///
    /// # Errors
    /// Never in practice: a SHA-256 digest is a valid AES-256 key.
    pub fn new(passphrase: &SecretString, ids: Ids) -> Result<Self, Undecipherable> {
        let digest = Sha256::digest(passphrase.expose_secret().as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, &digest).map_err(|_| Undecipherable)?;
        Ok(Self { key: std::sync::Arc::new(LessSafeKey::new(key)), ids })
    }

    /// Encrypts `secret` so that it can be read again only as belonging to `owner`.
    ///
    /// # Errors
    /// Never in practice: the text is far below the cipher's limit.
    pub fn seal(&self, owner: &str, secret: &str) -> Result<Vec<u8>, Undecipherable> {
        let mut nonce = [0u8; NONCE_LEN];
        self.ids.fill(&mut nonce);
        let mut sealed = secret.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| Undecipherable)?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Reads what [`SecretBox::seal`] stored for `owner`.
    ///
    /// # Errors
    /// [`Undecipherable`] for another key, another owner, or changed bytes.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<SecretString, Undecipherable> {
        let (nonce, ciphertext) = sealed.split_at_checked(NONCE_LEN).ok_or(Undecipherable)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Undecipherable)?;
        let mut buffer = ciphertext.to_vec();
        let plain = self
            .key
            .open_in_place(nonce, Aad::from(owner.as_bytes()), &mut buffer)
            .map_err(|_| Undecipherable)?;
        String::from_utf8(plain.to_vec()).map(Into::into).map_err(|_| Undecipherable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::clock::Clock;

    #[test]
    fn only_the_right_key_and_owner_open_it() {
        let ids = Ids::seeded(Clock::system(), 1);
        let ours = SecretBox::new(&"a passphrase".into(), ids.clone()).unwrap();
        let theirs = SecretBox::new(&"another one".into(), ids).unwrap();
        let sealed = ours.seal("demo", "whsec_1").unwrap();

        assert_eq!(ours.open("demo", &sealed).unwrap().expose_secret(), "whsec_1");
        assert!(ours.open("other", &sealed).is_err());
        assert!(theirs.open("demo", &sealed).is_err());
        assert!(ours.open("demo", &sealed[..5]).is_err());
    }
}
