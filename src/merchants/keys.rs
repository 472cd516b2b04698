//! Whose key is this? Asked on every request, so the answer is remembered for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::model::KeyKind;
use super::store;
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::db::DbError;

/// How long an answer may be remembered: the longest that a revoked key goes on working.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// Most answers remembered; past it all are forgotten, so strangers cannot fill the memory.
const MAX_REMEMBERED: usize = 10_000;

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

/// Answers that are remembered for a moment.
#[derive(Clone, Debug, Default)]
pub struct KeyCache {
    callers: Arc<Mutex<HashMap<KeyHash, Remembered>>>,
}

type KeyHash = [u8; 32];
type Remembered = (Caller, Instant);

impl KeyCache {
    fn recall(&self, hash: &KeyHash) -> Option<Caller> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let (caller, learned_at) = callers.get(hash)?;
        (learned_at.elapsed() < REMEMBERED_FOR).then(|| caller.clone())
    }

    fn remember(&self, hash: KeyHash, caller: &Caller) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= MAX_REMEMBERED {
            callers.clear();
        }
        callers.insert(hash, (caller.clone(), Instant::now()));
    }
}

/// Finds the merchant of a key; `None` for a key that is not, or no longer, valid.
///
/// # Errors
/// When the database cannot be reached.
pub async fn authenticate(app: &App, cache: &KeyCache, key: &str) -> Result<Option<Caller>, DbError> {
    let hash = hash(key);
    if let Some(caller) = cache.recall(&hash) {
        return Ok(Some(caller));
    }
    let look = || async { store::find_caller(&mut app.db.conn().await?, &hash, app.now()).await };
    let caller = app.db.retrying(look).await?;
    if let Some(caller) = &caller {
        cache.remember(hash, caller);
    }
    Ok(caller)
}
