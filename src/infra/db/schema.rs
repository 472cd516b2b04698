//! The schema: brought up to date by its owner, and asked whether it is.

use std::sync::atomic::Ordering;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Executor, PgConnection, Postgres};

use super::{Db, DbError};
use crate::config::DatabaseConfig;
use crate::ids::Ids;

/// What this version wants the schema to be.
static MIGRATIONS: Migrator = sqlx::migrate!();

/// How a database's schema stands to what this version wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// Migrations that were not applied, by number and name.
    pub missing: Vec<String>,
    /// How many were applied that only a newer version knows. Each version works beside the migrations of the next.
    pub unknown: usize,
}

impl Schema {
    /// Asks the database, where there may be no schema of ours.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn look<C>(conn: &mut C) -> Result<Self, sqlx::Error>
    where
        for<'c> &'c mut C: Executor<'c, Database = Postgres>,
    {
        let is_there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
            .fetch_one(&mut *conn)
            .await?;
        let mut applied: Vec<i64> = Vec::new();
        if is_there {
            let versions = sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success");
            applied = versions.fetch_all(conn).await?;
        }
        let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version));
        let missing =
            missing.map(|migration| format!("{:04} {}", migration.version, migration.description)).collect();
        let unknown = applied.iter().filter(|version| !MIGRATIONS.version_exists(**version)).count();
        Ok(Self { missing, unknown })
    }
}

impl Db {
    /// How its schema stands to what this version wants.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn schema(&self) -> Result<Schema, DbError> {
        let schema = Schema::look(&mut self.conn().await?).await?;
        self.has_schema.fetch_or(schema.missing.is_empty(), Ordering::Relaxed);
        Ok(schema)
    }

    /// Whether the schema has all that this version wants. Asked until it has: nobody takes a migration back. Who may not ask is
    /// served all the same.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn has_schema(&self) -> Result<bool, DbError> {
        if self.has_schema.load(Ordering::Relaxed) {
            return Ok(true);
        }
        match self.schema().await {
            Ok(schema) => Ok(schema.missing.is_empty()),
            Err(DbError::Other(sqlx::Error::Database(refusal)))
                if refusal.code().as_deref() == Some("42501") =>
            {
                self.has_schema.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the schema up to date, as its owner. Instances that start together wait for one another.
    ///
    /// # Errors
    /// When the database cannot be reached, or was migrated by a newer version.
    pub async fn migrate(config: &DatabaseConfig, ids: Ids) -> Result<(), MigrateError> {
        let owner = Self::of_owner(config, ids)
            .map_err(|error| MigrateError::Execute(sqlx::Error::Configuration(Box::new(error))))?;
        let outcome = async {
            let mut conn = owner.pool().acquire().await?;
            take_turn(&mut conn).await?;
            MIGRATIONS.run(&mut *conn).await?;
            // Tables that are new, and a role that was made since.
            conn.execute("SELECT grant_service_rights()").await?;
            Ok(())
        }
        .await;
        owner.close().await;
        outcome
    }
}

/// Waits until nobody else brings the schema up to date, however long that takes; the turn ends with the connection. The
/// migrator's own turn is waited for no longer than for any lock.
async fn take_turn(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let taken =
        conn.execute("SELECT WHERE pg_try_advisory_lock(hashtextextended('payonce.migrate', 0))").await?;
    if taken.rows_affected() == 0 {
        tracing::info!("another process brings the schema up to date, and is waited for");
        conn.execute("SET lock_timeout = 0").await?;
        conn.execute("SELECT pg_advisory_lock(hashtextextended('payonce.migrate', 0))").await?;
        conn.execute("RESET lock_timeout").await?;
    }
    Ok(())
}
