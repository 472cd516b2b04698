//! What PostgreSQL says of itself. Asked over a connection of our own, as the role of the URL.

use sqlx::{Connection, PgConnection, Row};

use crate::infra::clock::Clock;
use crate::infra::db::{self, Schema};

/// What is known of a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) user_name: String,
    pub(super) database_name: String,
    pub(super) version: String,
    pub(super) version_num: i32,
    pub(super) is_standby: bool,
    pub(super) max_connections: i32,
    pub(super) reserved_connections: i32,
    /// Settings by name.
    pub(super) durability: Vec<(String, String)>,
    pub(super) schema: Schema,
    pub(super) has_role: bool,
    pub(super) may_take_role: bool,
    /// Tables on which the service's role has other rights than it should.
    pub(super) wrong_rights: Vec<String>,
    /// Whether the trigger that keeps the admin log as it is fires; `None` when there is none.
    pub(super) log_guard: Option<bool>,
}

/// A connection that asks.
pub(super) struct Probe(PgConnection);

impl Probe {
    pub(super) async fn connect(url: &str) -> Result<Self, sqlx::Error> {
        Ok(Self(PgConnection::connect(url).await?))
    }

    pub(super) async fn close(self) {
        let _ = self.0.close().await;
    }

    /// How far the machine's clock is ahead of the database's.
    pub(super) async fn skew(&mut self) -> Result<time::Duration, sqlx::Error> {
        db::follow(&Clock::system(), &mut self.0).await
    }

    /// Whether it knows this time zone.
    pub(super) async fn knows_time_zone(&mut self, name: &str) -> Result<bool, sqlx::Error> {
        db::knows_time_zone(&mut self.0, name).await
    }

    /// Everything but the clocks. Not checked at compile time: it must also run on a database without our schema.
    pub(super) async fn facts(&mut self) -> Result<Facts, sqlx::Error> {
        let row = sqlx::query(
            "SELECT current_user::text AS user_name, current_database()::text AS database_name,
                    current_setting('server_version') AS version,
                    current_setting('server_version_num')::int AS version_num,
                    pg_is_in_recovery() AS is_standby,
                    current_setting('max_connections')::int AS max_connections,
                    current_setting('superuser_reserved_connections')::int AS reserved,
                    to_regrole('payonce_service') IS NOT NULL AS has_role,
                    coalesce(pg_has_role(current_user, to_regrole('payonce_service')::oid,
                        CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END),
                        false) AS may_take_role,
                    -- 'R' fires for replicas alone.
                    (SELECT tgenabled IN ('O', 'A') FROM pg_trigger
                     WHERE tgname = 'admin_log_only_grows' AND tgrelid = to_regclass('public.admin_log')) AS log_guard",
        )
        .fetch_one(&mut self.0)
        .await?;
        let mut facts = Facts {
            user_name: row.try_get("user_name")?,
            database_name: row.try_get("database_name")?,
            version: row.try_get("version")?,
            version_num: row.try_get("version_num")?,
            is_standby: row.try_get("is_standby")?,
            max_connections: row.try_get("max_connections")?,
            reserved_connections: row.try_get("reserved")?,
            has_role: row.try_get("has_role")?,
            may_take_role: row.try_get("may_take_role")?,
            log_guard: row.try_get("log_guard")?,
            durability: self.durability().await?,
            schema: Schema::look(&mut self.0).await?,
            ..Facts::default()
        };
        if facts.schema.missing.is_empty() {
            let statement = "SELECT table_name FROM service_rights WHERE wanted <> granted ORDER BY 1";
            facts.wrong_rights = sqlx::query_scalar(statement).fetch_all(&mut self.0).await?;
        }
        Ok(facts)
    }

    async fn durability(&mut self) -> Result<Vec<(String, String)>, sqlx::Error> {
        let statement = "SELECT name, setting FROM pg_settings
                         WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name";
        sqlx::query_as(statement).fetch_all(&mut self.0).await
    }
}
