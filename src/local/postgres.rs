//! A private PostgreSQL: its own cluster, its own unix socket, its own port on loopback.
//!
//! Over TCP a password is asked for (scram). On the socket everyone is trusted, because its directory lets
//! nobody in but the server's user (and root); sockets are also the faster way.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection};

use super::{
    Options,
    error::LocalError,
    find::Finder,
    home::Home,
    packages,
    process::{self, Lifetime, LogMark, Process, Signal, Spec, free_port},
    shared::Trace,
};

/// Recovery after a crash reads the log again, which takes its time on a busy disk.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A PostgreSQL of our own. Stops when dropped; prefer [`stop`](Self::stop), which does not block a thread.
#[derive(Debug)]
pub struct PostgresServer {
    cluster: Cluster,
    port: u16,
    lifetime: Lifetime,
    process: Process,
}

/// What stays while the server comes and goes.
#[derive(Debug)]
struct Cluster {
    home: Home,
    bin: PathBuf,
    sockets: PathBuf,
    password: String,
    options: Options,
}

impl PostgresServer {
    /// Starts a PostgreSQL that keeps its cluster in `dir`, which belongs to it alone, and makes the database
    /// if it is missing. A server that an earlier process left running there is stopped first.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is missing and cannot be installed, or does not come up.
    pub async fn start(dir: &Path, options: &Options) -> Result<Self, LocalError> {
        Self::launch(dir, options, Lifetime::WithUs).await
    }

    pub(crate) async fn launch(
        dir: &Path,
        options: &Options,
        lifetime: Lifetime,
    ) -> Result<Self, LocalError> {
        let cluster = Cluster::open(dir, options).await?;
        if let Some((mut leftover, _)) = cluster.running() {
            leftover.stop().await?;
        }
        cluster.init().await?;

        let mut port = free_port(cluster.home.read("port").and_then(|port| port.parse().ok()))?;
        let mut attempts = 1;
        let process = loop {
            match cluster.run(port, lifetime).await {
                // The port was taken meanwhile, or processes of a crashed server have not all ended yet.
                Err(LocalError::NotReady { .. }) if attempts < 4 => {
                    attempts += 1;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    port = free_port(None)?;
                }
                result => break result?,
            }
        };
        cluster.ensure_database(port).await?;
        Ok(Self { cluster, port, lifetime, process })
    }

    /// Stops a server that was left running in `dir`, if one was.
    #[cfg(test)]
    pub(crate) async fn stop_leftover(dir: &Path) -> Result<(), LocalError> {
        let home = Home::prepare(dir).await?;
        if let Some((mut leftover, _)) = running(&home) {
            leftover.stop().await?;
        }
        let Some(scratch) = home.scratch() else { return Ok(()) };
        fs::remove_dir_all(scratch).map_err(LocalError::io(format!("delete {}", scratch.display())))
    }

    /// The server that another process started in `dir`, if it takes connections.
    pub(crate) async fn adopt(dir: &Path, options: &Options) -> Result<Option<Self>, LocalError> {
        let cluster = Cluster::open(dir, options).await?;
        let Some((process, port)) = cluster.running().filter(|(process, _)| cluster.is_ready(process.pid()))
        else {
            return Ok(None);
        };
        cluster.ensure_database(port).await?;
        Ok(Some(Self { cluster, port, lifetime: Lifetime::Shared, process }))
    }

    /// `postgres://postgres:password@127.0.0.1:port/database`, for every client.
    #[must_use]
    pub fn url(&self) -> String {
        let Options { database, .. } = &self.cluster.options;
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}", self.cluster.password, self.port)
    }

    /// The same database through the unix socket: faster, and without a password.
    #[must_use]
    pub fn socket_url(&self) -> String {
        self.cluster.socket_url(self.port, &self.cluster.options.database)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A program of this PostgreSQL, such as `psql`, `pg_dump` or `pgbench`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.cluster.bin.join(name)
    }

    /// Stops the server: open transactions are rolled back, committed ones are kept (SIGINT, fast shutdown).
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn stop(&mut self) -> Result<(), LocalError> {
        self.process.stop().await
    }

    /// Ends the server as a crash would: no checkpoint, recovery at the next start (SIGQUIT).
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn kill(&mut self) -> Result<(), LocalError> {
        self.process.end(Signal::Quit).await
    }

    /// Freezes the server with all its connections (SIGSTOP): nothing is answered.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn pause(&mut self) -> Result<(), LocalError> {
        self.process.signal_all(Signal::Stop).await
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn resume(&mut self) -> Result<(), LocalError> {
        self.process.signal_all(Signal::Cont).await
    }

    /// Starts the server again on the same port, stopping it first if it runs.
    ///
    /// # Errors
    ///
    /// When the server does not come up.
    pub async fn restart(&mut self) -> Result<(), LocalError> {
        self.stop().await?;
        self.process = self.cluster.run(self.port, self.lifetime).await?;
        Ok(())
    }

    /// What the watchdog needs to know.
    pub(crate) fn trace(&self) -> Trace {
        let mark = data_dir(&self.cluster.home).display().to_string();
        let scratch = self.cluster.home.scratch().map(Path::to_owned);
        Trace {
            pid_file: format!("{mark}/postmaster.pid"),
            pid: self.pid(),
            mark,
            stop: Signal::Int,
            scratch,
        }
    }
}

impl Cluster {
    async fn open(dir: &Path, options: &Options) -> Result<Self, LocalError> {
        let find = || Finder::of_machine().postgres(None);
        // Before the home: the package brings the user that it is given to.
        let newest = packages::ensure("PostgreSQL", &["postgresql"], find).await?;
        let home = Home::prepare(dir).await?;
        let bin = right_version(&home, newest)?;
        let (sockets, password) = (home.socket_dir()?, home.password()?);
        Ok(Self { home, bin, sockets, password, options: options.clone() })
    }

    /// Makes the cluster, unless there is one. It gets its name when it is whole: a `kill -9` halfway leaves
    /// nothing that could be taken for a cluster.
    async fn init(&self) -> Result<(), LocalError> {
        let data = data_dir(&self.home);
        if data.join("PG_VERSION").is_file() {
            return Ok(());
        }
        let half = self.home.path.join("data.new");
        // Debian has had C.UTF-8 since 2012; other systems may not.
        let first = self.initdb(&half, "C.UTF-8").await;
        if first.is_err() {
            self.initdb(&half, "C").await.or(first)?;
        }
        fs::rename(&half, &data).map_err(LocalError::io(format!("name the new cluster {}", data.display())))
    }

    async fn initdb(&self, into: &Path, locale: &str) -> Result<(), LocalError> {
        let doing = format!("clear {}", into.display());
        if into.exists() {
            fs::remove_dir_all(into).map_err(LocalError::io(doing))?;
        }
        let path = |path: &Path| path.display().to_string();
        let args = [
            format!("--pgdata={}", path(into)),
            format!("--pwfile={}", path(&self.home.path.join("password"))),
            format!("--locale={locale}"),
        ];
        let fixed =
            ["--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8"];
        let mut args: Vec<String> = fixed.iter().map(ToString::to_string).chain(args).collect();
        if !self.options.durable {
            args.push("--no-sync".to_owned());
        }
        process::run(&self.bin.join("initdb"), args, &self.home).await
    }

    /// Starts the server and waits until it takes connections.
    async fn run(&self, port: u16, lifetime: Lifetime) -> Result<Process, LocalError> {
        self.home.write_secret("port", &port.to_string())?;
        let log = self.home.path.join("postgres.log");
        let log_mark = LogMark::new(&log);
        let (program, args) = (self.bin.join("postgres"), self.args(port));
        let spec = Spec { program: &program, args, home: &self.home, log: &log, lifetime, stop: Signal::Int };
        let mut process = Process::spawn(spec).await?;

        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if !process.is_alive() {
                return Err(log_mark.error("PostgreSQL", "it ended at once"));
            }
            if self.is_ready(process.pid()) {
                return Ok(process);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        process.end(Signal::Quit).await?;
        Err(log_mark.error("PostgreSQL", format!("it was not ready within {} s", READY_WITHIN.as_secs())))
    }

    fn args(&self, port: u16) -> Vec<String> {
        let Options { durable, shared_buffers, max_connections, .. } = &self.options;
        let on = if *durable { "on" } else { "off" };
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", self.sockets.display()),
            "unix_socket_permissions=0700".to_owned(),
            format!("max_connections={max_connections}"),
            format!("shared_buffers={shared_buffers}"),
            format!("fsync={on}"),
            format!("synchronous_commit={on}"),
            format!("full_page_writes={on}"),
            // Compiling a query takes longer than running the short ones of this service.
            "jit=off".to_owned(),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "cluster_name=payonce".to_owned(),
            "max_wal_size=1GB".to_owned(),
        ];
        let settings = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]);
        ["-D".to_owned(), data_dir(&self.home).display().to_string()].into_iter().chain(settings).collect()
    }

    async fn ensure_database(&self, port: u16) -> Result<(), LocalError> {
        let name = &self.options.database;
        let sql = |source| LocalError::Sql { doing: format!("make the database {name}"), source };
        let mut connection = PgConnection::connect(&self.socket_url(port, "postgres")).await.map_err(sql)?;

        let found = sqlx::query("SELECT 1 FROM pg_database WHERE datname = $1").bind(name);
        if found.fetch_optional(&mut connection).await.map_err(sql)?.is_none() {
            // A name cannot be a parameter here; it is quoted as an identifier.
            let create = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
            sqlx::query(sqlx::AssertSqlSafe(create)).execute(&mut connection).await.map_err(sql)?;
        }
        connection.close().await.map_err(sql)
    }

    fn socket_url(&self, port: u16, database: &str) -> String {
        // sqlx wants a host in the URL; the parameter overrides it.
        format!("postgres://postgres@localhost:{port}/{database}?host={}", self.sockets.display())
    }

    /// PostgreSQL writes `ready` into the eighth line of its pid file; `pg_ctl -w` waits for the same.
    fn is_ready(&self, pid: u32) -> bool {
        pid_file(&self.home).is_some_and(|lines| {
            lines.first() == Some(&pid.to_string())
                && lines.get(7).is_some_and(|status| status.trim() == "ready")
        })
    }

    fn running(&self) -> Option<(Process, u16)> {
        running(&self.home)
    }
}

fn data_dir(home: &Home) -> PathBuf {
    home.path.join("data")
}

fn pid_file(home: &Home) -> Option<Vec<String>> {
    let text = fs::read_to_string(data_dir(home).join("postmaster.pid")).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// A server that runs on this cluster, and its port.
fn running(home: &Home) -> Option<(Process, u16)> {
    let lines = pid_file(home)?;
    let (pid, port) = (lines.first()?.parse().ok()?, lines.get(3)?.parse().ok()?);
    let marks = vec![data_dir(home).display().to_string()];
    Some((Process::find(pid, marks, Signal::Int)?, port))
}

/// The first major version that the schema runs on.
const FIRST_MAJOR: u32 = 15;

/// A cluster only runs under the major version that made it, and the schema on none that is too old.
fn right_version(home: &Home, newest: PathBuf) -> Result<PathBuf, LocalError> {
    let made_by = home.read("data/PG_VERSION");
    let maker = made_by.as_deref().and_then(|major| Finder::of_machine().postgres(Some(major)));
    let bin = maker.unwrap_or(newest);

    let output = std::process::Command::new(bin.join("postgres")).arg("--version").output();
    let output = output.map_err(LocalError::io("run postgres --version"))?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let major = major_of(&found);
    match made_by {
        Some(made_by) if major != made_by.parse().ok() => {
            Err(LocalError::WrongVersion { dir: data_dir(home), made_by, found })
        }
        _ if major.is_none_or(|major| major < FIRST_MAJOR) => {
            Err(LocalError::TooOld { found, first: FIRST_MAJOR })
        }
        _ => Ok(bin),
    }
}

/// The major version in what `postgres --version` says.
fn major_of(told: &str) -> Option<u32> {
    let digits = told.split_whitespace().nth(2)?.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_version_that_the_schema_does_not_run_on_is_refused_by_its_name() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/local-tests/too-old");
        fs::create_dir_all(&dir).expect("a directory");
        let says = |version: &str| {
            let server = dir.join("postgres");
            fs::write(&server, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n"))
                .expect("written");
            fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).expect("it can be run");
        };
        let home = Home::prepare(&dir.join("home")).await.expect("a home");
        says("14.12 (Ubuntu 14.12-0ubuntu0.22.04.1)");
        let refused = right_version(&home, dir.clone()).expect_err("it is too old").to_string();
        assert!(refused.contains("14.12") && refused.contains("15"), "{refused}");
        for version in ["15.8 (Debian 15.8-0+deb12u1)", "18beta1"] {
            says(version);
            assert_eq!(right_version(&home, dir.clone()).expect(version), dir);
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}
