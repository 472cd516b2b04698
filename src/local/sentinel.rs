//! A private Redis Sentinel: `redis-server --sentinel`, on a loopback port of its own.

use std::path::{Path, PathBuf};

use super::error::LocalError;
use super::home::Home;
use super::process::{Lifetime, LogMark, Process, Signal, Spec, free_port};
use super::redis;

/// A sentinel of our own, which watches one master. Stops when dropped.
#[derive(Debug)]
pub struct SentinelServer {
    port: u16,
    process: Process,
}

impl SentinelServer {
    /// Starts a sentinel that keeps its files in `dir` and watches the master on this port with this password under that
    /// name, with more lines of `sentinel.conf`. So many sentinels must agree that the master is down, which they say after
    /// half a second.
    ///
    /// # Errors
    ///
    /// When Redis is missing, or the sentinel does not answer.
    pub async fn start(
        dir: &Path,
        name: &str,
        master: (u16, &str),
        agreeing: usize,
        config: &[String],
    ) -> Result<Self, LocalError> {
        let program: PathBuf = redis::program().await?;
        let (home, port) = (Home::prepare(dir).await?, free_port(None)?);
        let conf = home.write_secret("sentinel.conf", &conf(&home, port, name, master, agreeing, config))?;
        let log = home.path.join("sentinel.log");
        let log_mark = LogMark::new(&log);
        let args = vec![conf.display().to_string(), "--sentinel".to_owned()];
        let (home, stop) = (&home, Signal::Term);
        let spec = Spec { program: &program, args, home, log: &log, lifetime: Lifetime::WithUs, stop };
        let mut process = Process::spawn(spec).await?;
        redis::until_it_answers(&mut process, &format!("redis://127.0.0.1:{port}/"), &log_mark).await?;
        Ok(Self { port, process })
    }

    /// `127.0.0.1:port`, a host of `redis+sentinel://…`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops the sentinel.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn stop(&mut self) -> Result<(), LocalError> {
        self.process.stop().await
    }
}

fn conf(
    home: &Home,
    port: u16,
    name: &str,
    (master_port, password): (u16, &str),
    agreeing: usize,
    more: &[String],
) -> String {
    let dir = home.path.display();
    format!(
        "bind 127.0.0.1\nport {port}\ndaemonize no\ndir \"{dir}\"\nlogfile \"\"\n\
         sentinel monitor {name} 127.0.0.1 {master_port} {agreeing}\n\
         sentinel auth-pass {name} {password}\n\
         sentinel down-after-milliseconds {name} 500\n\
         sentinel failover-timeout {name} 3000\n{}\n",
        more.join("\n")
    )
}
