//! The HTTP edge: a file per resource. A handler extracts, calls one verb, wraps the answer.
//!
//! Always true: every failure is a problem document, also a panic; a handler that changes something runs its
//! verb as an owned task, so a client that hangs up cancels only its own wait; every answer carries
//! `X-Request-Id`.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::audit::AuditReport;
use crate::infra::db::DbError;
use crate::infra::tasks::Flights;
use crate::merchants::KeyCache;
use crate::orders::OrderKey;
use crate::pay::{PayError, PayUrl, PayUrlRequest};
use crate::settlement::{Settled, SettlementError};
use crate::webhooks::{Incoming, Taken};
use error::Problem;

mod admin;
mod ambiguity;
mod auth;
mod door;
mod error;
mod events;
mod extract;
mod health;
mod idempotency;
mod moment;
mod observe;
mod openapi;
mod orders;
mod overload;
mod panicked;
mod pay;
mod query;
mod refunds;
mod router;
mod server;
mod settlements;
mod usage;
mod users;
mod views;
mod webhooks;
mod withdrawals;
mod within;

pub(crate) use admin::Reason;
pub use door::Door;
pub use health::{Looked, Readiness};
pub use openapi::document;
pub use overload::Places;
pub use router::router;
use server::Crowd;
pub use server::listen;
pub use within::{Answer, BadCall, answer_within, read_answer};

/// Longest run of an audit, which walks whole tables.
const AUDIT_DEADLINE: Duration = Duration::from_secs(600);

/// What handlers reach: the service, and what belongs to this process's edge alone.
#[derive(Clone, Debug)]
pub struct Edge(Arc<EdgeInside>);

/// See the fields.
#[derive(Debug)]
pub struct EdgeInside {
    /// The service.
    pub app: App,
    /// Whose key is whose, remembered for a moment.
    pub keys: KeyCache,
    /// Equal pay-URL requests under way.
    pub pay_urls: Flights<PayUrlRequest, Result<PayUrl, Arc<PayError>>>,
    /// Settlements of the same order under way.
    pub settlements: Flights<OrderKey, Result<Settled, Arc<SettlementError>>>,
    /// Equal callbacks under way.
    pub callbacks: Flights<Incoming, Taken>,
    /// The audit under way: one at a time, whoever asks meanwhile gets its report.
    pub audits: Flights<(), Result<AuditReport, Arc<DbError>>>,
    /// The look under way at what others run.
    pub looks: Flights<(), Looked>,
    /// Who is connected.
    pub crowd: Arc<Crowd>,
    /// Where requests under way are counted.
    pub places: Places,
    /// Whether this instance takes new work.
    pub readiness: Readiness,
}

impl Edge {
    /// The edge of a service.
    #[must_use]
    pub fn new(app: App, readiness: Readiness) -> Self {
        let tasks = app.tasks.clone();
        Self(Arc::new(EdgeInside {
            keys: KeyCache::default(),
            pay_urls: Flights::new(tasks.clone()),
            settlements: Flights::new(tasks.clone()),
            audits: Flights::new(tasks.with_deadline(AUDIT_DEADLINE)),
            callbacks: Flights::new(tasks.clone()),
            looks: Flights::new(tasks),
            crowd: Crowd::of(app.config.http.max_connections),
            places: Places::new(app.config.http.max_requests),
            readiness,
            app,
        }))
    }

    /// Runs a use case as an owned task: a client that hangs up cancels only its own wait.
    async fn owned<T, E, F>(&self, use_case: impl FnOnce(App) -> F) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        Problem: From<E>,
    {
        Ok(self.app.tasks.run(use_case(self.app.clone())).await??)
    }
}

impl std::ops::Deref for Edge {
    type Target = EdgeInside;
    fn deref(&self) -> &EdgeInside {
        &self.0
    }
}
