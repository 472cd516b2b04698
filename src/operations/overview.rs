//! How the whole stands, at a glance and cheaply: what is unfinished is counted through small indexes, and no table is
//! walked from end to end.

use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::store;
use crate::app::App;
use crate::audit::{self, MoneyAtRisk};
use crate::compensation::{self, LaneStand};
use crate::infra::db::{DbError, Tx};

/// So many things in one state.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Counted {
    /// What they are.
    #[schema(example = "order")]
    pub thing: String,
    /// Their state.
    #[schema(example = "PENDING")]
    pub status: String,
    /// How many; counting stops at 100000.
    #[schema(example = 12)]
    pub count: i64,
    /// The earliest deadline of orders and attempts, the beginning of anything else.
    #[serde(with = "time::serde::rfc3339::option")]
    pub oldest_at: Option<OffsetDateTime>,
}

/// How the whole stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Overview {
    /// What has not come to its end.
    pub unfinished: Vec<Counted>,
    /// Orders of the last 24 hours, by state.
    pub orders_of_a_day: Vec<Counted>,
    /// Money that has not come to rest.
    pub money_at_risk: Vec<MoneyAtRisk>,
    /// The lanes of tasks: whether their workers rest, and what waits.
    pub lanes: Vec<LaneStand>,
    /// What the service needs and has to do without: `redis`, `rabbitmq`, `database_role`, and `events`, `timers` or
    /// `usage_reports` where RabbitMQ refuses them to the process that answers, as its `/readyz` says: another one may not
    /// have met that. Empty when all is well.
    pub degraded: Vec<&'static str>,
}

/// Counts in one snapshot.
///
/// # Errors
/// When the database cannot be reached.
pub async fn overview(app: &App) -> Result<Overview, DbError> {
    let has_broker = async {
        match &app.amqp {
            Some(amqp) => amqp.answers().await,
            None => true,
        }
    };
    let (redis, has_broker) = tokio::join!(app.redis.standing(), has_broker);
    let mut tx = app.db.begin_read().await?;
    let counted = overview_in_tx(&mut tx, app.now()).await;
    let (counted, is_guarded) = tx.finish(counted).await?;
    let needed = [(redis.is_up(), "redis"), (has_broker, "rabbitmq"), (is_guarded, "database_role")];
    let on_broker = app.on_broker().map(|(name, is_had)| (is_had != Some(false), name));
    let looked_at = needed.into_iter().chain(on_broker);
    let degraded = looked_at.filter(|(is_well, _)| !is_well).map(|(_, name)| name).collect();
    Ok(Overview { degraded, ..counted })
}

/// All but what is missing, and whether the service's role guards the database.
async fn overview_in_tx(tx: &mut Tx, now: OffsetDateTime) -> Result<(Overview, bool), DbError> {
    let counted = Overview {
        unfinished: store::count_unfinished(tx).await?,
        orders_of_a_day: store::count_orders_since(tx, now - Duration::DAY).await?,
        money_at_risk: audit::money_at_risk(tx).await?,
        lanes: compensation::stand_of_lanes(tx, now).await?,
        degraded: Vec::new(),
    };
    Ok((counted, store::is_guarded(tx).await?))
}
