//! Answers of channels that the database could not take: put aside in Redis, and drained back as tasks.
//!
//! Always true: a task that was written before the call drives the thing in any case, by asking the channel again, so
//! nothing is lost when Redis goes too; what is kept here only spares the question. An entry is removed after the
//! commit of the task that applies it, so it may come twice, once for each instance and each of its lives; an update is applied only where it still fits (see
//! `drive::replay`), so twice is as good as once.

use std::mem;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::store;
use crate::infra::body::says_nul;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::redis::{Redis, Stream};

const KEY: &str = "spill:updates";
/// Entries of one batch.
const BATCH: usize = 500;
/// Longest text of an entry; what is longer is none of ours, and its beginning is shown to a person.
const MAX_ENTRY: usize = 65_536;
/// How much of what cannot be read is shown.
const SHOWN: usize = 200;

/// What a channel answered. Money that was taken is not here: a payment is asked about again, as always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields)]
pub enum Update {
    /// The link of an attempt.
    LinkMade {
        /// Which attempt.
        pay_order_id: String,
        /// The link.
        pay_url: String,
        /// The channel's own id of the trade.
        channel_ref: Option<String>,
        /// When the link dies.
        #[serde(with = "time::serde::rfc3339")]
        expires_at: OffsetDateTime,
    },
    /// A refund was made.
    RefundMade {
        /// Which one.
        refund_id: String,
        /// The channel's number of it.
        channel_refund_id: String,
    },
    /// A payout was made.
    PayoutMade {
        /// Of which withdrawal.
        withdrawal_id: String,
        /// The channel's number of it.
        channel_payout_id: String,
    },
}

impl Update {
    /// What it is about.
    #[must_use]
    pub fn subject(&self) -> &str {
        match self {
            Self::LinkMade { pay_order_id, .. } => pay_order_id,
            Self::RefundMade { refund_id, .. } => refund_id,
            Self::PayoutMade { withdrawal_id, .. } => withdrawal_id,
        }
    }
}

/// Puts an answer aside when the database that was to keep it is away; one that it refuses, it would refuse again. Nobody
/// waits for Redis longer than it may take to answer.
pub(crate) async fn spill_if_lost<T>(
    redis: &Redis,
    outcome: &Result<T, DbError>,
    update: impl FnOnce() -> Option<Update>,
) {
    let Err(error) = outcome else { return };
    if !error.is_passing() {
        return;
    }
    let Some(update) = update() else { return };
    let Ok(text) = serde_json::to_string(&update) else { return };
    let spill = Stream::new(redis, KEY);
    let subject = update.subject();
    let label = match effect!("spill.put", spill.put(&text).await) {
        Ok(()) => {
            tracing::warn!(%error, "an answer about {subject} could not be written down and was put aside");
            "put"
        }
        Err(down) => {
            tracing::warn!(%error, %down, "an answer about {subject} was lost; its task asks the channel again");
            "lost"
        }
    };
    metrics::counter!("payonce_updates_spilled_total", "outcome" => label).increment(1);
}

/// What an instance has brought back, and Redis has not let go of yet: a Redis that can be read may not be written, as where its
/// disk is full, and each entry would come again with every look. The oldest first.
#[derive(Debug, Default)]
pub struct BroughtBack(Mutex<Vec<String>>);

impl BroughtBack {
    fn take(&self) -> Vec<String> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, ids: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ids;
    }
}

/// Brings a batch of what was put aside back into the database, as tasks that apply it.
///
/// # Errors
/// When the database cannot be reached: it all stays where it is.
pub async fn drain(
    redis: &Redis,
    db: &Db,
    brought_back: &BroughtBack,
    now: OffsetDateTime,
) -> Result<Batch, DutyError> {
    let spill = Stream::new(redis, KEY);
    let mut brought = brought_back.take();
    let drained = drain_behind(&spill, db, &mut brought, now).await;
    brought_back.keep(brought);
    drained
}

async fn drain_behind(
    spill: &Stream<'_>,
    db: &Db,
    brought: &mut Vec<String>,
    now: OffsetDateTime,
) -> Result<Batch, DutyError> {
    let entries = match spill.oldest(brought.last().map(String::as_str), BATCH).await {
        Ok(entries) => entries,
        Err(down) => {
            // Readiness says so already.
            tracing::debug!(%down, "what was put aside cannot be had");
            return Ok(Batch::Done);
        }
    };
    if !entries.is_empty() {
        let updates: Vec<(String, Value)> = entries.iter().map(|(id, text)| read(id, text)).collect();
        bring_back(db, &updates, now).await?;
    }
    let batch = Batch::of(entries.len(), BATCH);
    brought.extend(entries.into_iter().map(|(id, _)| id));
    while !brought.is_empty() {
        let ids: Vec<&str> = brought.iter().take(BATCH).map(String::as_str).collect();
        let removed = ids.len();
        if let Err(down) = effect!("spill.done", spill.done(&ids).await) {
            tracing::debug!(%down, "what was brought back is still there");
            return Ok(Batch::Done);
        }
        brought.drain(..removed);
        metrics::counter!("payonce_updates_drained_total").increment(u64::try_from(removed)?);
    }
    Ok(batch)
}

/// One that the database refuses must not hold the others up: it is logged, and the task of its thing asks the channel.
async fn bring_back(db: &Db, updates: &[(String, Value)], now: OffsetDateTime) -> Result<(), DbError> {
    match write_tasks(db, updates, now).await {
        Err(error) if !error.is_passing() => {
            tracing::error!(%error, "a batch of what was put aside was refused: each is brought back by itself");
        }
        written => return written,
    }
    for (place, (_, payload)) in updates.iter().enumerate() {
        match write_tasks(db, updates.get(place..=place).unwrap_or_default(), now).await {
            Err(error) if !error.is_passing() => tracing::error!(%error, %payload, "an update was refused"),
            written => written?,
        }
    }
    Ok(())
}

async fn write_tasks(db: &Db, updates: &[(String, Value)], now: OffsetDateTime) -> Result<(), DbError> {
    let write = || async {
        let mut conn = db.conn().await?;
        effect!("spill.drain", store::replay_all(&mut conn, updates, now).await)
    };
    db.retrying(write).await
}

/// The subject and what is to be applied; the subject is the update, not its thing, which may have a task and an
/// exception of its own. What cannot be read becomes a task too, under the entry's own id: it shows
/// itself to a person, and holds nothing up.
fn read(id: &str, text: &str) -> (String, Value) {
    // The database takes no NUL, which JSON can say.
    let is_writable = text.len() <= MAX_ENTRY && !text.contains('\0') && !says_nul(text.as_bytes());
    let update = is_writable.then(|| serde_json::from_str::<Update>(text).ok()).flatten();
    match update.as_ref().and_then(|update| serde_json::to_value(update).ok()) {
        Some(payload) => {
            (update.map(|update| format!("update/{}", update.subject())).unwrap_or_default(), payload)
        }
        None => {
            let shown = text.chars().filter(|c| *c != '\0').take(SHOWN).collect::<String>();
            (format!("{KEY}/{id}"), Value::String(shown))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_aside_comes_back_as_it_was() {
        let update = Update::RefundMade { refund_id: "rf_1".to_owned(), channel_refund_id: "R-1".to_owned() };
        let text = serde_json::to_string(&update).unwrap();
        assert_eq!(text, r#"{"what":"REFUND_MADE","refund_id":"rf_1","channel_refund_id":"R-1"}"#);
        let (subject, payload) = read("1-0", &text);
        assert_eq!((subject.as_str(), serde_json::from_value(payload).ok()), ("update/rf_1", Some(update)));
    }

    #[test]
    fn what_cannot_be_read_is_kept_for_a_person() {
        let huge = format!(
            r#"{{"what":"REFUND_MADE","refund_id":"{}","channel_refund_id":"R"}}"#,
            "x".repeat(70_000)
        );
        let nul = r#"{"what":"REFUND_MADE","refund_id":"rf_1","channel_refund_id":"R\u0000"}"#;
        for text in ["", "nonsense", r#"{"what":"ELSE"}"#, "a\0b", nul, &huge] {
            let (subject, payload) = read("7-1", text);
            assert_eq!(subject, "spill:updates/7-1");
            assert!(payload.as_str().is_some_and(|shown| shown.len() <= 200 && !shown.contains('\0')));
        }
    }
}
