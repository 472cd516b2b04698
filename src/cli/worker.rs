//! What commands have in common that do the service's work from here: its insides, who is at it, and how far it is.

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::{CliError, insides};
use crate::admin_log::Entry;
use crate::app::App;
use crate::config::{Config, Env, LogConfig, Role, Strictness};
use crate::infra::telemetry;
use crate::run::{self, Roles};

/// Who is at it.
#[derive(Debug, Args)]
pub(super) struct Actor {
    /// The name for the admin log; the user's own by default.
    #[arg(long = "as", value_name = "NAME")]
    by: Option<String>,
}

impl Actor {
    /// What the admin log says of a deed.
    pub(super) fn entry(&self, app: &App, action: &'static str, target: String, reason: String) -> Entry {
        Entry {
            actor: name_of(self.by.as_deref()),
            role: Role::Operator,
            action,
            target,
            order: None,
            reason,
            request_id: app.ids.uuid().simple().to_string(),
        }
    }
}

/// The name that was given, or the user of the operating system.
pub(super) fn name_of(given: Option<&str>) -> String {
    let known = |name: &str| std::env::var(name).ok().filter(|name| !name.trim().is_empty());
    given.map(str::to_owned).or_else(|| known("USER")).or_else(|| known("LOGNAME")).unwrap_or_else(|| {
        std::fs::metadata("/proc/self").map_or("unknown".to_owned(), |own| format!("uid {}", own.uid()))
    })
}

/// The service's insides, with what keeps them from going on in the log.
pub(super) async fn worker(roles: Roles) -> Result<App, CliError> {
    let env = Env::of_process(Strictness::Strict);
    telemetry::init_log(&LogConfig::of_command(&env)?);
    let app = insides(Config::read(&env)?, roles)?;
    app.db.know_time().await?;
    run::check_schema(&app.db).await?;
    Ok(app)
}

/// How far it is, for a person who looks on.
pub(super) fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// For how long nothing may move before nobody looks on any more.
#[derive(Debug)]
pub(super) struct Patience<T> {
    lasts: Duration,
    seen: T,
    moved: Instant,
}

impl<T: PartialEq> Patience<T> {
    /// So many seconds from what is seen now.
    pub(super) fn of(seconds: u64, seen: T) -> Self {
        Self { lasts: Duration::from_secs(seconds), seen, moved: Instant::now() }
    }

    /// Whether nothing has moved for so long, by what is seen now.
    pub(super) fn is_over(&mut self, seen: T) -> bool {
        if seen != self.seen {
            (self.seen, self.moved) = (seen, Instant::now());
        }
        self.moved.elapsed() >= self.lasts
    }
}
