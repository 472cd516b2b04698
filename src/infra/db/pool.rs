//! How sessions begin, and what they are set to.

use secrecy::ExposeSecret;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::clock;
use super::role::RunAs;
use crate::config::DatabaseConfig;
use crate::infra::clock::Clock;

/// What opens connections, without opening any yet, so that a start does not wait for the database.
///
/// # Errors
/// When the URL cannot be read.
pub(super) fn open(run_as: RunAs, config: &DatabaseConfig, clock: Clock) -> Result<PgPool, sqlx::Error> {
    // What brings the schema up to date takes the time that it takes.
    let server_deadline = match run_as {
        RunAs::Service => config.statement_deadline.as_millis().to_string(),
        RunAs::Owner => "0".to_owned(),
    };
    let options: PgConnectOptions =
        config.url.expose_secret().parse::<PgConnectOptions>()?.application_name("payonce");
    let options = options.options([
        ("statement_timeout", server_deadline.as_str()),
        ("lock_timeout", "2000"),
        // The last resort against a transaction that nobody ends.
        ("idle_in_transaction_session_timeout", "10000"),
        // Plans of prepared statements: these are point queries, whose generic plan is right as long as it
        // cannot walk a partial index from end to end. So a statement that joins a batch by key names no word
        // that such an index names: it takes it as a parameter, or asks for what the word means.
        ("plan_cache_mode", "force_generic_plan"),
        // A plan made while a table was empty (after a start, or a table of tasks that is empty most of the
        // time) would read that table from end to end for as long as the connection lives.
        ("enable_seqscan", "off"),
        // For the same reason: what joins a handful of keys to a table looks each one up in its index.
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
    ]);
    Ok(PgPoolOptions::new()
        .max_connections(config.pool_size)
        .min_connections(0)
        .acquire_timeout(config.acquire_deadline)
        .after_connect(move |conn, _| {
            let clock = clock.clone();
            Box::pin(async move {
                run_as.take_role(conn).await?;
                clock::tell(clock::follow(&clock, conn).await?);
                Ok(())
            })
        })
        .connect_lazy_with(options))
}
