//! Taking a callback in.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reqwest::header::HeaderMap;
use sha2::{Digest, Sha256};

use super::UNDECIDED;
use super::store::{FindVerdict, Keep};
use crate::app::App;
use crate::channels::{Callback, CallbackError, CallbackEvent, Channel, RawCallback};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::pay::PayError;
use crate::pay::report::{self, Origin, Report, Verdict};
use crate::refunds::{self, Applied, Claim, RefundReport, Source};

/// A callback that is believed. Equal ones are the same event with the same bytes.
#[derive(Clone, Debug)]
pub struct Incoming {
    channel: &'static str,
    body: Arc<[u8]>,
    callback: Arc<Callback>,
}

impl PartialEq for Incoming {
    fn eq(&self, other: &Self) -> bool {
        self.channel == other.channel && self.body == other.body
    }
}

impl Eq for Incoming {}

impl Hash for Incoming {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.channel, &self.body).hash(state);
    }
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Kept for good.
    Accepted,
    /// Kept, and wrong.
    Rejected,
    /// Not kept: it must come again.
    NotNow,
}

/// Characters of an unreadable callback that a person is shown.
const MAX_SHOWN: usize = 2000;
/// Longest id that a channel may give to anything.
const MAX_FOREIGN_ID: usize = 256;

/// Checks the signature over the raw bytes, then reads the callback.
///
/// # Errors
/// [`CallbackError`] when it is not believed.
pub fn verify(
    app: &App,
    channel: &dyn Channel,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Incoming, CallbackError> {
    let raw = RawCallback { headers, body, received_at: app.now() };
    let callback = channel.verify(&raw).and_then(|()| channel.read(body, raw.received_at)).and_then(bounded);
    if let Err(error) = &callback {
        let labels = [("channel", channel.name()), ("verdict", refusal_word(*error))];
        metrics::counter!("payonce_webhooks_refused_total", &labels).increment(1);
        tracing::warn!(channel.name = channel.name(), %error, "a callback was not believed");
    }
    Ok(Incoming { channel: channel.name(), body: body.into(), callback: Arc::new(callback?) })
}

const fn refusal_word(error: CallbackError) -> &'static str {
    match error {
        CallbackError::BadSignature => "BAD_SIGNATURE",
        CallbackError::StaleTimestamp => "STALE_TIMESTAMP",
        CallbackError::Malformed => "MALFORMED",
    }
}

/// Ids become keys of rows: none may be empty, huge, or hold what PostgreSQL cannot.
pub(super) fn bounded(callback: Callback) -> Result<Callback, CallbackError> {
    let named = match &callback.event {
        CallbackEvent::Trade { pay_order_id, state } => {
            let transaction_id = match state {
                crate::channels::TradeState::Paid(payment) => payment.transaction_id.as_str(),
                _ => "-",
            };
            [pay_order_id.as_str(), transaction_id]
        }
        CallbackEvent::Refund { refund_id, .. } => [refund_id.as_str(), "-"],
        CallbackEvent::Other => ["-", "-"],
    };
    let is_fine = |id: &str| (1..=MAX_FOREIGN_ID).contains(&id.len()) && !id.contains('\0');
    let all_fine = is_fine(&callback.event_id) && named.iter().all(|id| is_fine(id));
    if all_fine { Ok(callback) } else { Err(CallbackError::Malformed) }
}

/// A callback that is signed well and says what cannot be (no such currency, an amount of nothing) may stand for
/// real money: a person must see it.
///
/// # Errors
/// When the database cannot be reached: the callback must come again.
pub async fn report_unreadable(app: &App, channel: &'static str, body: &[u8]) -> Result<(), DbError> {
    let digest = Sha256::digest(body);
    let subject = format!("{channel}/{}", crate::ids::base32(&digest[..16]));
    let detail: String = String::from_utf8_lossy(body).chars().take(MAX_SHOWN).collect();
    let exception = NewException {
        kind: ExceptionKind::UnreadableCallback,
        merchant_id: None,
        order_no: None,
        subject: &subject,
        detail: &detail.replace('\0', "\u{fffd}"),
    };
    let mut tx = app.db.begin().await?;
    let opened = exceptions::open_in_tx(&mut tx, &app.ids, &exception, app.now()).await;
    effect!("webhooks.unreadable", tx.finish(opened).await)
}

/// Takes a believed callback in. Round trips of a first payment: 2 to PostgreSQL, 1 to Redis; commits: 1.
pub async fn take_in(app: &App, incoming: &Incoming) -> Taken {
    match apply(app, incoming).await {
        Ok(Verdict::AmountMismatch | Verdict::WrongAccount) => Taken::Rejected,
        Ok(_) => Taken::Accepted,
        Err(error) => {
            tracing::warn!(
                channel.name = incoming.channel, event = incoming.callback.event_id, %error,
                source = std::error::Error::source(&error).map(ToString::to_string),
                "a callback could not be kept and will come again"
            );
            Taken::NotNow
        }
    }
}

async fn apply(app: &App, incoming: &Incoming) -> Result<Verdict, PayError> {
    let Callback { event_id, account_matches, event } = incoming.callback.as_ref();
    let origin = Origin::Callback { event_id, body: &incoming.body, account_matches: *account_matches };
    match event {
        CallbackEvent::Trade { pay_order_id, state } => {
            let report = Report { channel: incoming.channel, pay_order_id, state: state.clone(), origin };
            report::apply(app, &report).await
        }
        CallbackEvent::Refund { refund_id, money, state } => {
            if !*account_matches {
                return Ok(keep(app, incoming, refund_id, Verdict::WrongAccount).await?);
            }
            // What was said of it stands, whatever its refund has come to since, and whatever a person has decided.
            if let Some(verdict) = recall(app, incoming).await? {
                return Ok(verdict);
            }
            // The refund's own state is the mark that says "done", so that the callback may be kept after it: where a death
            // lies between them it is judged anew.
            let source = Source::Callback(Claim { channel: incoming.channel, money: *money });
            let result = RefundReport { refund_id, state, source };
            let verdict = match Box::pin(refunds::apply_result(app, &result)).await? {
                Applied::Yes => Verdict::Applied,
                Applied::Unknown | Applied::Contradiction | Applied::Stands => Verdict::Recorded,
                Applied::Mismatch => Verdict::AmountMismatch,
                Applied::Undecided => return Err(PayError::ChannelUnavailable(UNDECIDED.to_owned())),
            };
            Ok(keep(app, incoming, refund_id, verdict).await?)
        }
        CallbackEvent::Other => Ok(keep(app, incoming, "", Verdict::Recorded).await?),
    }
}

/// What was said of it when it came before. An account that was wrong then says nothing of the refund.
async fn recall(app: &App, incoming: &Incoming) -> Result<Option<Verdict>, DbError> {
    let (channel, event_id) = (incoming.channel, incoming.callback.event_id.clone());
    let verdict = app.db.gather(FindVerdict { channel, event_id, body: incoming.body.clone() }).await?;
    Ok(verdict.filter(|verdict| *verdict != Verdict::WrongAccount))
}

async fn keep(app: &App, incoming: &Incoming, subject: &str, verdict: Verdict) -> Result<Verdict, DbError> {
    let keep = Keep {
        channel: incoming.channel,
        event_id: incoming.callback.event_id.clone(),
        subject: subject.to_owned(),
        verdict,
        body: incoming.body.clone(),
        now: app.now(),
        ids: app.ids.clone(),
    };
    effect!("webhooks.keep", app.db.gather(keep).await)?;
    Ok(verdict)
}
