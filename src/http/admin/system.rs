//! How the whole stands: the overview, the delay queue, the log, the audit.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use super::super::extract::Params;
use super::super::views::{Page, PageParams};
use crate::admin_log::{self, LogFilter, Logged};
use crate::audit::{self, AuditReport};
use crate::operations::{self, Overview};
use crate::orders::{self, DelayQueue};

/// Checks every invariant in one snapshot; who asks while an audit runs gets its report.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", security(("admin_token" = [])),
    responses((status = 200, body = AuditReport, description = "`ok` is false when anything is violated, or could not be looked at")))]
pub(in crate::http) async fn audit(
    State(edge): State<Edge>,
    _viewer: Viewer,
) -> Result<Json<AuditReport>, Problem> {
    let app = edge.app.clone();
    let run = || async move {
        let now = app.now();
        let report = audit::audit(&app.db, now).await.map_err(Arc::new)?;
        // For the gauges of all instances; the report is as good without.
        if let Err(error) = audit::note(&app.db, &report, (now, app.now())).await {
            tracing::warn!(%error, "what an audit found is not kept");
        }
        Ok(report)
    };
    let report = edge.audits.join((), run).await?;
    report.map(Json).map_err(|error| Problem::from(error.as_ref()))
}

/// What is unfinished, the orders of a day, money at risk, and what the service has to do without.
#[utoipa::path(get, path = "/admin/overview", tag = "admin", security(("admin_token" = [])),
    responses((status = 200, body = Overview, example = json!({
        "unfinished": [{"thing": "order", "status": "PENDING", "count": 2, "oldest_at": "2026-11-21T10:30:00Z"}],
        "orders_of_a_day": [{"thing": "order", "status": "PAID", "count": 7, "oldest_at": "2026-11-21T09:00:00Z"}],
        "money_at_risk": [{"currency": "CNY", "amount": 0}],
        "lanes": [{"lane": "SWEEP", "paused_at": null, "paused_by": null, "reason": null, "living": 0, "due": 0,
                   "oldest_due_at": null}],
        "degraded": []}))))]
pub(in crate::http) async fn overview(
    State(edge): State<Edge>,
    _viewer: Viewer,
) -> Result<Json<Overview>, Problem> {
    Ok(Json(operations::overview(&edge.app).await?))
}

/// How many of the next timers.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct QueueParams {
    /// Timers at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
}

/// The delay queue beside the database's own pending orders. The figures of a queue that is down are zero.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct DelayQueueView {
    /// What keeps the timers.
    #[schema(example = "redis")]
    backend: &'static str,
    /// `up` or `down`; without it the sweep closes what is due.
    #[schema(example = "up")]
    health: &'static str,
    /// Whether all timers stand in it; otherwise the sweep is about to give them back.
    is_intact: bool,
    /// Timers, those in the hands of a worker included.
    size: i64,
    /// Timers in the hands of a worker.
    leased: i64,
    /// Timers whose time has come and that nobody has taken yet.
    due: i64,
    /// Orders that the database knows to be pending.
    pending_orders: i64,
    /// Those of them that are past their deadline.
    pending_orders_due: i64,
    /// The next timers.
    next: Vec<TimerView>,
}

/// One timer.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct TimerView {
    /// Whose order.
    merchant_id: String,
    /// Which order.
    order_no: String,
    /// Its deadline.
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

impl From<DelayQueue> for DelayQueueView {
    fn from(queue: DelayQueue) -> Self {
        let next = queue.next.into_iter().map(|(key, expires_at)| TimerView {
            merchant_id: key.merchant_id.into(),
            order_no: key.order_no.into(),
            expires_at,
        });
        Self {
            backend: queue.backend,
            health: if queue.is_up { "up" } else { "down" },
            is_intact: queue.is_intact,
            size: queue.waiting + queue.leased,
            leased: queue.leased,
            due: queue.due,
            pending_orders: queue.pending_orders.0,
            pending_orders_due: queue.pending_orders.1,
            next: next.collect(),
        }
    }
}

/// The timers of pending orders, beside what the database knows.
#[utoipa::path(get, path = "/admin/delay-queue", tag = "admin", params(QueueParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = DelayQueueView, example = json!({"backend": "redis", "health": "up",
            "is_intact": true, "size": 1, "leased": 0, "due": 0, "pending_orders": 1, "pending_orders_due": 0,
            "next": [{"merchant_id": "demo", "order_no": "A-1", "expires_at": "2026-11-21T10:30:00Z"}]})),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn delay_queue(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<QueueParams>,
) -> Result<Json<DelayQueueView>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    Ok(Json(orders::delay_queue(&edge.app, limit).await?.into()))
}

/// Which entries of the log.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct LogParams {
    /// Of one operator.
    actor: Option<String>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<i64>,
}

/// A page of what operators did, newest first.
#[utoipa::path(get, path = "/admin/admin-log", tag = "admin", params(LogParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<Logged>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn admin_log(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<LogParams>,
) -> Result<Json<Page<Logged>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let rows = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let filter = LogFilter { actor: params.actor.as_deref(), before: params.starting_after, limit: rows };
    let rows = admin_log::list(&edge.app, &filter).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}
