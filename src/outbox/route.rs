//! From new events to their deliveries: where each goes, and which of them are sent at once.

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use time::OffsetDateTime;

use super::lane::{self, BROKER, REFUSED};
use super::lanes::Place;
use super::message;
use super::model::{Delivery, DeliveryKind, EventDeliveryStatus, NewDelivery, NewEvent, Queue};
use super::relay::Relay;
use super::store::{self, Waiting};
use crate::infra::crash::effect;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::outside::{Outside, read_url};

/// Events that are looked at in one turn, when they are looked at one by one.
const SINGLY_AT_ONCE: usize = 64;
/// New events among which those that nobody is to be told of are looked for in one turn.
const DISCARDED_AT_ONCE: i64 = 1024;

impl Queue {
    /// Events that are looked at in one turn: of those that are sent again so few that new ones hardly wait for them.
    const fn at_once(self) -> usize {
        match self {
            Self::New => 512,
            Self::Again => 128,
        }
    }
}

/// What a turn goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) now: OffsetDateTime,
    pub(super) leased_until: OffsetDateTime,
    /// Whether some lane is left alone.
    pub(super) has_rests: bool,
    /// The first event that was found waiting in the queue.
    pub(super) first: i64,
}

/// Whether more may be waiting, and what is to be sent at once.
type Routed = (bool, Vec<(Place, Delivery)>);

impl Relay {
    /// Takes new events that nobody is to be told of from the queue, where the first one is such: there is nothing to look at
    /// each of them for. Gives where the others begin, if there are any, and whether there may be more such ones.
    pub(super) async fn discard_unaddressed(
        &self,
        conn: &mut Conn,
        waiting: &Waiting,
    ) -> Result<(Option<i64>, bool), DbError> {
        let first = match waiting.first_new {
            Some(first) if waiting.is_first_unaddressed && self.broker.is_none() => first,
            first => return Ok((first, false)),
        };
        let discarded =
            effect!("outbox.discard", store::discard_unaddressed(conn, first, DISCARDED_AT_ONCE).await)?;
        Ok((discarded.leaves_some.then_some(first), discarded.has_more))
    }

    /// Looks where the events of a queue go.
    pub(super) async fn route(&self, queue: Queue, turn: Turn) -> Result<Routed, DbError> {
        match self.route_all(queue, turn, false).await {
            Err(refusal) if refusal.blames_the_row() => {
                tracing::warn!(error = %refusal, "an event cannot be handed out: they are looked at one by one");
                self.route_all(queue, turn, true).await
            }
            routed => routed,
        }
    }

    async fn route_all(&self, queue: Queue, turn: Turn, singly: bool) -> Result<Routed, DbError> {
        let mut tx = self.db.begin().await?;
        let routed = match singly {
            false => self.route_in_tx(&mut tx, queue, turn).await,
            true => self.route_singly_in_tx(&mut tx, queue, turn).await,
        };
        effect!("outbox.route", tx.finish(routed).await)
    }

    /// The same, so that an event which cannot be handed out becomes a dead letter and stops no other.
    async fn route_singly_in_tx(&self, tx: &mut Tx, queue: Queue, turn: Turn) -> Result<Routed, DbError> {
        let most = i64::try_from(SINGLY_AT_ONCE).unwrap_or(1);
        let events = store::take_waiting(tx, queue, turn.first, most).await?;
        let has_more = events.len() == SINGLY_AT_ONCE || events.iter().any(|event| event.has_more);
        let mut at_once = Vec::new();
        for event in events {
            let mut one = vec![(self.destinations(&event, turn.now), event)];
            store::save_point(tx).await?;
            match self.hand_out_in_tx(tx, &mut one, turn).await {
                Ok(begun) => at_once.extend(begun),
                Err(refusal) if refusal.blames_the_row() => {
                    store::back_to_save_point(tx).await?;
                    one.iter_mut()
                        .flat_map(|(deliveries, _)| deliveries)
                        .for_each(|one| give_up(one, &refusal));
                    self.hand_out_in_tx(tx, &mut one, turn).await?;
                }
                Err(error) => return Err(error),
            }
        }
        // Whatever is left is looked at in the next turn, many at a time again.
        Ok((has_more, at_once))
    }

    async fn route_in_tx(&self, tx: &mut Tx, queue: Queue, turn: Turn) -> Result<Routed, DbError> {
        let most = i64::try_from(queue.at_once()).unwrap_or(1);
        let events = store::take_waiting(tx, queue, turn.first, most).await?;
        if events.is_empty() {
            return Ok((false, Vec::new()));
        }
        let mut routed: Vec<_> =
            events.into_iter().map(|event| (self.destinations(&event, turn.now), event)).collect();
        let at_once = self.hand_out_in_tx(tx, &mut routed, turn).await?;
        let has_more = routed.iter().any(|(_, event)| event.has_more);
        Ok((has_more || routed.len() == queue.at_once(), at_once))
    }

    /// Writes where events go, and gives what is to be sent at once.
    async fn hand_out_in_tx(
        &self,
        tx: &mut Tx,
        routed: &mut [(Vec<NewDelivery>, NewEvent)],
        turn: Turn,
    ) -> Result<Vec<(Place, Delivery)>, DbError> {
        let now = turn.now;
        let resting = match turn.has_rests {
            true => store::find_resting(tx, &lanes_of(routed), now).await?,
            false => HashSet::new(),
        };
        let mut at_once = Vec::new();
        for (deliveries, event) in routed.iter_mut() {
            for delivery in deliveries {
                let is_resting = resting.contains(&delivery.lane);
                at_once.extend(self.begin(event, delivery, turn.leased_until, is_resting));
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
        is_resting: bool,
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
        if is_resting {
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
        if callback.is_none() && message.is_none() {
            return Vec::new();
        }
        // Told by a defect of ours it must not keep the events behind it from being told.
        let body = catch_unwind(AssertUnwindSafe(|| message::body(event)))
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
            let lane = if is_callback { lane_of(&self.outside, event) } else { BROKER.to_owned() };
            NewDelivery {
                kind,
                lane: if event.is_again { lane::again(&lane) } else { lane },
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
}

fn lanes_of(routed: &[(Vec<NewDelivery>, NewEvent)]) -> Vec<&str> {
    let lanes = routed.iter().flat_map(|(deliveries, _)| deliveries).map(|one| one.lane.as_str());
    lanes.collect::<BTreeSet<_>>().into_iter().collect()
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
    let origin =
        event.order_url.as_ref().map(|url| read_url(outside, url).map_or("?".to_owned(), |read| read.origin));
    lane::of_callback(event.merchant_id.as_deref().unwrap_or_default(), origin.as_deref())
}
