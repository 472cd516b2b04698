//! Whose key is this? Asked on every request, so the answer is remembered for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::model::KeyKind;
use super::store;
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::db::DbError;

/// How long an answer may be remembered: the longest that a revoked key goes on working.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// How long a merchant's key counts as known, although it must be looked up again: longer than anybody waits for an order.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Most answers remembered; past it all are forgotten, so strangers cannot fill the memory.
const MAX_REMEMBERED: usize = 10_000;
/// What stands behind the prefix of a key: so many characters of a secret.
const SECRET_CHARS: usize = 52;
/// The same of the well-known keys of a developer's machine.
pub(super) const DEMO_SECRET: &str = "test_demo";

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose key it is.
    pub merchant_id: MerchantId,
    /// What the key allows.
    pub kind: KeyKind,
}

/// The SHA-256 of a key: what is stored and looked up, so neither the table nor a timing tells a key.
pub(super) fn hash(key: &str) -> KeyHash {
    Sha256::digest(key.as_bytes()).into()
}

/// Whether it has the form of a key, as `create` makes them. What has not is nobody's, and worth no look-up; nor are the well-known
/// keys of a developer's machine anywhere else, whatever database `dev` has been given once.
fn looks_like_key(key: &str, takes_demo_keys: bool) -> bool {
    let secret = key.strip_prefix("sk_").or_else(|| key.strip_prefix("pk_"));
    let is_made = |secret: &str| {
        secret.len() == SECRET_CHARS && secret.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    secret.is_some_and(|secret| takes_demo_keys && secret == DEMO_SECRET || is_made(secret))
}

/// Answers that are remembered for a moment.
#[derive(Clone, Debug, Default)]
pub struct KeyCache {
    callers: Arc<Mutex<HashMap<KeyHash, Remembered>>>,
}

type KeyHash = [u8; 32];

/// What is known of a key.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) merchant_id: MerchantId,
    pub(super) kind: KeyKind,
    pub(super) expires_at: Option<OffsetDateTime>,
}

#[derive(Debug)]
struct Remembered {
    known: Known,
    learned_at: Instant,
}

impl Remembered {
    fn is_good_at(&self, now: OffsetDateTime) -> bool {
        self.learned_at.elapsed() < REMEMBERED_FOR && self.known.expires_at.is_none_or(|end| now < end)
    }
}

impl KeyCache {
    fn callers(&self) -> MutexGuard<'_, HashMap<KeyHash, Remembered>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recall(&self, hash: KeyHash, now: OffsetDateTime) -> Recalled {
        match self.callers().get(&hash) {
            Some(fresh) if fresh.is_good_at(now) => Recalled::Known(Some(fresh.known.caller())),
            stale => {
                let was_known = stale.is_some_and(|stale| stale.learned_at.elapsed() < KNOWN_FOR);
                Recalled::Unknown(Unknown { hash, was_known })
            }
        }
    }

    fn remember(&self, hash: KeyHash, known: Known) {
        let mut callers = self.callers();
        if callers.len() >= MAX_REMEMBERED {
            callers.clear();
        }
        callers.insert(hash, Remembered { known, learned_at: Instant::now() });
    }

    fn forget_key(&self, hash: &KeyHash) {
        self.callers().remove(hash);
    }

    /// Forgets a merchant's keys, because their ends have just changed here.
    pub fn forget(&self, merchant_id: &MerchantId) {
        self.callers().retain(|_, remembered| remembered.known.merchant_id != *merchant_id);
    }
}

impl Known {
    fn caller(&self) -> Caller {
        Caller { merchant_id: self.merchant_id.clone(), kind: self.kind }
    }
}

/// What is known of a key without asking the database.
#[derive(Debug)]
pub enum Recalled {
    /// Whose it is; nobody's, where it is none.
    Known(Option<Caller>),
    /// It must be looked up.
    Unknown(Unknown),
}

/// A key that must be looked up.
#[derive(Debug)]
pub struct Unknown {
    hash: KeyHash,
    /// Whether it was a merchant's a moment ago, as no stranger's is.
    pub was_known: bool,
}

/// Recalls the merchant of a key.
#[must_use]
pub fn recall(app: &App, cache: &KeyCache, key: &str) -> Recalled {
    if !looks_like_key(key, app.config.http.takes_demo_keys) {
        return Recalled::Known(None);
    }
    cache.recall(hash(key), app.now())
}

/// Looks up the merchant of a key; `None` for a key that is not, or no longer, valid.
///
/// # Errors
/// When the database cannot be reached.
pub async fn look_up(
    app: &App,
    cache: &KeyCache,
    Unknown { hash, .. }: Unknown,
) -> Result<Option<Caller>, DbError> {
    let look = || async { store::find_key(&mut app.db.conn().await?, &hash, app.now()).await };
    let Some(known) = app.db.retrying(look).await? else {
        cache.forget_key(&hash);
        return Ok(None);
    };
    let caller = known.caller();
    cache.remember(hash, known);
    Ok(Some(caller))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::infra::clock::Clock;

    #[test]
    fn keys_are_told_from_what_a_stranger_says() {
        let secret = Ids::seeded(Clock::system(), 7).secret();
        for demo in ["sk_test_demo", "pk_test_demo"] {
            assert!(looks_like_key(demo, true) && !looks_like_key(demo, false));
        }
        for key in [format!("sk_{secret}"), format!("pk_{secret}")] {
            assert!(looks_like_key(&key, true) && looks_like_key(&key, false), "{key}");
        }
        let lower = secret.to_lowercase();
        for token in [format!("sk_{secret}0"), format!("sk_{lower}"), format!("whsec_{secret}"), secret] {
            assert!(!looks_like_key(&token, true), "{token}");
        }
        assert!(["sk_", "sk_test_demo2", ""].iter().all(|token| !looks_like_key(token, true)));
    }
}
