//! A private Redis: nothing on disk, on a loopback port and a unix socket of its own, behind a random password.
//!
//! The password matters: whoever may send `CONFIG SET dir` writes files as the server's user.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    error::LocalError,
    find::Finder,
    home::Home,
    packages,
    process::{Lifetime, LogMark, Process, Signal, Spec, free_port},
    shared::Trace,
};

const READY_WITHIN: Duration = Duration::from_secs(15);

/// How a private Redis differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// The port to listen on; otherwise the port of the last run in that directory, or a free one.
    pub port: Option<u16>,
    /// The password; otherwise one of its own. A master and its replicas share one, or no replica could take over.
    pub password: Option<String>,
    /// More lines of `redis.conf`, such as `appendonly yes` or `replicaof 127.0.0.1 7001`.
    pub config: Vec<String>,
}

/// A Redis of our own. Stops when dropped; prefer [`stop`](Self::stop), which does not block a thread.
#[derive(Debug)]
pub struct RedisServer {
    home: Home,
    sockets: PathBuf,
    port: u16,
    password: String,
    config: Vec<String>,
    lifetime: Lifetime,
    process: Process,
}

impl RedisServer {
    /// Starts a Redis that keeps its files in `dir`, which belongs to it alone. One that an earlier process
    /// left running there is stopped first.
    ///
    /// # Errors
    ///
    /// When Redis is missing and cannot be installed, or does not answer.
    pub async fn start(dir: &Path) -> Result<Self, LocalError> {
        Self::start_with(dir, &RedisOptions::default()).await
    }

    /// [`start`](Self::start), on a chosen port or with more configuration.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(dir: &Path, options: &RedisOptions) -> Result<Self, LocalError> {
        Self::launch(dir, options, Lifetime::WithUs).await
    }

    pub(crate) async fn launch(
        dir: &Path,
        options: &RedisOptions,
        lifetime: Lifetime,
    ) -> Result<Self, LocalError> {
        // Before the home: the package may bring the user that it is given to.
        program().await?;
        Self::stop_leftover(dir).await?;
        let home = Home::prepare(dir).await?;
        let sockets = home.socket_dir()?;
        let password = match &options.password {
            Some(password) => password.clone(),
            None => home.password()?,
        };

        // Between looking for a free port and listening on it another process can take it.
        let mut port = free_port(options.port.or_else(|| last_port(&home)))?;
        let mut attempts = 1;
        let process = loop {
            match run(&home, &sockets, port, &password, &options.config, lifetime).await {
                Err(LocalError::NotReady { .. }) if options.port.is_none() && attempts < 4 => {
                    attempts += 1;
                    port = free_port(None)?;
                }
                result => break result?,
            }
        };
        Ok(Self { home, sockets, port, password, config: options.config.clone(), lifetime, process })
    }

    /// Stops a Redis that was left running in `dir`, if one was.
    pub(crate) async fn stop_leftover(dir: &Path) -> Result<(), LocalError> {
        match find(&Home::prepare(dir).await?) {
            Some((mut leftover, _)) => leftover.stop().await,
            None => Ok(()),
        }
    }

    /// The Redis that another process started in `dir`, if it answers.
    pub(crate) async fn adopt(dir: &Path) -> Result<Option<Self>, LocalError> {
        let home = Home::prepare(dir).await?;
        let Some((process, port)) = find(&home) else { return Ok(None) };
        let (sockets, password) = (home.socket_dir()?, home.password()?);
        if !answers(&url(port, &password)).await {
            return Ok(None);
        }
        let (config, lifetime) = (Vec::new(), Lifetime::Shared);
        Ok(Some(Self { home, sockets, port, password, config, lifetime, process }))
    }

    /// `redis://:password@127.0.0.1:port/`
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port, &self.password)
    }

    /// The same server through its unix socket: faster.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}?pass={}", socket(&self.sockets).display(), self.password)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password, for a replica's `masterauth`.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the server; all it held is gone, unless its configuration says otherwise.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn stop(&mut self) -> Result<(), LocalError> {
        self.process.stop().await
    }

    /// Kills the server as a crash would (SIGKILL).
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn kill(&mut self) -> Result<(), LocalError> {
        self.process.end(Signal::Kill).await
    }

    /// Freezes the server (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn pause(&mut self) -> Result<(), LocalError> {
        self.process.signal(Signal::Stop).await
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn resume(&mut self) -> Result<(), LocalError> {
        self.process.signal(Signal::Cont).await
    }

    /// Starts the server again on the same port and password, stopping it first if it runs.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn restart(&mut self) -> Result<(), LocalError> {
        self.stop().await?;
        let Self { home, sockets, port, password, config, lifetime, .. } = &*self;
        self.process = run(home, sockets, *port, password, config, *lifetime).await?;
        Ok(())
    }

    /// What the watchdog needs to know.
    pub(crate) fn trace(&self) -> Trace {
        let pid_file = self.home.path.join("redis.pid").display().to_string();
        Trace { pid_file, pid: self.pid(), mark: mark(self.port), stop: Signal::Term, scratch: None }
    }
}

/// Starts the server and waits until it answers.
async fn run(
    home: &Home,
    sockets: &Path,
    port: u16,
    password: &str,
    config: &[String],
    lifetime: Lifetime,
) -> Result<Process, LocalError> {
    let conf = home.write_secret("redis.conf", &redis_conf(home, sockets, port, password, config))?;
    home.write_secret("port", &port.to_string())?;
    let log = home.path.join("redis.log");
    let log_mark = LogMark::new(&log);

    let args = vec![conf.display().to_string()];
    let spec = Spec { program: &program().await?, args, home, log: &log, lifetime, stop: Signal::Term };
    let mut process = Process::spawn(spec).await?;

    until_it_answers(&mut process, &url(port, password), &log_mark).await?;
    Ok(process)
}

/// Waits until a server that was just started answers there.
pub(super) async fn until_it_answers(
    process: &mut Process,
    url: &str,
    log_mark: &LogMark,
) -> Result<(), LocalError> {
    let started = Instant::now();
    while started.elapsed() < READY_WITHIN {
        if !process.is_alive() {
            return Err(log_mark.error("Redis", "it ended at once"));
        }
        if answers(url).await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.end(Signal::Kill).await?;
    Err(log_mark.error("Redis", format!("it did not answer within {} s", READY_WITHIN.as_secs())))
}

pub(super) async fn program() -> Result<PathBuf, LocalError> {
    let find = || Finder::of_machine().program("redis-server");
    packages::ensure("redis-server", &["redis-server"], find).await
}

fn redis_conf(home: &Home, sockets: &Path, port: u16, password: &str, more: &[String]) -> String {
    let (dir, socket) = (home.path.display(), socket(sockets));
    format!(
        "bind 127.0.0.1\nport {port}\nunixsocket {}\nunixsocketperm 700\nrequirepass {password}\n\
         masterauth {password}\ndaemonize no\n\
         dir \"{dir}\"\npidfile \"{dir}/redis.pid\"\nlogfile \"\"\nsave \"\"\nappendonly no\n{}\n",
        socket.display(),
        more.join("\n")
    )
}

fn socket(sockets: &Path) -> PathBuf {
    sockets.join("redis.sock")
}

fn url(port: u16, password: &str) -> String {
    format!("redis://:{password}@127.0.0.1:{port}/")
}

async fn answers(url: &str) -> bool {
    let ping = async {
        let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        redis::cmd("PING").query_async::<String>(&mut connection).await
    };
    matches!(tokio::time::timeout(Duration::from_secs(1), ping).await, Ok(Ok(_)))
}

fn last_port(home: &Home) -> Option<u16> {
    home.read("port")?.parse().ok()
}

/// Redis rewrites its command line to its address.
fn mark(port: u16) -> String {
    format!("redis-server 127.0.0.1:{port}")
}

/// A Redis that runs in this home, and its port.
fn find(home: &Home) -> Option<(Process, u16)> {
    let (pid, port) = (home.read("redis.pid")?.parse().ok()?, last_port(home)?);
    let marks = vec![mark(port), home.path.join("redis.conf").display().to_string()];
    Some((Process::find(pid, marks, Signal::Term)?, port))
}
