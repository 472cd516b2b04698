//! Stores of our own: a private PostgreSQL and Redis for `payonce dev`, `cargo test` and `cargo bench`.
//!
//! Nothing that the machine runs is touched: own data, own ports, own sockets, own configuration. Programs come
//! from PATH or `/usr/lib/postgresql`, and from apt when they are missing and this user may install them.
//!
//! Two ways to have stores:
//!
//! * [`LocalStores::start`]: this process owns them. They stop with it, also after `kill -9`, but not at
//!   Ctrl-C, which is for the service to drain on first. A second owner of the same directory is refused.
//! * [`LocalStores::attach_or_start`]: processes share them, as the many test processes of one `cargo test`
//!   do. They stop by themselves when nobody has used them for a minute.
//!
//! PostgreSQL's data stay in the directory between runs, unless they are kept in memory; Redis begins empty. For
//! faults, a test takes a server for itself: [`PostgresServer::start`], [`RedisServer::start`] and their `kill`,
//! `pause`, `restart`; [`SentinelServer`] watches such Redis servers, and [`RabbitServer`] is a broker of its own.
//!
//! ```no_run
//! # async fn example() -> Result<(), payonce::local::LocalError> {
//! use payonce::local::{LocalStores, Options};
//! let stores = LocalStores::start(".dev".as_ref(), &Options::default()).await?;
//! let (database_url, redis_url) = (stores.database_url(), stores.redis_url());
//! // … serve until Ctrl-C …
//! stores.stop().await?;
//! # Ok(()) }
//! ```

use std::{fs::File, path::Path};

mod error;
mod find;
mod home;
pub mod packages;
mod postgres;
mod process;
mod rabbitmq;
mod redis;
mod sentinel;
mod shared;
#[cfg(test)]
mod tests;

pub use error::LocalError;
pub use find::Finder;
pub use postgres::PostgresServer;
pub use rabbitmq::RabbitServer;
pub use redis::{RedisOptions, RedisServer};
pub use sentinel::SentinelServer;

use process::Lifetime;

/// How a private PostgreSQL is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether a commit is on disk when it returns (`fsync`, `synchronous_commit`). Off, a crash of the
    /// machine may lose the cluster.
    pub durable: bool,
    /// PostgreSQL's cache, in its own notation.
    pub shared_buffers: String,
    /// How many connections PostgreSQL takes.
    pub max_connections: u16,
    /// The database to connect to, made when it is missing.
    pub database: String,
    /// For shared stores: how long nobody may use them before they stop.
    pub idle_secs: u64,
    /// For shared stores: whether PostgreSQL's files are kept in memory (`/dev/shm`) where 4 GiB are free, and are
    /// deleted when it stops.
    pub in_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durable: true,
            shared_buffers: "128MB".to_owned(),
            max_connections: 200,
            database: "payonce".to_owned(),
            idle_secs: 60,
            in_memory: false,
        }
    }
}

/// A private PostgreSQL and Redis.
#[derive(Debug)]
pub struct LocalStores {
    /// The database.
    pub postgres: PostgresServer,
    /// The cache.
    pub redis: RedisServer,
    lifetime: Lifetime,
    // Last, so that the directory is free only when the servers have stopped.
    _lock: File,
}

impl LocalStores {
    /// Starts stores that this process owns, with their data in `dir`. Stores that a killed owner left behind
    /// are stopped first.
    ///
    /// # Errors
    ///
    /// [`LocalError::AlreadyRunning`] when another process uses stores in `dir`; otherwise when a program is
    /// missing or does not come up.
    pub async fn start(dir: &Path, options: &Options) -> Result<Self, LocalError> {
        ensure_programs().await?;
        let lock = shared::own(dir).await?;
        shared::unwatch(dir);
        let (postgres_dir, redis_dir) = (dir.join("postgres"), dir.join("redis"));
        let postgres = PostgresServer::launch(&postgres_dir, options, Lifetime::WithUs).await?;
        let redis = RedisServer::launch(&redis_dir, &RedisOptions::default(), Lifetime::WithUs).await?;
        Ok(Self { postgres, redis, lifetime: Lifetime::WithUs, _lock: lock })
    }

    /// Uses the stores that run in `dir`, or starts them for this process and all that come after. Options
    /// count for who starts them.
    ///
    /// # Errors
    ///
    /// [`LocalError::AlreadyRunning`] when a process owns stores in `dir` for itself; otherwise when a program
    /// is missing or does not come up.
    pub async fn attach_or_start(dir: &Path, options: &Options) -> Result<Self, LocalError> {
        ensure_programs().await?;
        let (lock, _alone) = shared::join(dir).await?;
        let (postgres_dir, redis_dir) = (dir.join("postgres"), dir.join("redis"));
        if options.in_memory {
            home::Home::move_into_memory(&postgres_dir).await?;
        }

        let postgres = PostgresServer::adopt(&postgres_dir, options).await?;
        let redis = RedisServer::adopt(&redis_dir).await?;
        let all_run = postgres.is_some() && redis.is_some();
        let postgres = match postgres {
            Some(postgres) => postgres,
            None => PostgresServer::launch(&postgres_dir, options, Lifetime::Shared).await?,
        };
        let redis = match redis {
            Some(redis) => redis,
            None => RedisServer::launch(&redis_dir, &RedisOptions::default(), Lifetime::Shared).await?,
        };
        if !all_run {
            shared::watch(dir, options.idle_secs, [postgres.trace(), redis.trace()])?;
        }
        Ok(Self { postgres, redis, lifetime: Lifetime::Shared, _lock: lock })
    }

    /// Stops shared stores in `dir` now, if they run and nobody uses them.
    ///
    /// # Errors
    ///
    /// [`LocalError::AlreadyRunning`] when somebody uses them.
    #[cfg(test)]
    pub async fn stop_idle(dir: &Path) -> Result<(), LocalError> {
        let _lock = shared::own(dir).await?;
        shared::unwatch(dir);
        PostgresServer::stop_leftover(&dir.join("postgres")).await?;
        RedisServer::stop_leftover(&dir.join("redis")).await
    }

    /// The value for `DATABASE_URL`: TCP on loopback, with a password.
    #[must_use]
    pub fn database_url(&self) -> String {
        self.postgres.url()
    }

    /// The value for `REDIS_URL`.
    #[must_use]
    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// Stops both servers and frees the directory; shared ones are only left.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn stop(mut self) -> Result<(), LocalError> {
        if self.lifetime == Lifetime::Shared {
            return Ok(());
        }
        self.redis.stop().await?;
        self.postgres.stop().await
    }
}

/// Asks for both at once, so that who has to install them by hand is told once.
async fn ensure_programs() -> Result<(), LocalError> {
    let missing = || {
        let finder = Finder::of_machine();
        let postgres = finder.postgres(None).is_none().then_some("postgresql");
        let redis = finder.program("redis-server").is_none().then_some("redis-server");
        postgres.into_iter().chain(redis).collect::<Vec<_>>()
    };
    let packages = missing();
    packages::ensure(&packages.join(" and "), &packages, move || missing().is_empty().then_some(())).await
}
