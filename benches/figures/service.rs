//! The service under test: the release binary as a process of its own, and what it uses of the machine.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use super::{Failure, load};

/// Longest wait for a start.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Variables of the caller that the service gets too; the rest are the defaults of `.env.example`.
const PASSED_ON: [&str; 5] =
    ["PATH", "HOME", "DATABASE_BATCH_MAX", "DATABASE_POOL_SIZE", "TOKIO_WORKER_THREADS"];

/// The secret that webhooks are signed with.
pub const SANDBOX_SECRET: &str = "bench-sandbox-secret-0123456789";

/// The operator's token.
pub const ADMIN_TOKEN: &str = "bench-admin-token-0123456789";

/// How the binary is run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The value for `DATABASE_URL`.
    pub database_url: String,
    /// The value for `REDIS_URL`.
    pub redis_url: String,
    /// Where its log goes.
    pub log: PathBuf,
}

impl Program {
    /// A command of the binary, configured as in production.
    pub fn command(&self, args: &[&str]) -> Result<Command, Failure> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command
            .args(args)
            .env_clear()
            .envs(std::env::vars().filter(|(name, _)| PASSED_ON.contains(&name.as_str())))
            .env("DATABASE_URL", &self.database_url)
            .env("REDIS_URL", &self.redis_url)
            .env("ADMIN_TOKENS", format!("operator:{ADMIN_TOKEN}"))
            .env("ENCRYPTION_KEY", "bench-encryption-key-0123456789")
            .env("SANDBOX_SECRET", SANDBOX_SECRET)
            .env("NOTIFY_ALLOW_NETS", "127.0.0.0/8")
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs a command to its end; gives what it printed.
    pub async fn run(&self, args: &[&str]) -> Result<String, Failure> {
        let output = self.command(args)?.output().await?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        Err(format!("payonce {}: {}\n{printed}", args.join(" "), output.status).into())
    }

    /// Starts the service and waits until it is ready; also says how long that took.
    pub async fn start(&self) -> Result<(Service, Duration), Failure> {
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = self.command(&["serve", "--roles", "api,workers,sandbox"])?;
        let started = Instant::now();
        let child = command.env("BIND_ADDR", addr.to_string()).stdout(Stdio::null()).spawn()?;
        let pid = child.id().ok_or("the service ended at once")?;
        let service = Service { addr, pid, child };
        let ready = load::get("/readyz");
        while started.elapsed() < READY_WITHIN {
            if matches!(load::call(addr, &ready).await, Ok(200)) {
                return Ok((service, started.elapsed()));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err(format!("the service was not ready in time; see {}", self.log.display()).into())
    }
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its process.
    pub pid: u32,
    child: Child,
}

impl Service {
    /// A line of its `/proc/…/status` in MiB, such as `VmRSS`.
    pub fn memory_mib(&self, name: &str) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        Ok(kib.ok_or("a short /proc/…/status")? / 1024.0)
    }

    /// Stops it and waits for its end.
    pub async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").args(["-TERM", &self.pid.to_string()]).status().await?;
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the service ended with {status}").into()) }
    }
}
