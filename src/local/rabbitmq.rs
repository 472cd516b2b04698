//! A private RabbitMQ: its own node name, ports, data and user, on loopback. Only Erlang's port mapper is the
//! machine's: a node registers its name there and is forgotten when it ends.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::LocalError;
use super::find::Finder;
use super::home::Home;
use super::packages;
use super::process::{Lifetime, LogMark, Process, Signal, Spec, free_port};

/// Erlang takes its time on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
const USER: &str = "payonce";

/// A RabbitMQ of our own. Stops when dropped; prefer [`stop`](Self::stop), which does not block a thread.
#[derive(Debug)]
pub struct RabbitServer {
    home: Home,
    port: u16,
    password: String,
    config: Vec<String>,
    process: Process,
}

impl RabbitServer {
    /// Starts a RabbitMQ that keeps its files in `dir`, which belongs to it alone.
    ///
    /// # Errors
    ///
    /// When RabbitMQ is missing and cannot be installed, or does not answer.
    pub async fn start(dir: &Path) -> Result<Self, LocalError> {
        Self::start_with(dir, &[]).await
    }

    /// [`start`](Self::start), with more lines of `rabbitmq.conf`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(dir: &Path, config: &[String]) -> Result<Self, LocalError> {
        program().await?;
        let home = Home::prepare(dir).await?;
        let (password, port) = (home.password()?, free_port(None)?);
        let process = run(&home, port, &password, config).await?;
        Ok(Self { home, port, password, config: config.to_vec(), process })
    }

    /// The value for `AMQP_URL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://{USER}:{}@127.0.0.1:{}/%2f", self.password, self.port)
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

    /// Stops the server; what is durable stays.
    ///
    /// # Errors
    ///
    /// When no signal can be sent.
    pub async fn stop(&mut self) -> Result<(), LocalError> {
        self.process.stop().await
    }

    /// Starts the server again with its port, password and durable queues, stopping it first if it runs.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn restart(&mut self) -> Result<(), LocalError> {
        self.stop().await?;
        self.process = run(&self.home, self.port, &self.password, &self.config).await?;
        Ok(())
    }
}

/// Starts the server and waits until it takes connections.
async fn run(home: &Home, port: u16, password: &str, config: &[String]) -> Result<Process, LocalError> {
    let more = config.join("\n");
    let conf = format!("default_user = {USER}\ndefault_pass = {password}\n{more}\n");
    home.write_secret("rabbitmq.conf", &conf)?;
    home.write_secret("enabled_plugins", "[].\n")?;
    let start = home.write_secret("start.sh", &start_script(home, port, &program().await?)?)?;
    let log = home.path.join("rabbitmq.log");
    let log_mark = LogMark::new(&log);
    let shell = PathBuf::from("/bin/sh");
    let args = vec![start.display().to_string()];
    let spec =
        Spec { program: &shell, args, home, log: &log, lifetime: Lifetime::WithUs, stop: Signal::Term };
    let mut process = Process::spawn(spec).await?;

    let started = Instant::now();
    while started.elapsed() < READY_WITHIN {
        if !process.is_alive() {
            return Err(log_mark.error("RabbitMQ", "it ended at once"));
        }
        // It listens only when it is ready to be used.
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(process);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    process.end(Signal::Kill).await?;
    Err(log_mark.error("RabbitMQ", format!("it did not listen within {} s", READY_WITHIN.as_secs())))
}

/// Erlang becomes the process that was started, so that it gets our signals: RabbitMQ's own script does that
/// where input is allowed, and stays between us otherwise.
fn start_script(home: &Home, port: u16, program: &Path) -> Result<String, LocalError> {
    let (dir, program, dist_port) = (home.path.display(), program.display(), free_port(None)?);
    Ok(format!(
        r#"export HOME="{dir}" ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_NODENAME=payonce_{port}@localhost
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT={port} RABBITMQ_DIST_PORT={dist_port}
export RABBITMQ_MNESIA_BASE="{dir}/mnesia" RABBITMQ_LOG_BASE="{dir}/log" RABBITMQ_LOGS=-
export RABBITMQ_PID_FILE="{dir}/rabbitmq.pid" RABBITMQ_GENERATED_CONFIG_DIR="{dir}/generated"
export RABBITMQ_CONFIG_FILE="{dir}/rabbitmq" RABBITMQ_ENABLED_PLUGINS_FILE="{dir}/enabled_plugins"
export RABBITMQ_CONF_ENV_FILE="{dir}/none" RABBITMQ_ADVANCED_CONFIG_FILE="{dir}/advanced.config"
export ERL_FLAGS='-kernel inet_dist_use_interface {{127,0,0,1}}'
export RABBITMQ_ALLOW_INPUT=true RABBITMQ_SERVER_START_ARGS=-noinput
exec "{program}"
"#
    ))
}

/// Debian's `rabbitmq-server` in PATH changes the user; the script behind it does not.
async fn program() -> Result<PathBuf, LocalError> {
    let find = || Finder::of_machine().rabbitmq();
    packages::ensure("rabbitmq-server", &["rabbitmq-server"], find).await
}
