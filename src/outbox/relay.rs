//! The relay: from the outbox to the endpoints of merchants, and to the broker.
//!
//! Round trips of a turn: 1 to claim what is due, 1 for the merchants that it goes to, 1 to see whether there is anything
//! new, 1 for new events that nobody is to be told of, where the first one is such, and 4 for the others (BEGIN, take, hand
//! out, COMMIT), 5 while some lane rests; none of them for a single event. What came of each try is gathered
//! ([`crate::infra::gather`]), so that many share a statement and its commit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use secrecy::SecretString;
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::deliver;
use super::lane::{self, BROKER};
use super::lanes::{Lanes, Place};
use super::marks::Marks;
use super::model::{Delivery, DeliveryKind, Queue, event_id};
use super::route::Turn;
use super::signature::Signer;
use super::store::{self, Addressee};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::Ids;
use crate::infra::amqp::Events;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError, Tx};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::low_water::LowWater;
use crate::infra::outside::{Outside, SharedLookup, SystemLookup};
use crate::infra::secret_box::SecretBox;
use crate::infra::tasks::Tasks;

/// Lanes that are looked at in one turn.
const LANES_AT_ONCE: u16 = 1000;
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
    pub(super) lookup: SharedLookup<SystemLookup>,
    pub(super) broker: Option<Events>,
    pub(super) lanes: Lanes,
    marks: Marks,
    /// The first event that nobody has looked at yet.
    first_new: LowWater<i64>,
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
    /// Looks up the names of endpoints, for its client too.
    pub lookup: SharedLookup<SystemLookup>,
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
        let RelayParts { db, clock, ids, secrets, tasks, outside, http, lookup, broker, lease } = parts;
        let (lanes, marks, first_new) = (Lanes::default(), Marks::default(), LowWater::default());
        Self(Arc::new(Inside {
            db,
            clock,
            ids,
            secrets,
            tasks,
            outside,
            http,
            lookup,
            broker,
            lanes,
            marks,
            first_new,
            lease,
        }))
    }

    /// The ways that lead out from here: without a broker nothing is sent again that ended on its way to one.
    #[must_use]
    pub fn ways(&self) -> &'static [DeliveryKind] {
        match self.broker {
            Some(_) => DeliveryKind::ALL,
            None => &[DeliveryKind::ReplayCallback],
        }
    }

    /// Rings when a lane behind which more is waiting has room again.
    #[must_use]
    pub fn has_room(&self) -> Arc<Notify> {
        self.lanes.bell().clone()
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
        let has_due = !due.is_empty();
        let due =
            due.into_iter().map(|delivery| (self.lanes.enter_anyway(&delivery.lane), delivery)).collect();
        self.send_all(due, now).await?;
        // Most of the time there is nothing, and nothing is begun.
        let mut conn = self.db.conn().await?;
        let look = self.first_new.look();
        let waiting = store::what_waits(&mut conn, look.from.unwrap_or(i64::MIN), now).await?;
        self.first_new.found(&look, waiting.first_new);
        let (first_new, has_more) = self.discard_unaddressed(&mut conn, &waiting).await?;
        drop(conn);
        // Behind the lanes of this turn there are others; where no place is left, the next one that is free rings.
        let mut is_half_way = has_more || self.lanes.has_room() && !self.lanes.turn().is_empty();
        for (queue, first) in [(Queue::New, first_new), (Queue::Again, waiting.first_again)] {
            if let Some(first) = first {
                let turn = Turn { now, leased_until, has_rests: waiting.has_rests, first };
                let (is_full, begun) = self.route(queue, turn).await?;
                self.send_all(begun, now).await?;
                is_half_way |= is_full;
            }
        }
        let has_any = has_due || waiting.first_new.is_some() || waiting.first_again.is_some();
        Ok(match has_any {
            _ if is_half_way => Batch::MoreWaiting,
            true => Batch::Done,
            false => Batch::Empty,
        })
    }

    async fn claim(
        &self,
        now: OffsetDateTime,
        leased_until: OffsetDateTime,
    ) -> Result<Vec<Delivery>, DbError> {
        let mut room = self.lanes.room();
        if room.of_all == 0 {
            return Ok(Vec::new());
        }
        if self.broker.is_none() {
            // Left to the instances that have one.
            lane::siblings(BROKER).into_iter().for_each(|lane| room.close(lane));
        }
        let (mut conn, from) = (self.db.conn().await?, self.lanes.turn());
        let looks = self.marks.look(&from, LANES_AT_ONCE);
        let claimed = effect!(
            "outbox.claim",
            store::claim_due(&mut conn, now, leased_until, &room, &looks, (&from, LANES_AT_ONCE)).await
        )?;
        self.marks.found(&looks, &claimed.seen, claimed.last_lane.as_deref(), now);
        self.lanes.turn_to(claimed.next_turn(&room).unwrap_or_default());
        self.lanes.note_full(&room, claimed.taken.iter().map(|delivery| delivery.lane.as_str()));
        Ok(claimed.taken)
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
