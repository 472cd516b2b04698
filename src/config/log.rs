//! The log.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use super::env::{ConfigError, Env};

/// What a command logs that a person runs: only what they should know.
const OF_COMMANDS: &str = "warn,lapin=off";

/// Which lines there are, and how they look.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Env: `LOG_FORMAT`.
    pub format: LogFormat,
    /// Directives of [`EnvFilter`]. Env: `RUST_LOG`.
    pub filter: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("neither text nor json"),
        }
    }
}

impl LogConfig {
    /// The log of the service.
    ///
    /// # Errors
    /// The first variable that is wrong.
    pub fn read(env: &Env) -> Result<Self, ConfigError> {
        let filter = env.text("RUST_LOG")?.unwrap_or_default();
        EnvFilter::builder().parse(&filter).map_err(|error| env.wrong("RUST_LOG", error.to_string()))?;
        Ok(Self { format: env.parsed("LOG_FORMAT")?, filter })
    }

    /// The log of a command that a person runs.
    ///
    /// # Errors
    /// The first variable that is wrong.
    pub fn of_command(env: &Env) -> Result<Self, ConfigError> {
        let service = Self::read(env)?;
        let filter = if env.is_set("RUST_LOG") { service.filter } else { OF_COMMANDS.to_owned() };
        Ok(Self { filter, ..service })
    }
}
