//! What can go wrong with private stores: what was wrong, what was expected, the command that mends it.

use std::{io, path::PathBuf};

/// Why a private PostgreSQL or Redis could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A program is missing and this user may not install it.
    #[error(
        "{what} is not on this machine and cannot be installed from here ({reason}); expected {what} \
         in PATH or under /usr/lib/postgresql/*/bin. Run: {command}"
    )]
    Missing {
        /// The missing program or programs.
        what: String,
        /// Why it was not installed.
        reason: String,
        /// The exact line to run.
        command: String,
    },
    /// apt ran and the program is still missing, or apt failed.
    #[error("apt could not install {what}. Run it by hand to see why: {command}\n{output}")]
    InstallFailed {
        /// The missing program or programs.
        what: String,
        /// The exact line to run.
        command: String,
        /// The last lines that apt wrote.
        output: String,
    },
    /// Another process owns the stores of this directory.
    #[error(
        "the stores in {dir} are already running with pid {pid}: stop it (`kill {pid}`), \
         or set DATABASE_URL and REDIS_URL to use other ones", dir = .dir.display()
    )]
    AlreadyRunning {
        /// The directory of the stores.
        dir: PathBuf,
        /// The process that owns them, `?` when it left no trace.
        pid: String,
    },
    /// The directory belongs to another user.
    #[error(
        "{dir} belongs to uid {owner} and this process is uid {uid}; expected a directory of its own. \
         Run: sudo chown -R {uid} '{dir}'", dir = .dir.display()
    )]
    NotOurs {
        /// The directory of the server.
        dir: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        uid: u32,
    },
    /// Root cannot run a database server, and no other user was found to run it.
    #[error(
        "PostgreSQL refuses to run as root, and /etc/passwd has neither `postgres` nor `nobody`. \
         Run: adduser --system --group postgres"
    )]
    NoUser,
    /// The data were written by another major version than the one installed.
    #[error(
        "the data in {dir} were made by PostgreSQL {made_by}, and {found} is what this machine has. \
         Run: sudo apt-get install -y --no-install-recommends postgresql-{made_by} \
         (or throw the data away: rm -rf '{dir}')", dir = .dir.display()
    )]
    WrongVersion {
        /// The data directory.
        dir: PathBuf,
        /// The major version in `PG_VERSION`.
        made_by: String,
        /// What `postgres --version` says.
        found: String,
    },
    /// The PostgreSQL of this machine is older than the schema needs.
    #[error(
        "found {found}, and the schema needs PostgreSQL {first} or later. Run: sudo apt-get install -y \
         postgresql-common && sudo /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y && sudo apt-get \
         install -y --no-install-recommends postgresql-{first}"
    )]
    TooOld {
        /// What `postgres --version` says.
        found: String,
        /// The first major version that does.
        first: u32,
    },
    /// A server ended, or did not answer in time, while it started.
    #[error("{what} did not come up: {how}. Read: {log}\n{tail}", log = .log.display())]
    NotReady {
        /// The server.
        what: &'static str,
        /// What it did instead.
        how: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A short-lived program (initdb) failed.
    #[error("`{command}` failed:\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// The last lines that it wrote.
        output: String,
    },
    /// A file or process could not be handled.
    #[error("could not {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The database could not be prepared.
    #[error("could not {doing}: {source}")]
    Sql {
        /// What was tried.
        doing: String,
        /// What the database said.
        source: sqlx::Error,
    },
}

impl LocalError {
    /// For `map_err`: says what was being done when the system refused.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing.into(), source }
    }
}

/// The last lines of a text, enough to see a cause without scrolling.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
