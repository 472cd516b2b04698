//! The service as a process of its own, which dies at a crash point or as by `kill -9`. Its stores, its channel and
//! whoever looks on live in the test's process, and outlive it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use payonce::channels::sandbox::signature;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::app::{SANDBOX_SECRET, SECRET_KEY, TestApp, TestOptions};
use super::reply::Reply;
use super::unfinished;
use super::usage::Usage;

/// What is left in the middle must have come to an end so soon after a restart.
pub const LIMIT: Duration = Duration::from_secs(30);
/// The operator of the processes.
pub const OPERATOR_OF_PROCESS: &str = "an-operator-token-of-30-bytes!";
const SECRET: &str = "a-secret-of-more-than-24-bytes";
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Schedules that make a crash pass quickly; `PAYONCE_FULL=1` keeps the ones that are shipped.
const QUICK: [(&str, &str); 5] = [
    ("CHANNEL_DEADLINE_MS", "800"),
    ("LOCK_TTL_MS", "500"),
    ("TASK_LEASE_MS", "2500"),
    ("ORDER_POLL_MS", "50"),
    ("ORDER_SWEEP_MS", "200"),
];

/// Whether the long form of a story is wanted.
pub(crate) use super::fuzz::is_full;

/// The process is dead, so there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Stores, a channel, and an address at which one process after another serves them.
pub struct Shop {
    /// The channel, and the eyes of the story. Does nothing by itself.
    pub app: TestApp,
    address: Ipv4Addr,
    deliveries: JoinHandle<()>,
    /// What its processes are told besides.
    vars: Vec<(&'static str, String)>,
}

impl Shop {
    pub async fn open() -> Self {
        Self::open_with(Vec::new()).await
    }

    pub async fn open_with(vars: Vec<(&'static str, String)>) -> Self {
        Self::over(TestOptions::default(), vars).await
    }

    /// Over stores of the story's own.
    pub async fn over(options: TestOptions, vars: Vec<(&'static str, String)>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // What it seals is read by the processes, and the other way about.
        let mut options = options;
        options.vars.push(("ENCRYPTION_KEY", SECRET.to_owned()));
        let app = TestApp::start_with(options).await;
        app.stock("TEA", 1_000_000).await;
        // All of 127/8 is this machine: an address of one's own needs no free port, before and after a restart.
        let [.., a, b] = std::process::id().to_be_bytes();
        let count = u8::try_from(COUNT.fetch_add(1, Ordering::Relaxed) % 250).expect("small");
        let address = Ipv4Addr::new(127, a, b, count + 2);
        let gateway = app.gateway.clone();
        let deliveries = tokio::spawn(async move {
            loop {
                let sent = gateway.deliver_due().await;
                if !matches!(sent, Ok(1..)) {
                    sleep(LOOK_EVERY).await;
                }
            }
        });
        Self { app, address, deliveries, vars }
    }

    /// What its processes are told of that name.
    pub fn var(&self, name: &str) -> &str {
        let known = self.vars.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.as_str()).expect("a variable of this shop")
    }

    /// Starts the service; with a crash point, it will die there. Gives it when it answers or is dead already.
    pub async fn serve(&self, failpoints: &str) -> Service {
        let mut command = self.command("");
        command.env("FAILPOINTS", failpoints);
        self.start(command).await
    }

    /// The service as a command, to which a story may add, with what a shell does in its process before.
    pub fn command(&self, before: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        let line = format!("{before}\nexec \"$0\" serve --no-migrate");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_payonce")]).env_clear().kill_on_drop(true);
        command.current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null()).stdout(Stdio::null());
        let url = format!("http://{}:8080", self.address);
        command.envs([
            ("DATABASE_URL", self.app.database_url.as_str()),
            ("REDIS_URL", &self.app.redis_url),
            ("SANDBOX_URL", &self.app.url),
            ("SANDBOX_SECRET", SANDBOX_SECRET),
            ("ADMIN_TOKENS", &format!("operator:{OPERATOR_OF_PROCESS}")),
            ("ENCRYPTION_KEY", SECRET),
            ("BIND_ADDR", &format!("{}:8080", self.address)),
            ("PUBLIC_URL", &url),
            ("DATABASE_POOL_SIZE", "8"),
            ("NOTIFY_ALLOW_NETS", "127.0.0.0/8"),
            ("RECON_AT", "off"),
            ("RECON_AUTO", "all"),
            ("RECON_DAILY_CAP", "CNY:1000000000"),
            ("RUST_LOG", "error"),
        ]);
        if !is_full() {
            command.envs(QUICK);
        }
        command.envs(self.vars.iter().cloned());
        command
    }

    /// Starts what [`Self::command`] made. Gives it when it answers or is dead already.
    pub async fn start(&self, command: Command) -> Service {
        self.start_at(command, 8080).await
    }

    /// Where a process at that port is reached.
    pub fn address_at(&self, port: u16) -> SocketAddr {
        (self.address, port).into()
    }

    /// The same at another port: several processes serve one shop.
    pub async fn start_at(&self, mut command: Command, port: u16) -> Service {
        let addr = self.address_at(port);
        let url = format!("http://{addr}");
        command.env("BIND_ADDR", addr.to_string()).env("PUBLIC_URL", &url);
        let process = command.spawn().expect("a process");
        let service = Service { process: Mutex::new(process), addr, url, http: self.app.http.clone() };
        let started = Instant::now();
        while !service.is_dead() {
            let asked = service.http.get(format!("{}/readyz", service.url)).timeout(LIMIT).send().await;
            let last = match asked {
                Ok(answer) if answer.status() == 200 => break,
                Ok(answer) => Reply::of(answer).await.text,
                Err(error) => format!("{error:?}"),
            };
            assert!(started.elapsed() < LIMIT, "the service does not get ready: {last}");
            sleep(Duration::from_millis(10)).await;
        }
        service
    }

    /// Everything that is in the middle, in words; nothing when all has come to an end.
    pub async fn unfinished(&self) -> Vec<String> {
        let app = &self.app;
        let mut conn = app.instance.app.db.pool().acquire().await.expect("a connection");
        unfinished::all(&mut conn, app.clock.now()).await
    }

    /// Waits until nothing is in the middle; gives how long that took.
    pub async fn settle(&self, why: &str) -> Duration {
        self.settle_within(LIMIT, why).await
    }

    pub async fn settle_within(&self, limit: Duration, why: &str) -> Duration {
        let since = Instant::now();
        loop {
            let unfinished = self.unfinished().await;
            if unfinished.is_empty() {
                return since.elapsed();
            }
            assert!(since.elapsed() < limit, "{why}: still in the middle: {unfinished:#?}");
            sleep(LOOK_EVERY).await;
        }
    }

    pub async fn end(self) {
        self.deliveries.abort();
        self.app.assert_books_agree_both_ways().await;
        self.app.end().await;
    }
}

/// The service, until it dies.
pub struct Service {
    process: Mutex<Child>,
    pub addr: SocketAddr,
    pub url: String,
    pub http: reqwest::Client,
}

impl Service {
    fn status(&self) -> Option<ExitStatus> {
        self.process.lock().expect("no panic").try_wait().expect("a process")
    }

    /// The number of its process while it lives.
    pub fn id(&self) -> u32 {
        self.process.lock().expect("no panic").id().expect("alive")
    }

    /// What the kernel tells of it while it lives.
    pub fn usage(&self) -> Usage {
        Usage::of(self.id())
    }

    pub fn is_dead(&self) -> bool {
        self.status().is_some()
    }

    /// It dies at a crash point, within ten seconds from now.
    pub async fn assert_dies_at_its_point(&self, which: &str) {
        const ABORTED: i32 = 6;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(10) {
            if let Some(status) = self.status() {
                assert_eq!(status.signal(), Some(ABORTED), "{which}: it died otherwise, {status}");
                return;
            }
            sleep(LOOK_EVERY).await;
        }
        panic!("{which}: it never came there, and lives");
    }

    /// `kill -9`.
    pub async fn kill(self) {
        let mut process = self.process.into_inner().expect("no panic");
        process.kill().await.expect("killed");
    }

    /// `kill -9` in the middle of whatever it is asked.
    pub fn strike(&self) {
        self.process.lock().expect("no panic").start_kill().expect("alive");
    }

    /// Sends a request until it is answered, or nobody is there any more.
    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, Gone> {
        loop {
            match request().send().await {
                Ok(response) => return Ok(response),
                Err(_) if self.is_dead() => return Err(Gone),
                // It may be dying; whatever is asked here may be asked again.
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Asks once.
    pub async fn ask_once(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Gone> {
        let request = || {
            let request = self.http.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(token);
            body.into_iter().fold(request, RequestBuilder::json)
        };
        Ok(Reply::of(self.send(request).await?).await)
    }

    /// POST with the demo merchant's secret key, under an idempotency key, until an answer is kept.
    pub async fn post_keyed(&self, path: &str, key: &str, body: &Value) -> Result<Reply, Gone> {
        let request = || {
            let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(SECRET_KEY).json(body);
            request.header("idempotency-key", key)
        };
        loop {
            let response = self.send(request).await?;
            if !matches!(response.status().as_u16(), 409 | 503) {
                return Ok(Reply::of(response).await);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Asks, and asks again while the answer is to come back later.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Gone> {
        let since = Instant::now();
        loop {
            let reply = self.ask_once(method.clone(), path, token, body).await?;
            let is_later = reply.status == 503 || reply.body["code"] == "LOCK_BUSY";
            if !is_later {
                return Ok(reply);
            }
            assert!(since.elapsed() < LIMIT, "{path}: {}", reply.text);
            sleep(2 * LOOK_EVERY).await;
        }
    }

    /// POST of bytes as they are.
    pub async fn post_bytes(&self, path: &str, token: &str, bytes: &[u8]) -> Result<Reply, Gone> {
        let request =
            || self.http.post(format!("{}{path}", self.url)).bearer_auth(token).body(bytes.to_vec());
        Ok(Reply::of(self.send(request).await?).await)
    }

    /// POST with the demo merchant's secret key.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Reply, Gone> {
        self.ask(Method::POST, path, SECRET_KEY, Some(body)).await
    }

    /// Posts a callback; nothing comes of one that nobody answers.
    pub async fn webhook(&self, body: Vec<u8>, signature: &str) -> Result<Reply, Gone> {
        let request = self.http.post(format!("{}/webhooks/sandbox", self.url)).body(body);
        let answer = request.header(signature::HEADER, signature).send().await.map_err(|_| Gone)?;
        Ok(Reply::of(answer).await)
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Result<(), Gone> {
        let since = Instant::now();
        loop {
            if self.is_dead() {
                return Err(Gone);
            }
            if is_so().await {
                return Ok(());
            }
            assert!(since.elapsed() < LIMIT, "never came true: {what}");
            sleep(LOOK_EVERY).await;
        }
    }
}
