//! The words and rows of the outbox.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::infra::words::words;

words! {
    /// How an event reaches a destination: two of the four kinds of compensation, held on the delivery itself.
    pub enum DeliveryKind {
        /// The merchant's HTTP notification, the same bytes each time.
        ReplayCallback = "REPLAY_CALLBACK",
        /// The message to the broker.
        ResendEvent = "RESEND_EVENT",
    }
}

words! {
    /// The life of a delivery.
    pub enum EventDeliveryStatus {
        /// Waits for its time, or for an earlier event of its order; or is under way.
        Pending = "PENDING",
        /// The destination said that it has it.
        Delivered = "DELIVERED",
        /// Given up, after the last try or because it cannot be sent at all; an exception says so.
        Dead = "DEAD",
        /// Its endpoint is disabled or was taken away meanwhile.
        Dropped = "DROPPED",
    }
}

words! {
    /// Where an event stands.
    pub enum EventStatus {
        /// The relay has not looked at it yet.
        New = "NEW",
        /// Some destination has not got it yet.
        Pending = "PENDING",
        /// Everybody has it, or nobody wants it.
        Published = "PUBLISHED",
        /// Some destination was given up.
        Dead = "DEAD",
    }
}

/// What everybody but the database knows an event by: the same on every retry and resend.
pub(super) fn event_id(id: i64) -> String {
    format!("evt_{id}")
}

/// The number of such an id; a bare number will do.
#[must_use]
pub fn parse_event_id(text: &str) -> Option<i64> {
    let digits = text.strip_prefix("evt_").unwrap_or(text);
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// Where an event waits for the relay to look where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// It was not looked at before.
    New,
    /// It is sent again.
    Again,
}

/// An event that the relay has not looked at yet, and what it needs to know of where it goes.
#[derive(Debug)]
pub(super) struct NewEvent {
    pub(super) id: i64,
    pub(super) merchant_id: Option<String>,
    pub(super) order_no: Option<String>,
    pub(super) name: String,
    pub(super) version: i16,
    pub(super) payload: String,
    pub(super) created_at: OffsetDateTime,
    /// Whether it is sent again.
    pub(super) is_again: bool,
    /// The order's own endpoint.
    pub(super) order_url: Option<String>,
    /// Its merchant's.
    pub(super) merchant_url: Option<String>,
    /// Whether that of the two which counts has answered 410.
    pub(super) is_disabled: bool,
    /// When the last earlier event of its order that is still on its way there is due.
    pub(super) callback_behind: Option<OffsetDateTime>,
    pub(super) message_behind: Option<OffsetDateTime>,
    /// Whether others wait behind the oldest, or behind this turn's first ones of their orders.
    pub(super) has_more: bool,
}

/// A delivery to write: where it goes, and how it begins.
#[derive(Debug)]
pub(super) struct NewDelivery {
    pub(super) kind: DeliveryKind,
    pub(super) lane: String,
    pub(super) url: Option<String>,
    pub(super) body: String,
    pub(super) status: EventDeliveryStatus,
    pub(super) due_at: OffsetDateTime,
    pub(super) leased_until: Option<OffsetDateTime>,
    pub(super) last_error: Option<String>,
}

/// A delivery in hand.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) event_id: i64,
    pub(super) kind: DeliveryKind,
    pub(super) event: String,
    pub(super) merchant_id: Option<String>,
    pub(super) order_no: Option<String>,
    pub(super) lane: String,
    pub(super) url: Option<String>,
    pub(super) body: String,
    /// Tries that count, before this one.
    pub(super) attempts: i32,
    /// Also proves that the delivery is still in our hand.
    pub(super) leased_until: OffsetDateTime,
}

/// One try, as the delivery's log keeps it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attempt {
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Where it went.
    pub to: Option<String>,
    /// The HTTP status of the answer, where there was one.
    pub status: Option<u16>,
    /// Milliseconds until the answer, or until it was given up.
    pub latency_ms: u64,
    /// What went wrong.
    pub error: Option<String>,
    /// How the answer begins.
    pub answer: Option<String>,
}

/// A delivery as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EventDelivery {
    /// How it gets there.
    pub kind: DeliveryKind,
    /// Where it stands.
    pub status: EventDeliveryStatus,
    /// Tries that count.
    pub attempts: i32,
    /// When it may be tried next.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// What the last try came to, when it failed.
    pub last_error: Option<String>,
    /// The last tries, oldest first; only of an event that is asked for by its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Attempt>,
}

/// An event as operators see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct EventView {
    /// Its id, as its receivers know it.
    #[schema(example = "evt_42")]
    pub event_id: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// Its name.
    #[schema(example = "order.paid")]
    pub r#type: String,
    /// The version of its fields.
    pub version: i16,
    /// Where it stands.
    pub status: EventStatus,
    /// What it tells.
    #[schema(value_type = Object)]
    pub data: Value,
    /// When it happened.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the last destination had it, or was taken away. Nothing while one waits, where one was given up, where there
    /// was nobody to tell, and once its deliveries are forgotten (after 90 days).
    #[serde(with = "time::serde::rfc3339::option")]
    pub published_at: Option<OffsetDateTime>,
    /// Its way to each destination.
    pub deliveries: Vec<EventDelivery>,
}

/// Which events.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFilter<'a> {
    /// In one state.
    pub status: Option<EventStatus>,
    /// Of one merchant.
    pub merchant_id: Option<&'a str>,
    /// Of one order number.
    pub order_no: Option<&'a str>,
    /// Before this one: the last of the page before.
    pub before: Option<i64>,
}
