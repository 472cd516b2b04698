//! Configuration: one small struct per concern, read once at the start from the environment.
//!
//! [`VARIABLES`] is the whole list; `.env.example` is printed from it and a test compares the two. Every secret
//! can also be given as a file, in the variable of the same name with `_FILE` behind it.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::infra::outside::{Net, Outside};
use crate::infra::redis::RedisServers;

mod env;
mod log;
mod recon;
mod variables;
pub use env::{ConfigError, Env, MIN_SECRET_BYTES, Strictness, add_file};
pub use log::{LogConfig, LogFormat};
pub use recon::{ReconAuto, ReconConfig};
pub use variables::{VARIABLES, Variable, env_example};

/// Everything that can be set from outside.
#[derive(Clone, Debug)]
pub struct Config {
    /// PostgreSQL.
    pub database: DatabaseConfig,
    /// Redis.
    pub redis: RedisConfig,
    /// RabbitMQ.
    pub broker: BrokerConfig,
    /// The HTTP edge.
    pub http: HttpConfig,
    /// The log.
    pub log: LogConfig,
    /// The operators' tokens.
    pub admin: AdminConfig,
    /// The payment channels.
    pub channels: ChannelsConfig,
    /// Orders and their deadlines.
    pub orders: OrdersConfig,
    /// Where rates of commissions come from.
    pub rates: RatesConfig,
    /// Where notifications may go. Env: `NOTIFY_ALLOW_NETS`.
    pub notify: Outside,
    /// Our books against the channels'.
    pub reconciliation: ReconConfig,
    /// How long a task stays with a worker that died. Env: `TASK_LEASE_MS`.
    pub task_lease: Duration,
    /// The key under which stored secrets are encrypted. Env: `ENCRYPTION_KEY`.
    pub encryption_key: SecretString,
}

impl Config {
    /// Reads and checks all variables.
    ///
    /// # Errors
    /// The first variable that is missing or wrong, with what was expected.
    pub fn read(env: &Env) -> Result<Self, ConfigError> {
        env.check_authorities()?;
        let (broker, orders) = (BrokerConfig::read(env)?, OrdersConfig::read(env)?);
        if orders.delay_queue == DelayQueue::RabbitMq && broker.url.is_none() {
            return Err(env.wrong("AMQP_URL", "it is not set, and DELAY_QUEUE=rabbitmq needs it"));
        }
        Ok(Self {
            database: DatabaseConfig::read(env)?,
            redis: RedisConfig::read(env)?,
            broker,
            http: HttpConfig::read(env)?,
            log: LogConfig::read(env)?,
            admin: AdminConfig::read(env)?,
            channels: ChannelsConfig::read(env)?,
            orders,
            rates: RatesConfig::read(env)?,
            notify: read_outside(env)?,
            reconciliation: ReconConfig::read(env)?,
            task_lease: env.millis("TASK_LEASE_MS", 1_000, 25_000)?,
            encryption_key: env.secret("ENCRYPTION_KEY", "dev-encryption-key")?,
        })
    }
}

/// PostgreSQL.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// Env: `DATABASE_URL`.
    pub url: SecretString,
    /// Connections at most. Env: `DATABASE_POOL_SIZE`.
    pub pool_size: u32,
    /// Concurrent commands of one kind that share a statement and its commit, at most. Env: `DATABASE_BATCH_MAX`.
    pub max_batch: usize,
    /// How long a request waits for a connection. Env: `DATABASE_ACQUIRE_MS`.
    pub acquire_deadline: Duration,
    /// How long one statement may run. Env: `DATABASE_STATEMENT_MS`.
    pub statement_deadline: Duration,
}

/// Connections at least: under load each kind of gathered command keeps one as long as there are others, and the rest of the
/// service needs some.
pub const LEAST_POOL: u32 = 8;

impl DatabaseConfig {
    /// Reads the variables of PostgreSQL alone, for commands that need no more.
    ///
    /// # Errors
    /// The first variable that is missing or wrong.
    pub fn read(env: &Env) -> Result<Self, ConfigError> {
        let url = env
            .url("DATABASE_URL", &["postgres", "postgresql"])?
            .ok_or_else(|| env.wrong("DATABASE_URL", "it is not set"))?;
        Ok(Self {
            url: url.into(),
            pool_size: env.within("DATABASE_POOL_SIZE", LEAST_POOL, 500)?,
            max_batch: env.within("DATABASE_BATCH_MAX", 1, 1000)?,
            acquire_deadline: env.millis("DATABASE_ACQUIRE_MS", 50, 60_000)?,
            statement_deadline: env.millis("DATABASE_STATEMENT_MS", 100, 60_000)?,
        })
    }
}

/// Redis. Losing it degrades the service and refuses nothing.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Env: `REDIS_URL`.
    pub servers: RedisServers,
    /// Longest wait for an answer. Env: `REDIS_ANSWER_MS`.
    pub answer_deadline: Duration,
    /// Life of a lock that is not renewed. Env: `LOCK_TTL_MS`.
    pub lock_ttl: Duration,
}

impl RedisConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        let text = env.text("REDIS_URL")?.ok_or_else(|| env.wrong("REDIS_URL", "it is not set"))?;
        Ok(Self {
            servers: text.parse().map_err(|problem: String| env.wrong("REDIS_URL", problem))?,
            answer_deadline: env.millis("REDIS_ANSWER_MS", 5, 5_000)?,
            lock_ttl: env.millis("LOCK_TTL_MS", 300, 600_000)?,
        })
    }
}

/// RabbitMQ. Losing it degrades the service and refuses nothing.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Env: `AMQP_URL`.
    pub url: Option<SecretString>,
    /// What the names of all queues begin with. Env: `AMQP_PREFIX`.
    pub prefix: String,
}

impl BrokerConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        let prefix: String = env.parsed("AMQP_PREFIX")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if prefix.len() > 64 || !prefix.chars().all(is_name) {
            return Err(env.wrong("AMQP_PREFIX", format!("`{prefix}` is not such a name")));
        }
        Ok(Self { url: env.url("AMQP_URL", &["amqp", "amqps"])?.map(Into::into), prefix })
    }
}

/// The HTTP edge.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Env: `BIND_ADDR`.
    pub bind: SocketAddr,
    /// Whether the well-known keys of `payonce dev` are keys.
    pub takes_demo_keys: bool,
    /// How the world reaches this service, without a slash at the end; where it listens, by default.
    /// Env: `PUBLIC_URL`.
    pub public_url: Option<String>,
    /// Connections at once at most. Env: `HTTP_CONNECTIONS_MAX`.
    pub max_connections: usize,
    /// Requests under way at most, of merchants and as many of channels. Env: `HTTP_REQUESTS_MAX`.
    pub max_requests: usize,
    /// Origins whose pages may call the two public routes, and are led back to from the cashier. Env: `CORS_ORIGINS`.
    pub cors_origins: Vec<String>,
}

impl HttpConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        let bind: SocketAddr = env.parsed("BIND_ADDR")?;
        let public_url = env.url("PUBLIC_URL", &["http", "https"])?;
        if public_url.as_ref().is_some_and(|url| !is_bare(url)) {
            return Err(
                env.wrong("PUBLIC_URL", "it has more than a host and a port; our own paths come behind it")
            );
        }
        let cors_origins = env.text("CORS_ORIGINS")?.unwrap_or_default();
        let cors_origins: Vec<String> =
            cors_origins.split(',').map(str::trim).filter(|o| !o.is_empty()).map(str::to_owned).collect();
        if let Some(bad) = cors_origins.iter().find(|origin| !is_origin(origin)) {
            return Err(env.wrong("CORS_ORIGINS", format!("`{bad}` is not an origin")));
        }
        Ok(Self {
            bind,
            takes_demo_keys: env.strictness == Strictness::Dev,
            public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
            max_connections: env.within("HTTP_CONNECTIONS_MAX", 16, 1_000_000)?,
            max_requests: env.within("HTTP_REQUESTS_MAX", 1, 1_000_000)?,
            cors_origins,
        })
    }
}

fn is_bare(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| {
        let names_nobody = url.username().is_empty() && url.password().is_none();
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && names_nobody
    })
}

fn is_origin(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
    })
}

/// Whether a token arrives in a header as it is written: otherwise it would arrive as another one, or not at all.
fn fits_a_header(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What an operator's token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May look at everything.
    Viewer,
    /// May also change things.
    Operator,
}

impl FromStr for Role {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "viewer" => Ok(Self::Viewer),
            "operator" => Ok(Self::Operator),
            _ => Err("neither viewer nor operator"),
        }
    }
}

/// One operator's token.
#[derive(Clone, Debug)]
pub struct AdminToken {
    /// What it allows.
    pub role: Role,
    /// Whose it is; written to the admin log.
    pub name: String,
    /// The token itself.
    pub token: SecretString,
}

/// The operators. Env: `ADMIN_TOKENS`.
#[derive(Clone, Debug, Default)]
pub struct AdminConfig {
    /// Every token that is accepted.
    pub tokens: Vec<AdminToken>,
}

impl AdminConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        let text = env.secret("ADMIN_TOKENS", "operator:dev-admin-token")?;
        let entries = text.expose_secret().split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let mut tokens: Vec<AdminToken> = Vec::new();
        for (index, entry) in entries.enumerate() {
            let read = Self::read_token(env, index + 1, entry)?;
            let is_same = |other: &AdminToken| other.token.expose_secret() == read.token.expose_secret();
            // Nobody could tell whose deeds they are, nor by which role.
            if let Some(first) = tokens.iter().position(is_same) {
                let problem = format!("entries {} and {} have the same token", first + 1, index + 1);
                return Err(env.wrong("ADMIN_TOKENS", problem));
            }
            tokens.push(read);
        }
        Ok(Self { tokens })
    }

    /// Reads `role:token` or `role@name:token`; `position` stands for the secret in what is said of it.
    fn read_token(env: &Env, position: usize, entry: &str) -> Result<AdminToken, ConfigError> {
        let wrong = |problem: &str| env.wrong("ADMIN_TOKENS", format!("entry {position} {problem}"));
        let (who, token) = entry.split_once(':').ok_or_else(|| wrong("has no colon"))?;
        let (role, name) = who.split_once('@').unwrap_or((who, who));
        let role = role.parse().map_err(|problem| wrong(&format!("has a role that is {problem}")))?;
        if name.is_empty() {
            return Err(wrong("has an empty name"));
        }
        let is_short = token.len() < MIN_SECRET_BYTES && env.strictness == Strictness::Strict;
        if token.is_empty() || is_short {
            return Err(wrong(&format!("has a token of fewer than {MIN_SECRET_BYTES} bytes")));
        }
        if !fits_a_header(token) {
            return Err(wrong("has a token with a space, or with what is no visible ASCII character"));
        }
        Ok(AdminToken { role, name: name.to_owned(), token: token.into() })
    }
}

/// The payment channels.
#[derive(Clone, Debug)]
pub struct ChannelsConfig {
    /// How long one call to a channel may take. Env: `CHANNEL_DEADLINE_MS`.
    pub deadline: Duration,
    /// Signs and checks what passes between us and the sandbox. Env: `SANDBOX_SECRET`.
    pub sandbox_secret: SecretString,
    /// Another instance that runs the role `sandbox`. Env: `SANDBOX_URL`.
    pub sandbox_url: Option<String>,
}

impl ChannelsConfig {
    /// How long a call that nobody waits for any more may still be on its way to the channel, or at work there. Tasks rest
    /// longer than that soon, also by the longest deadline (120 s behind their seventh try).
    #[must_use]
    pub fn settles_within(&self) -> Duration {
        10 * self.deadline
    }

    fn read(env: &Env) -> Result<Self, ConfigError> {
        Ok(Self {
            deadline: env.millis("CHANNEL_DEADLINE_MS", 50, 10_000)?,
            sandbox_secret: env.secret("SANDBOX_SECRET", "dev-sandbox-secret")?,
            sandbox_url: env.url("SANDBOX_URL", &["http", "https"])?,
        })
    }
}

/// What makes timeouts prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayQueue {
    /// A ZSET.
    Redis,
    /// A ladder of queues.
    RabbitMq,
}

impl FromStr for DelayQueue {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "redis" => Ok(Self::Redis),
            "rabbitmq" => Ok(Self::RabbitMq),
            _ => Err("neither redis nor rabbitmq"),
        }
    }
}

/// Orders and their deadlines.
#[derive(Clone, Debug)]
pub struct OrdersConfig {
    /// What holds the timers. Env: `DELAY_QUEUE`.
    pub delay_queue: DelayQueue,
    /// Life of an order that names none, in seconds. Env: `ORDER_TIMEOUT_SECONDS`.
    pub timeout_secs: i64,
    /// How often the delay queue is asked for due orders. Env: `ORDER_POLL_MS`.
    pub poll_every: Duration,
    /// How often the database is swept for what the delay queue missed. Env: `ORDER_SWEEP_MS`.
    pub sweep_every: Duration,
}

impl OrdersConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        Ok(Self {
            delay_queue: env.parsed("DELAY_QUEUE")?,
            timeout_secs: env.within("ORDER_TIMEOUT_SECONDS", 1, 604_800)?,
            poll_every: env.millis("ORDER_POLL_MS", 10, 60_000)?,
            sweep_every: env.millis("ORDER_SWEEP_MS", 100, 600_000)?,
        })
    }
}

/// Where rates of commissions come from: the tables, or an endpoint of the operator.
#[derive(Clone, Debug)]
pub struct RatesConfig {
    /// The endpoint. Env: `RATES_URL`.
    pub url: Option<String>,
    /// What it is called with. Env: `RATES_TOKEN`.
    pub token: Option<SecretString>,
    /// How long it may take to answer. Env: `RATES_DEADLINE_MS`.
    pub deadline: Duration,
}

impl RatesConfig {
    fn read(env: &Env) -> Result<Self, ConfigError> {
        Ok(Self {
            url: env.url("RATES_URL", &["http", "https"])?,
            token: Self::read_token(env, "RATES_TOKEN")?,
            deadline: env.millis("RATES_DEADLINE_MS", 50, 20_000)?,
        })
    }

    fn read_token(env: &Env, name: &'static str) -> Result<Option<SecretString>, ConfigError> {
        match env.text(name)? {
            Some(token) if !fits_a_header(&token) => {
                Err(env.wrong(name, "it has a space, or what is no visible ASCII character"))
            }
            token => Ok(token.map(Into::into)),
        }
    }
}

/// The networks that notifications may reach although they are not public; this machine itself for a developer.
fn read_outside(env: &Env) -> Result<Outside, ConfigError> {
    let is_dev = env.strictness == Strictness::Dev;
    let default = if is_dev { "127.0.0.0/8,::1" } else { "" };
    let text = env.text("NOTIFY_ALLOW_NETS")?.unwrap_or_else(|| default.to_owned());
    let nets = text.split(',').map(str::trim).filter(|net| !net.is_empty());
    let read =
        |net: &str| net.parse::<Net>().map_err(|error| env.wrong("NOTIFY_ALLOW_NETS", error.to_string()));
    Ok(Outside { exempt: nets.map(read).collect::<Result<_, _>>()?, is_dev })
}

#[cfg(test)]
mod tests;
