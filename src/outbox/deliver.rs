//! One try of one delivery, and what is written down of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::endpoint::subject_of;
use super::lanes::Place;
use super::model::{Attempt, Delivery, DeliveryKind, EventDeliveryStatus, event_id};
use super::notify::{Answer, notify};
use super::relay::{Recipient, Relay};
use super::schedule::{rest_of, retry_after};
use super::store::{self, Ending, Record};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::infra::amqp::{AmqpDown, EventMessage};
use crate::infra::causes::with_causes;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::gather::{Command, Patience};

/// How soon a message is tried again that met no broker.
const BROKER_PAUSE: time::Duration = time::Duration::seconds(1);

/// What a try came to.
#[derive(Debug)]
enum Verdict {
    /// The destination has it.
    Delivered,
    /// It has not, and this counts as a try; with the pause that its endpoint asked for, where it did.
    Failed(Option<Asked>),
    /// The destination is away for everybody: no try of this delivery.
    Away,
    /// The endpoint wants nothing more, as it stood in that version of its merchant.
    Gone(String, i32),
    /// There is nowhere to send it any more.
    Nowhere,
    /// It can never be sent.
    Poison,
}

/// A pause that an endpoint asked for, as it stood in that version of its merchant.
#[derive(Clone, Copy, Debug)]
struct Asked {
    pause: time::Duration,
    version: i32,
}

/// Tries a delivery once and writes down what came of it. What cannot be written is tried again once the lease is over.
pub(super) async fn deliver(
    relay: &Relay,
    delivery: Delivery,
    recipient: Option<Arc<Recipient>>,
    mut place: Place,
) {
    let now = relay.clock.now();
    // Whoever slept for so long leaves it to the next: two must not be at it.
    if now + relay.try_within() >= delivery.leased_until {
        return;
    }
    let began = Instant::now();
    let tried = AssertUnwindSafe(try_once(relay, &delivery, recipient.as_deref(), now)).catch_unwind().await;
    let (verdict, attempt) = tried.unwrap_or_else(|_| (Verdict::Poison, failure(now, "sending it panicked")));
    place.note(matches!(verdict, Verdict::Delivered), began.elapsed());
    let (kind, verdict_name) = (delivery.kind.as_str(), verdict.name());
    metrics::counter!("payonce_deliveries_total", "kind" => kind, "verdict" => verdict_name).increment(1);
    metrics::histogram!("payonce_delivery_seconds", "kind" => kind).record(began.elapsed().as_secs_f64());
    if let Err(error) = record(relay, delivery, &verdict, attempt).await {
        tracing::warn!(%error, "what came of a delivery could not be written down; it is sent once more");
    }
}

impl Verdict {
    const fn name(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed(_) => "failed",
            Self::Away => "away",
            Self::Gone(..) => "gone",
            Self::Nowhere => "dropped",
            Self::Poison => "poison",
        }
    }

    /// For which version of its merchant it holds, where it says something of the endpoint itself.
    const fn version(&self) -> Option<i32> {
        match self {
            Self::Gone(_, version) | Self::Failed(Some(Asked { version, .. })) => Some(*version),
            Self::Failed(None) | Self::Delivered | Self::Away | Self::Nowhere | Self::Poison => None,
        }
    }
}

fn failure(at: OffsetDateTime, error: impl Into<String>) -> Attempt {
    Attempt { at, to: None, status: None, latency_ms: 0, error: Some(error.into()), answer: None }
}

async fn try_once(
    relay: &Relay,
    delivery: &Delivery,
    recipient: Option<&Recipient>,
    now: OffsetDateTime,
) -> (Verdict, Attempt) {
    match (delivery.kind, recipient) {
        (DeliveryKind::ResendEvent, _) => publish(relay, delivery, now).await,
        (DeliveryKind::ReplayCallback, Some(recipient)) => call_back(relay, delivery, recipient, now).await,
        (DeliveryKind::ReplayCallback, None) => (Verdict::Nowhere, failure(now, "there is no such merchant")),
    }
}

async fn call_back(
    relay: &Relay,
    delivery: &Delivery,
    recipient: &Recipient,
    now: OffsetDateTime,
) -> (Verdict, Attempt) {
    let Some(url) = delivery.url.as_ref().or(recipient.url.as_ref()) else {
        return (Verdict::Nowhere, failure(now, "its merchant has no endpoint any more"));
    };
    if recipient.disabled.contains(url) {
        return (Verdict::Nowhere, failure(now, "its endpoint is disabled"));
    }
    let signer = match &recipient.signer {
        Ok(signer) => signer,
        Err(error) => return (Verdict::Failed(None), failure(now, error.as_str())),
    };
    let call = (url.as_str(), delivery, signer);
    let (answer, attempt) = notify(&relay.http, &relay.outside, call, relay.try_within(), now).await;
    let verdict = match answer {
        Answer::Taken => Verdict::Delivered,
        Answer::Gone => Verdict::Gone(url.clone(), recipient.version),
        Answer::Failed(pause) => {
            Verdict::Failed(pause.map(|pause| Asked { pause, version: recipient.version }))
        }
    };
    (verdict, attempt)
}

async fn publish(relay: &Relay, delivery: &Delivery, now: OffsetDateTime) -> (Verdict, Attempt) {
    let Some(broker) = &relay.broker else {
        return (Verdict::Away, failure(now, "this instance has no broker"));
    };
    let (id, began) = (event_id(delivery.event_id), Instant::now());
    let message = EventMessage { name: &delivery.event, id: &id, body: &delivery.body };
    let published = effect!("outbox.publish", broker.publish(&message, relay.try_within()).await);
    let error = published.as_ref().err().map(|error| with_causes(error));
    let verdict = match published {
        Ok(()) => Verdict::Delivered,
        Err(AmqpDown::Refused) => Verdict::Failed(None),
        Err(_) => Verdict::Away,
    };
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    (verdict, Attempt { at: now, to: None, status: None, latency_ms, error, answer: None })
}

/// How a verdict leaves the delivery.
fn ending(relay: &Relay, delivery: &Delivery, verdict: &Verdict, error: Option<String>) -> Ending {
    let now = relay.clock.now();
    let end = |status, error| Ending { status, due_at: None, rests_until: None, error, counts: true };
    match verdict {
        Verdict::Delivered => end(EventDeliveryStatus::Delivered, None),
        Verdict::Gone(..) | Verdict::Nowhere => end(EventDeliveryStatus::Dropped, error),
        Verdict::Poison => end(EventDeliveryStatus::Dead, error),
        Verdict::Away => Ending {
            due_at: Some(now + BROKER_PAUSE),
            counts: false,
            ..end(EventDeliveryStatus::Pending, error)
        },
        Verdict::Failed(asked) => {
            let chance = |most| relay.ids.between(0, most);
            let pause = asked.map(|asked| asked.pause);
            // It asks for itself and not for this event.
            let rests_until = pause.map(|pause| now + rest_of(&delivery.lane, pause));
            match retry_after(delivery.kind, delivery.attempts + 1, pause, chance) {
                Some(pause) => Ending {
                    due_at: Some(now + pause),
                    rests_until,
                    ..end(EventDeliveryStatus::Pending, error)
                },
                None => Ending { rests_until, ..end(EventDeliveryStatus::Dead, error) },
            }
        }
    }
}

async fn record(
    relay: &Relay,
    delivery: Delivery,
    verdict: &Verdict,
    attempt: Attempt,
) -> Result<(), DbError> {
    let ending = ending(relay, &delivery, verdict, attempt.error.clone());
    if let Some(due_at) = ending.due_at {
        let (kind, error) = (delivery.kind, ending.error.as_deref().unwrap_or_default());
        tracing::info!(event.id = event_id(delivery.event_id), %kind, error, %due_at, "an event is told again later");
    }
    let attempt = serde_json::to_value(&attempt).unwrap_or_default();
    let is_rare = ending.status == EventDeliveryStatus::Dead || verdict.version().is_some();
    let record = Record { delivery, ending, attempt, now: relay.clock.now() };
    if is_rare {
        return relay.db.retrying(|| record_alone(relay, &record, verdict)).await;
    }
    let write = || async { effect!("outbox.record", relay.db.gather(record.clone()).await) };
    relay.db.retrying(write).await.map(drop)
}

/// What holds for its endpoint as it stands is written while nobody saves another, and what a person must see is shown in
/// the transaction that ends the delivery.
async fn record_alone(relay: &Relay, record: &Record, verdict: &Verdict) -> Result<(), DbError> {
    let (delivery, error) = (&record.delivery, record.ending.error.as_deref().unwrap_or_default());
    let order = (delivery.merchant_id.as_deref(), delivery.order_no.as_deref());
    let mut tx = relay.db.begin().await?;
    let written = async {
        let (mut record, mut verdict) = (record.clone(), verdict);
        if let Some(version) = verdict.version()
            && !store::is_still_of_version(&mut tx, order.0.unwrap_or_default(), version).await?
        {
            // Its endpoint was saved anew meanwhile: the answer is none of that one.
            verdict = &Verdict::Failed(None);
            record.ending = ending(relay, delivery, verdict, record.ending.error);
        }
        let batch = std::slice::from_ref(&record);
        if Record::carry_out(batch, Patience::ALONE, &mut tx).await? != [true] {
            return Ok(());
        }
        if record.ending.status == EventDeliveryStatus::Pending {
            return Ok(());
        }
        let Verdict::Gone(url, _) = verdict else {
            let (id, kind) = (delivery.event_id, delivery.kind);
            return relay.open_dead_letter_in_tx(&mut tx, id, kind, order, error, record.now).await;
        };
        let merchant_id = order.0.unwrap_or_default();
        let subject = subject_of(merchant_id, url);
        let exception = NewException {
            kind: ExceptionKind::EndpointDisabled,
            merchant_id: order.0,
            order_no: None,
            subject: &subject,
            detail: "the endpoint answered 410 Gone: nothing goes there until this is resolved, or the merchant's notify_url is \
                     saved anew",
        };
        // In the order of whoever resolves it, and has the endpoint told again.
        exceptions::open_in_tx(&mut tx, &relay.ids, &exception, record.now).await?;
        store::disable(&mut tx, merchant_id, url, record.now).await
    }
    .await;
    effect!("outbox.record_alone", tx.finish(written).await)
}
