//! Wiring: configuration in, a running instance out, by role.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::app::{App, SetupError};
use crate::channels::sandbox::{self, AdapterSettings, Gateway, GatewaySettings, SandboxChannel};
use crate::channels::{Channel, Channels};
use crate::config::Config;
use crate::http::{self, Door, Edge, Readiness};
use crate::ids::Ids;
use crate::infra::clock::Clock;
use crate::infra::db::{self, Db, DbError};
use crate::infra::duty::Duty;
use crate::infra::http_client;
use crate::infra::served::Serving;
use crate::infra::telemetry;
use crate::infra::{descriptors, memory};
use crate::workers;

/// Which parts of the service an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Answers HTTP.
    pub api: bool,
    /// Runs the duties.
    pub workers: bool,
    /// Is the sandbox gateway.
    pub sandbox: bool,
}

impl std::str::FromStr for Roles {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = Self { api: false, workers: false, sandbox: false };
        for role in text.split(',').map(str::trim) {
            match role {
                "api" => roles.api = true,
                "workers" => roles.workers = true,
                "sandbox" => roles.sandbox = true,
                other => return Err(format!("unknown role `{other}`; expected api, workers, sandbox")),
            }
        }
        Ok(roles)
    }
}

/// Why an instance did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The service cannot be put together.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The database URL cannot be used.
    #[error("DATABASE_URL cannot be used")]
    Database(#[from] DbError),
    /// The address cannot be listened on.
    #[error("BIND_ADDR: cannot listen on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The thread that has the connections cannot be started.
    #[error("the thread that has the connections cannot be started")]
    Door(#[source] std::io::Error),
    /// A setting that only the database can judge.
    #[error(
        "RECON_TZ: expected a time zone as PostgreSQL knows it, such as UTC or Asia/Shanghai; it does not know `{0}`"
    )]
    TimeZone(String),
    /// The database's schema is of an older version, or there is none.
    #[error("the database lacks migrations of this version, from {0} on; `payonce migrate` applies them")]
    Schema(String),
    /// The sandbox cannot be put together.
    #[error("the sandbox cannot be set up")]
    Sandbox(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Longest wait for work to drain at a stop: with the notice and the closing of connections, less than ten
/// seconds in all.
const DRAIN_DEADLINE: Duration = Duration::from_secs(8);
/// How long readiness fails before connections are refused, so that a load balancer can notice.
const NOTICE: Duration = Duration::from_millis(500);

/// A running instance.
#[derive(Debug)]
pub struct Instance {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its insides.
    pub app: App,
    /// Its sandbox, where the role runs.
    pub gateway: Option<Gateway>,
    readiness: Readiness,
    stopping: CancellationToken,
    duties: TaskTracker,
    /// Ends with the last connection.
    served: oneshot::Receiver<Infallible>,
    /// The door is open no longer than this lives.
    _closes_with_it: DropGuard,
    /// Without the role `api` it cannot know whether others serve anybody on the same stores: they always might.
    _elsewhere: Option<Serving>,
}

/// Starts an instance with its duties. It is ready when this returns, and answers nobody before the database was asked whether
/// it fits.
///
/// # Errors
/// [`StartError`] says what cannot be used.
pub async fn start(config: Config, roles: Roles, ids: Ids) -> Result<Instance, StartError> {
    let prepared = prepare(config, roles, ids)?;
    if check_schema(&prepared.app.db).await? {
        check_time_zone(&prepared.app).await?;
    }
    let instance = prepared.open(roles).await?;
    instance.begin_duties(roles);
    Ok(instance)
}

/// What lacks a migration would fail at each statement that goes by it. `false` while the database is away: then readiness asks.
///
/// # Errors
/// [`StartError::Schema`] where it lacks some.
pub async fn check_schema(db: &Db) -> Result<bool, StartError> {
    match db.schema().await {
        Ok(schema) => {
            schema.missing.into_iter().next().map_or(Ok(true), |first| Err(StartError::Schema(first)))
        }
        Err(error) => {
            tracing::warn!(%error, "whether the database's schema is current could not be asked");
            Ok(!error.is_away())
        }
    }
}

/// Only the database knows which time zones there are. While it is away that is left to whoever goes by them.
async fn check_time_zone(app: &App) -> Result<(), StartError> {
    let time_zone = &app.config.reconciliation.time_zone;
    let known = async { Ok::<_, DbError>(db::knows_time_zone(&mut app.db.conn().await?, time_zone).await?) };
    match known.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(StartError::TimeZone(time_zone.clone())),
        Err(error) => {
            tracing::warn!(%error, "whether the database knows RECON_TZ could not be asked");
            Ok(())
        }
    }
}

/// Opens an instance that answers, but does nothing by itself: tests drive its duties by hand.
///
/// # Errors
/// [`StartError`] says what cannot be used.
pub async fn open(config: Config, roles: Roles, ids: Ids) -> Result<Instance, StartError> {
    prepare(config, roles, ids)?.open(roles).await
}

/// An instance that has its address, and lets nobody in yet.
struct Prepared {
    listener: std::net::TcpListener,
    addr: SocketAddr,
    app: App,
    gateway: Option<Gateway>,
}

fn prepare(mut config: Config, roles: Roles, ids: Ids) -> Result<Prepared, StartError> {
    telemetry::metrics();
    let bind = config.http.bind;
    let listener = http::listen(bind).map_err(|error| StartError::Bind(bind, error))?;
    let addr = listener.local_addr().map_err(|error| StartError::Bind(bind, error))?;
    let public_url = config.http.public_url.get_or_insert_with(|| format!("http://{addr}")).clone();

    memory::in_small_pages();
    config.http.max_connections = descriptors::room_for(config.http.max_connections);
    let (app, gateway) = assemble(config, roles, ids, &public_url)?;
    Ok(Prepared { listener, addr, app, gateway })
}

impl Prepared {
    async fn open(self, roles: Roles) -> Result<Instance, StartError> {
        let Self { listener, addr, app, gateway } = self;
        let (readiness, stopping, duties) =
            (Readiness::default(), CancellationToken::new(), TaskTracker::new());
        let edge = Edge::new(app.clone(), readiness.clone());
        let sandbox =
            gateway.as_ref().map(|gateway| sandbox::routes(gateway.clone(), Arc::new(edge.clone())));
        let door = Door::new(http::router(edge.clone(), sandbox, roles.api), edge);
        let elsewhere = (!roles.api).then(|| app.served.enter());
        let closing = stopping.child_token();
        let served = door.open(listener, closing.clone()).await.map_err(StartError::Door)?;
        tracing::info!(%addr, ?roles, "listening on {addr}");
        Ok(Instance {
            addr,
            app,
            gateway,
            readiness,
            stopping,
            duties,
            served,
            _closes_with_it: closing.drop_guard(),
            _elsewhere: elsewhere,
        })
    }
}

/// Puts the insides together without listening: also for a command that works on the database itself.
///
/// # Errors
/// [`StartError`] says what cannot be used.
pub fn assemble(
    config: Config,
    roles: Roles,
    ids: Ids,
    public_url: &str,
) -> Result<(App, Option<Gateway>), StartError> {
    let db = Db::new(&config.database, ids.clone())?;
    let gateway = if roles.sandbox { Some(gateway(&config, &db, &ids, public_url)?) } else { None };
    let channels = channels(&config, gateway.as_ref(), ids.clock(), public_url)?;
    Ok((App::new(config, ids, db, channels)?, gateway))
}

fn duties_of(roles: Roles, app: &App, gateway: Option<&Gateway>) -> Vec<Duty> {
    let mut duties = workers::process_duties(app);
    if roles.workers {
        duties.extend(workers::duties(app));
    }
    if let Some(gateway) = gateway {
        duties.extend(workers::sandbox_duties(gateway));
    }
    duties
}

fn boxed(error: impl std::error::Error + Send + Sync + 'static) -> StartError {
    StartError::Sandbox(Box::new(error))
}

fn gateway(config: &Config, db: &Db, ids: &Ids, public_url: &str) -> Result<Gateway, StartError> {
    let settings =
        GatewaySettings { secret: config.channels.sandbox_secret.clone(), public_url: public_url.to_owned() };
    Gateway::new(db.clone(), ids.clone(), settings).map_err(boxed)
}

fn channels(
    config: &Config,
    gateway: Option<&Gateway>,
    clock: &Clock,
    public_url: &str,
) -> Result<Channels, StartError> {
    let http = http_client::builder().build().map_err(boxed)?;
    let settings = AdapterSettings {
        secrets: vec![config.channels.sandbox_secret.clone()],
        notify_url: format!("{public_url}/webhooks/sandbox"),
        deadline: config.channels.deadline,
        http,
        clock: clock.clone(),
    };
    let sandbox = match (&config.channels.sandbox_url, gateway) {
        (Some(url), _) => Some(SandboxChannel::remote(url, settings).map_err(boxed)?),
        (None, Some(gateway)) => Some(SandboxChannel::local(gateway.clone(), settings).map_err(boxed)?),
        (None, None) => None,
    };
    Ok(Channels::new(sandbox.into_iter().map(|channel| Arc::new(channel) as Arc<dyn Channel>).collect()))
}

impl Instance {
    /// Begins the duties of these roles.
    pub fn begin_duties(&self, roles: Roles) {
        if roles.workers {
            self.app.handover.open();
        }
        for duty in duties_of(roles, &self.app, self.gateway.as_ref()) {
            self.duties.spawn(duty.run_until(self.stopping.clone()));
        }
    }

    /// Stops: readiness fails first, then no more connections, then what runs is let end, ten seconds at most.
    pub async fn stop(self) {
        self.readiness.turn_off();
        // Their worker still has the notice's time for what is in hand already.
        self.app.handover.close();
        tokio::time::sleep(NOTICE).await;
        self.stopping.cancel();
        self.app.changes.end();
        self.duties.close();
        let drained = async {
            // The server lets the requests under way end; the work that they left behind ends after them.
            let _ = self.served.await;
            self.duties.wait().await;
            self.app.tasks.drained().await;
        };
        if tokio::time::timeout(DRAIN_DEADLINE, drained).await.is_err() {
            tracing::warn!("some work did not end in time; its tasks bring it to an end elsewhere");
        }
        self.app.db.close().await;
    }
}

/// SIGTERM and Ctrl-C, none of which is missed from the moment on in which this is made: before the start, because whoever
/// finds an instance ready may stop it at once.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Begins to listen. Without it a signal ends the process then and there.
    ///
    /// # Errors
    /// When the process cannot listen to signals.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first of them.
    pub async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
