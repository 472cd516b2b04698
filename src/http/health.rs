//! `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Edge;
use crate::app::App;
use crate::infra::db::Db;
use crate::infra::redis::Standing;
use crate::infra::telemetry;

/// Whether this instance takes new work. A stop turns it off before anything else.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<AtomicBool>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Readiness {
    /// Says no from now on.
    pub fn turn_off(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How things stand with what the service needs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Ready {
    /// `ready`, `degraded` (works, without Redis, RabbitMQ or something on it), or `unavailable`.
    #[schema(example = "ready")]
    status: &'static str,
    /// `up`, `down`, or `unmigrated` where it lacks migrations of this version.
    database: &'static str,
    /// `up`, or `down` when no lock can be had: of a quorum, the majority must answer, and take writes.
    redis: &'static str,
    /// Each server of Redis; behind sentinels, the present master.
    redis_nodes: Vec<RedisNode>,
    /// RabbitMQ, `up` or `down`, where it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<&'static str>,
    /// The exchange of events on RabbitMQ, as far as this instance told some within the last minute: `up`, or `down` when the
    /// broker is there and refuses it, because it is of another kind or not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'static str>,
    /// The queues of timers on RabbitMQ, with `DELAY_QUEUE=rabbitmq`, as far as this instance sends to them or reads them:
    /// the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    timers: Option<&'static str>,
    /// The queue of usage reports on RabbitMQ, as far as this instance reads it: `up`, or `down` when the broker is there
    /// and does not let it be had, because it is of another kind or not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_reports: Option<&'static str>,
    /// Whether the instance is about to stop.
    stopping: bool,
}

/// How one server of Redis stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct RedisNode {
    /// Its address, after the master's name where there are sentinels.
    #[schema(example = "redis:6379")]
    node: String,
    /// `up` or `down`.
    state: &'static str,
}

/// Says that the process runs; asks nobody.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "The process runs")))]
pub(super) async fn livez() -> &'static str {
    "ok"
}

/// How PostgreSQL stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Database {
    Up,
    Unmigrated,
    #[default]
    Down,
}

impl Database {
    async fn look(db: &Db) -> Self {
        if !db.answers().await {
            return Self::Down;
        }
        match db.has_schema().await {
            Ok(true) => Self::Up,
            Ok(false) => Self::Unmigrated,
            Err(_) => Self::Down,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unmigrated => "unmigrated",
            Self::Down => "down",
        }
    }
}

/// What was found of what others run; of what was not looked at nothing is there.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    database: Database,
    redis: Standing,
    broker: Option<bool>,
}

/// Anybody may ask, any number of times: one look at a time is taken, for all who ask meanwhile.
async fn look(app: App) -> Looked {
    const PATIENCE: Duration = Duration::from_millis(800);
    let (database, redis, broker) = tokio::join!(
        async { tokio::time::timeout(PATIENCE, Database::look(&app.db)).await.unwrap_or_default() },
        app.redis.standing(),
        async {
            let amqp = app.amqp.as_ref()?;
            Some(tokio::time::timeout(PATIENCE, amqp.answers()).await.unwrap_or(false))
        },
    );
    Looked { database, redis, broker }
}

/// Says whether the instance takes work, with the state of each dependency.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, body = Ready, description = "Takes work; `degraded` while Redis or RabbitMQ is away, or refuses a queue or an exchange"),
    (status = 503, body = Ready, description = "Takes no work")))]
pub(super) async fn readyz(State(edge): State<Edge>) -> Response {
    let looked = edge.looks.join((), || look(edge.app.clone())).await;
    let Looked { database, redis, broker } = looked.unwrap_or_default();
    let [events, timers, usage_reports] = edge.app.on_broker().map(|(_, is_had)| is_had);
    let stopping = !edge.readiness.is_on();
    let is_whole = redis.is_up() && ![broker, events, timers, usage_reports].contains(&Some(false));
    let status = match (database == Database::Up && !stopping, is_whole) {
        (false, _) => "unavailable",
        (true, false) => "degraded",
        (true, true) => "ready",
    };
    let code = if status == "unavailable" { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let word = |is_up: bool| if is_up { "up" } else { "down" };
    let redis_nodes =
        redis.nodes.iter().map(|node| RedisNode { node: node.name.clone(), state: word(node.is_up) });
    let ready = Ready {
        status,
        database: database.word(),
        redis: word(redis.is_up()),
        redis_nodes: redis_nodes.collect(),
        broker: broker.map(word),
        events: events.map(word),
        timers: timers.map(word),
        usage_reports: usage_reports.map(word),
        stopping,
    };
    (code, Json(ready)).into_response()
}

/// The process's figures, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "Text exposition format", body = String, content_type = "text/plain",
     example = json!("payonce_http_requests_total{method=\"POST\",route=\"/orders\",status=\"201\"} 1"))))]
pub(super) async fn metrics() -> Response {
    let body =
        telemetry::metrics().map(metrics_exporter_prometheus::PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], body).into_response()
}
