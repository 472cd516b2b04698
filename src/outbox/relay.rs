//! The relay: from the outbox to the endpoints of merchants, and to the broker.
//!
//! Round trips of a turn: 1 to claim what is due, 1 for the merchants that it goes to, and 4 for the new events (BEGIN,
//! look, hand out, COMMIT); none of them for a single event. What came of each try is gathered
//! ([`crate::infra::gather`]), so that many share a statement and its commit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use secrecy::SecretString;
use time::OffsetDateTime;

use super::lanes::{self, Lanes, Place};
use super::model::{Delivery, DeliveryKind, EventDeliveryStatus, NewDelivery, NewEvent, event_id};
use super::signature::Signer;
use super::store::{self, Addressee};
use super::{deliver, message};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::Ids;
use crate::infra::amqp::Events;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError, Tx};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::outside::{Outside, read_url};
use crate::infra::secret_box::SecretBox;
use crate::infra::tasks::Tasks;

/// New events that are looked at in one turn.
const NEW_AT_ONCE: usize = 512;
/// Of those, when they are looked at one by one.
const SINGLY_AT_ONCE: usize = 64;
/// Lanes that are looked at in one turn.
const LANES_AT_ONCE: i32 = 1000;
/// The lane of everything that goes to the broker; no merchant has such an id.
const BROKER: &str = "*";
/// The lane of what was never on its way; no merchant has such an id either.
const REFUSED: &str = "?";
/// Longest try, its answer included.
const TRY_WITHIN: Duration = Duration::from_secs(15);

/// What the relay is made of.
#[derive(Clone, Debug)]
pub struct Relay(Arc<Inside>);

/// See the fields.
#[derive(Debug)]
pub struct Inside {
    pub(super) db: Db,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) secrets: SecretBox,
    pub(super) tasks: Tasks,
    pub(super) outside: Outside,
    pub(super) http: Client,
    pub(super) broker: Option<Events>,
    pub(super) lanes: Lanes,
    pub(super) lease: Duration,
}

/// What it is put together from.
#[derive(Debug)]
pub struct RelayParts {
    /// The truth.
    pub db: Db,
    /// Where "now" comes from.
    pub clock: Clock,
    /// Where ids and chance come from.
    pub ids: Ids,
    /// Reads the secrets that notifications are signed with.
    pub secrets: SecretBox,
    /// Work that a stop waits for.
    pub tasks: Tasks,
    /// Where notifications may go.
    pub outside: Outside,
    /// Calls endpoints, each by an address that was looked at.
    pub http: Client,
    /// The broker's exchange, where there is one.
    pub broker: Option<Events>,
    /// How long a delivery is held before its sender counts as dead.
    pub lease: Duration,
}

impl std::ops::Deref for Relay {
    type Target = Inside;
    fn deref(&self) -> &Inside {
        &self.0
    }
}

/// A merchant, ready to be told.
#[derive(Debug)]
pub(super) struct Recipient {
    pub(super) url: Option<String>,
    /// Of the merchant, when it was looked up.
    pub(super) version: i32,
    pub(super) disabled: Vec<String>,
    /// Or why nothing can be signed for it.
    pub(super) signer: Result<Signer, String>,
}

impl Relay {
    /// Puts it together; nothing is sent yet.
    #[must_use]
    pub fn new(parts: RelayParts) -> Self {
        let RelayParts { db, clock, ids, secrets, tasks, outside, http, broker, lease } = parts;
        let lanes = Lanes::new(db.bell().clone());
        Self(Arc::new(Inside { db, clock, ids, secrets, tasks, outside, http, broker, lanes, lease }))
    }

    /// Longest try: well within the lease, so that a sender that is alive keeps what it holds.
    pub(super) fn try_within(&self) -> Duration {
        TRY_WITHIN.min(self.lease * 3 / 5)
    }

    /// One turn: takes what is due and what is new, and sends it in the background. What came of it is written down by
    /// the tasks that send.
    ///
    /// # Errors
    /// When the database cannot be reached; leases then hand on what was taken.
    pub async fn run_once(&self) -> Result<Batch, DutyError> {
        let now = self.clock.now();
        let leased_until = now + self.lease;
        let due = self.claim(now, leased_until).await?;
        let due =
            due.into_iter().map(|delivery| (self.lanes.enter_anyway(&delivery.lane), delivery)).collect();
        self.send_all(due, now).await?;
        let (looked_at, new) = self.route(now, leased_until).await?;
        self.send_all(new, now).await?;
        // Behind the lanes of this turn there are others.
        let is_half_way = !self.lanes.turn().is_empty();
        Ok(if is_half_way { Batch::MoreWaiting } else { Batch::of(looked_at, NEW_AT_ONCE) })
    }

    async fn claim(
        &self,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<Vec<Delivery>, DbError> {
        let (mut room, first) = (self.lanes.room(), i64::try_from(lanes::FIRST).unwrap_or(1));
        if self.broker.is_none() {
            // Left to the instances that have one.
            room.0.push(BROKER.to_owned());
            room.1.push(0);
        }
        let (mut conn, from) = (self.db.conn().await?, self.lanes.turn());
        let claimed = effect!(
            "outbox.claim",
            store::claim_due(&mut conn, now, leased_until, &room, first, (&from, LANES_AT_ONCE)).await
        );
        let (last_lane, due) = claimed?;
        self.lanes.turn_to(last_lane.unwrap_or_default());
        self.lanes.note_full(&room, due.iter().map(|delivery| delivery.lane.as_str()));
        Ok(due)
    }

    /// Looks at new events: gives how many, and the deliveries that are to be sent at once.
    async fn route(
        &self,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<(usize, Vec<(Place, Delivery)>), DbError> {
        // Most of the time there is nothing, and nothing is begun.
        if !store::has_new(&mut self.db.conn().await?).await? {
            return Ok((0, Vec::new()));
        }
        match self.route_all(now, leased_until, false).await {
            Err(refusal) if refusal.blames_the_row() => {
                tracing::warn!(error = %refusal, "an event cannot be handed out: they are looked at one by one");
                self.route_all(now, leased_until, true).await
            }
            routed => routed,
        }
    }

    async fn route_all(
        &self,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
        singly: bool,
    ) -> Result<(usize, Vec<(Place, Delivery)>), DbError> {
        let mut tx = self.db.begin().await?;
        let routed = match singly {
            false => self.route_in_tx(&mut tx, now, leased_until).await,
            true => self.route_singly_in_tx(&mut tx, now, leased_until).await,
        };
        effect!("outbox.route", tx.finish(routed).await)
    }

    /// The same, so that an event which cannot be handed out becomes a dead letter and stops no other.
    async fn route_singly_in_tx(
        &self,
        tx: &mut Tx,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<(usize, Vec<(Place, Delivery)>), DbError> {
        let events = store::find_new(tx, i64::try_from(SINGLY_AT_ONCE).unwrap_or(1)).await?;
        let (count, mut at_once) = (events.len(), Vec::new());
        for event in events {
            let mut one = vec![(self.destinations(&event, now), event)];
            store::save_point(tx).await?;
            match self.hand_out_in_tx(tx, &mut one, now, leased_until).await {
                Ok(begun) => at_once.extend(begun),
                Err(refusal) if refusal.blames_the_row() => {
                    store::back_to_save_point(tx).await?;
                    one.iter_mut()
                        .flat_map(|(deliveries, _)| deliveries)
                        .for_each(|one| give_up(one, &refusal));
                    self.hand_out_in_tx(tx, &mut one, now, leased_until).await?;
                }
                Err(error) => return Err(error),
            }
        }
        // Whatever is left is looked at in the next turn, many at a time again.
        Ok((if count == SINGLY_AT_ONCE { NEW_AT_ONCE } else { count }, at_once))
    }

    async fn route_in_tx(
        &self,
        tx: &mut Tx,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<(usize, Vec<(Place, Delivery)>), DbError> {
        let events = store::find_new(tx, i64::try_from(NEW_AT_ONCE).unwrap_or(1)).await?;
        if events.is_empty() {
            return Ok((0, Vec::new()));
        }
        let mut routed: Vec<_> =
            events.into_iter().map(|event| (self.destinations(&event, now), event)).collect();
        let at_once = self.hand_out_in_tx(tx, &mut routed, now, leased_until).await?;
        Ok((routed.len(), at_once))
    }

    /// Writes where events go, and gives what is to be sent at once.
    async fn hand_out_in_tx(
        &self,
        tx: &mut Tx,
        routed: &mut [(Vec<NewDelivery>, NewEvent)],
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<Vec<(Place, Delivery)>, DbError> {
        let mut at_once = Vec::new();
        for (deliveries, event) in routed.iter_mut() {
            for delivery in deliveries {
                at_once.extend(self.begin(event, delivery, leased_until));
            }
        }
        let mut told_before = store::hand_out(tx, routed, now).await?;
        for (_, delivery) in &mut at_once {
            if let Some(body) = told_before.remove(&(delivery.event_id, delivery.kind)) {
                delivery.body = body;
            }
        }
        for (deliveries, event) in routed.iter() {
            for dead in deliveries.iter().filter(|one| one.status == EventDeliveryStatus::Dead) {
                let error = dead.last_error.as_deref().unwrap_or_default();
                let order = (event.merchant_id.as_deref(), event.order_no.as_deref());
                self.open_dead_letter_in_tx(tx, event.id, dead.kind, order, error, now).await?;
            }
        }
        Ok(at_once)
    }

    /// A place for a new delivery, when it may be sent at once: then it is ours from its first moment on.
    fn begin(
        &self,
        event: &NewEvent,
        new: &mut NewDelivery,
        leased_until: OffsetDateTime,
    ) -> Option<(Place, Delivery)> {
        if new.status != EventDeliveryStatus::Pending {
            return None;
        }
        let behind = match new.kind {
            DeliveryKind::ReplayCallback => event.callback_behind,
            DeliveryKind::ResendEvent => event.message_behind,
        };
        if let Some(ahead_due_at) = behind {
            new.due_at = new.due_at.max(ahead_due_at);
            self.lanes.note_waiting(&new.lane);
            return None;
        }
        let place = self.lanes.enter(&new.lane)?;
        new.leased_until = Some(leased_until);
        let delivery = Delivery {
            event_id: event.id,
            kind: new.kind,
            event: event.name.clone(),
            merchant_id: event.merchant_id.clone(),
            order_no: event.order_no.clone(),
            lane: new.lane.clone(),
            url: new.url.clone(),
            body: new.body.clone(),
            attempts: 0,
            leased_until,
        };
        Some((place, delivery))
    }

    /// Where an event goes: to its order's endpoint, else to its merchant's, and to the broker.
    fn destinations(&self, event: &NewEvent, now: OffsetDateTime) -> Vec<NewDelivery> {
        let has_endpoint = event.order_url.is_some() || event.merchant_url.is_some();
        let callback = has_endpoint.then_some(DeliveryKind::ReplayCallback);
        let message = self.broker.is_some().then_some(DeliveryKind::ResendEvent);
        // Told by a defect of ours it must not keep the events behind it from being told.
        let body = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| message::body(event)))
            .unwrap_or_else(|_| Err("it cannot be told: putting it into words panicked".to_owned()));
        let destination = |kind| {
            let is_callback = kind == DeliveryKind::ReplayCallback;
            let (status, last_error) = match &body {
                Err(why) => (EventDeliveryStatus::Dead, Some(why.clone())),
                Ok(_) if is_callback && event.is_disabled => {
                    (EventDeliveryStatus::Dropped, Some("its endpoint is disabled".to_owned()))
                }
                Ok(_) => (EventDeliveryStatus::Pending, None),
            };
            NewDelivery {
                kind,
                lane: if is_callback { lane_of(&self.outside, event) } else { BROKER.to_owned() },
                url: event.order_url.clone().filter(|_| is_callback),
                body: body.clone().unwrap_or_default(),
                status,
                due_at: now,
                leased_until: None,
                last_error,
            }
        };
        callback.into_iter().chain(message).map(destination).collect()
    }

    /// Sends all of these in the background.
    async fn send_all(&self, taken: Vec<(Place, Delivery)>, now: OffsetDateTime) -> Result<(), DbError> {
        if taken.is_empty() {
            return Ok(());
        }
        let recipients = self.recipients(&taken, now).await?;
        for (place, delivery) in taken {
            let recipient = delivery.merchant_id.as_ref().and_then(|id| recipients.get(id)).cloned();
            let relay = self.clone();
            self.tasks.detach(async move { deliver::deliver(&relay, delivery, recipient, place).await });
        }
        Ok(())
    }

    async fn recipients(
        &self,
        taken: &[(Place, Delivery)],
        now: OffsetDateTime,
    ) -> Result<HashMap<String, Arc<Recipient>>, DbError> {
        let callbacks = taken.iter().filter(|(_, delivery)| delivery.kind == DeliveryKind::ReplayCallback);
        let callbacks: Vec<&Delivery> = callbacks.map(|(_, delivery)| delivery).collect();
        let merchants: BTreeSet<String> =
            callbacks.iter().filter_map(|delivery| delivery.merchant_id.clone()).collect();
        if merchants.is_empty() {
            return Ok(HashMap::new());
        }
        let merchants: Vec<String> = merchants.into_iter().collect();
        let urls: BTreeSet<&str> = callbacks.iter().filter_map(|delivery| delivery.url.as_deref()).collect();
        let urls: Vec<&str> = urls.into_iter().collect();
        let mut conn = self.db.conn().await?;
        let found = store::find_addressees(&mut conn, &merchants, &urls, now).await?;
        Ok(found.into_iter().map(|one| (one.merchant_id.clone(), Arc::new(self.recipient(one)))).collect())
    }

    fn recipient(&self, addressee: Addressee) -> Recipient {
        let Addressee { merchant_id, notify_url, version, notify_secret, retired, disabled } = addressee;
        let open = |sealed: &Vec<u8>| self.secrets.open(&merchant_id, sealed);
        let secrets: Result<Vec<SecretString>, _> =
            std::iter::once(&notify_secret).chain(&retired).map(open).collect();
        let signer = secrets
            .map_err(|error| error.to_string())
            .and_then(|secrets| Signer::new(&secrets).map_err(|error| error.to_string()));
        Recipient { url: notify_url, version, disabled, signer }
    }

    /// Shows a dead letter to a person.
    pub(super) async fn open_dead_letter_in_tx(
        &self,
        tx: &mut Tx,
        id: i64,
        kind: DeliveryKind,
        (merchant_id, order_no): (Option<&str>, Option<&str>),
        error: &str,
        now: OffsetDateTime,
    ) -> Result<(), DbError> {
        metrics::counter!("payonce_deliveries_total", "kind" => kind.as_str(), "verdict" => "dead")
            .increment(1);
        let (subject, detail) = (event_id(id), format!("{kind} of {} was given up: {error}", event_id(id)));
        let exception = NewException {
            kind: ExceptionKind::DeadTask,
            merchant_id,
            order_no,
            subject: &subject,
            detail: &detail,
        };
        exceptions::open_in_tx(tx, &self.ids, &exception, now).await
    }
}

/// Makes a dead letter of what the database refuses, without whatever it may have refused.
fn give_up(delivery: &mut NewDelivery, refusal: &DbError) {
    delivery.status = EventDeliveryStatus::Dead;
    delivery.leased_until = None;
    delivery.last_error = Some(format!("it cannot be handed out: {refusal}"));
    (delivery.lane, delivery.url, delivery.body) = (REFUSED.to_owned(), None, String::new());
}

/// A merchant's own endpoint has its lane, and each host that its orders name has one.
fn lane_of(outside: &Outside, event: &NewEvent) -> String {
    let merchant = event.merchant_id.as_deref().unwrap_or_default();
    match &event.order_url {
        None => merchant.to_owned(),
        Some(url) => match read_url(outside, url) {
            Ok(read) => format!("{merchant} {}", read.origin),
            Err(_) => format!("{merchant} ?"),
        },
    }
}
