//! What a use case may reach. Cheap to clone.

use std::ops::Deref;
use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::channels::Channels;
use crate::compensation::{BroughtBack, Handover};
use crate::config::{Config, DelayQueue};
use crate::ids::Ids;
use crate::infra::amqp::{Amqp, Delays, Events, Mailbox};
use crate::infra::changes::Changes;
use crate::infra::clock::Clock;
use crate::infra::db::Db;
use crate::infra::http_client;
use crate::infra::lock::{LockSettings, Locks, backend_on};
use crate::infra::low_water::LowWater;
use crate::infra::outside::{self, SharedLookup, SystemLookup};
use crate::infra::redis::Redis;
use crate::infra::rooms::Rooms;
use crate::infra::secret_box::SecretBox;
use crate::infra::served::Served;
use crate::infra::tasks::Tasks;
use crate::outbox::{Relay, RelayParts};

/// Looks at attempts for which an instance asks one channel at once. One that is silent for its 5 s then gets two
/// questions a second, one that answers in 100 ms eighty.
const LOOKS_AT_ONCE: usize = 8;

/// Who waits for one channel at once at most, for each request that may be under way: they hold no place meanwhile.
const WAITING_FOR_EACH: usize = 4;

/// The service's insides, shared by every handler and duty.
#[derive(Clone, Debug)]
pub struct App(Arc<Inside>);

/// See the fields.
#[derive(Debug)]
pub struct Inside {
    /// What was set from outside.
    pub config: Config,
    /// PostgreSQL: the truth.
    pub db: Db,
    /// Redis: locks and timers.
    pub redis: Redis,
    /// RabbitMQ, where there is one.
    pub amqp: Option<Amqp>,
    /// The orders' timers on RabbitMQ; without it they are in Redis.
    pub delays: Option<Delays>,
    /// Where events go, with a broker.
    pub events: Option<Events>,
    /// Where reports of usage come in, with a broker.
    pub usage_reports: Option<Mailbox>,
    /// The distributed lock.
    pub locks: Locks,
    /// Where "now" comes from.
    pub clock: Clock,
    /// Where ids and chance come from.
    pub ids: Ids,
    /// The payment channels.
    pub channels: Channels,
    /// Encrypts stored secrets.
    pub secrets: SecretBox,
    /// Work that outlives its caller.
    pub tasks: Tasks,
    /// Tells the outside what is in the outbox.
    pub relay: Relay,
    /// Who waits for a change of which order.
    pub changes: Changes,
    /// Whether merchants are being served: old work leaves the machine to them.
    pub served: Served,
    /// The rooms of those who look at attempts, by channel.
    pub looks: Rooms<String>,
    /// The rooms of those who wait for an answer from outside, by channel or URL.
    pub waiting: Rooms<String>,
    /// Calls the endpoint of rates, where there is one.
    pub rates_http: Option<reqwest::Client>,
    /// Wakes the duty that settles in batches, after a commit that began a run.
    pub settlement_wake: Arc<Notify>,
    /// Wakes the duty that carries reconciliations on, after a commit that began one.
    pub reconciliation_wake: Arc<Notify>,
    /// Wakes the duty that takes differences up, after a commit that decided over one.
    pub reconciliation_act_wake: Arc<Notify>,
    /// Wakes the duty that runs compensation tasks, after a commit that made one due.
    pub compensation_wake: Arc<Notify>,
    /// Where its workers get what is in their hands from its first row on.
    pub handover: Handover,
    /// The same for those of the lane of the sweep.
    pub sweep_wake: Arc<Notify>,
    /// When the first compensation task that waits is due.
    pub compensation_low: LowWater<OffsetDateTime>,
    /// The same of the lane of the sweep.
    pub sweep_low: LowWater<OffsetDateTime>,
    /// Answers that were put aside, were brought back, and that Redis has not let go of yet.
    pub brought_back: BroughtBack,
}

/// Why the service cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// `DATABASE_URL` cannot be used.
    #[error("DATABASE_URL cannot be used")]
    Database(#[from] crate::infra::db::DbError),
    /// `REDIS_URL` cannot be used.
    #[error("REDIS_URL cannot be used")]
    Redis(#[from] redis::RedisError),
    /// `AMQP_URL` cannot be used.
    #[error("AMQP_URL cannot be used")]
    Broker(#[from] crate::infra::amqp::BadAddress),
    /// Nothing can be called over HTTP.
    #[error("SSL_CERT_FILE: no calls can be made over HTTP")]
    Http(#[from] reqwest::Error),
    /// `ENCRYPTION_KEY` cannot be used.
    #[error("ENCRYPTION_KEY cannot be used")]
    EncryptionKey(#[from] crate::infra::secret_box::Undecipherable),
}

impl App {
    /// Puts the service together without connecting to anything yet.
    ///
    /// # Errors
    /// When a URL cannot be read.
    pub fn new(config: Config, ids: Ids, db: Db, channels: Channels) -> Result<Self, SetupError> {
        let clock = ids.clock().clone();
        let redis = Redis::new(&config.redis)?;
        let locks =
            Locks::new(backend_on(&redis), LockSettings::with_ttl(config.redis.lock_ttl), ids.clone());
        let amqp = config.broker.url.as_ref().map(Amqp::new).transpose()?;
        let named = |what: &str| format!("{}.{what}", config.broker.prefix);
        let timers = amqp.clone().filter(|_| config.orders.delay_queue == DelayQueue::RabbitMq);
        let delays = timers.map(|amqp| Delays::new(amqp, &named("order_timeout")));
        let events = amqp.clone().map(|amqp| Events::new(amqp, &named("events")));
        let usage_reports = amqp.clone().map(|amqp| Mailbox::new(amqp, named("usage.report")));
        let secrets = SecretBox::new(&config.encryption_key, ids.clone())?;
        let tasks = Tasks::default();
        let lookup = SharedLookup::new(SystemLookup);
        let relay = Relay::new(RelayParts {
            db: db.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            secrets: secrets.clone(),
            tasks: tasks.clone(),
            outside: config.notify.clone(),
            http: outside::client(config.notify.clone(), lookup.clone())?,
            lookup,
            broker: events.clone(),
            lease: config.task_lease,
        });
        let waiting = Rooms::of(config.http.max_requests.saturating_mul(WAITING_FOR_EACH));
        let rates_http = config.rates.url.is_some().then(|| http_client::builder().build()).transpose()?;
        Ok(Self(Arc::new(Inside {
            config,
            db,
            redis,
            amqp,
            delays,
            events,
            usage_reports,
            locks,
            clock,
            ids,
            channels,
            secrets,
            tasks,
            relay,
            changes: Changes::default(),
            served: Served::default(),
            looks: Rooms::of(LOOKS_AT_ONCE),
            waiting,
            rates_http,
            settlement_wake: Arc::default(),
            reconciliation_wake: Arc::default(),
            reconciliation_act_wake: Arc::default(),
            compensation_wake: Arc::default(),
            handover: Handover::default(),
            brought_back: BroughtBack::default(),
            sweep_wake: Arc::default(),
            compensation_low: LowWater::default(),
            sweep_low: LowWater::default(),
        })))
    }

    /// What is used on RabbitMQ, and whether the broker lets it be had, as far as this instance asked; `None` for what is
    /// not used.
    #[must_use]
    pub fn on_broker(&self) -> [(&'static str, Option<bool>); 3] {
        [
            ("events", self.events.as_ref().map(|events| !events.is_refused())),
            ("timers", self.delays.as_ref().map(|delays| !delays.is_refused())),
            ("usage_reports", self.usage_reports.as_ref().map(|mailbox| !mailbox.is_refused())),
        ]
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> OffsetDateTime {
        self.clock.now()
    }
}

impl Deref for App {
    type Target = Inside;
    fn deref(&self) -> &Inside {
        &self.0
    }
}
