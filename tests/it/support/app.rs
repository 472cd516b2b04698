//! One instance, its demo merchant, and a clock that the story moves by hand.

use std::time::{Duration, Instant};

use payonce::audit;
use payonce::channels::sandbox::{FaultKind, FaultOp, Gateway, NewFault, signature};
use payonce::config::{Config, Env, Strictness};
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::local::RedisServer;
use payonce::merchants;
use payonce::run::{self, Instance, Roles};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::reply::Reply;
use super::stores;

/// Keys of the demo merchant as any merchant has them: the well-known ones are for `payonce dev` alone.
pub const SECRET_KEY: &str = "sk_0000000000000000000000000000000000000000000000000000";
pub const PUBLISHABLE_KEY: &str = "pk_0000000000000000000000000000000000000000000000000000";
pub const OPERATOR: &str = "dev-admin-token";
pub const SANDBOX_SECRET: &str = "a-sandbox-secret-for-stories";

/// How an instance is started.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// Whether the duties run by themselves; otherwise the story drives them.
    pub workers: bool,
    /// The database to use; a fresh one by default.
    pub database_url: Option<String>,
    /// The Redis to use; a fresh one by default.
    pub redis_url: Option<String>,
    /// The clock to go by.
    pub clock: Clock,
    /// More variables.
    pub vars: Vec<(&'static str, String)>,
}

impl TestOptions {
    /// Of another instance over the stores of this one.
    pub fn over(app: &TestApp) -> Self {
        Self {
            database_url: Some(app.database_url.clone()),
            redis_url: Some(app.redis_url.clone()),
            ..Self::default()
        }
    }

    /// Waits for a statement no longer than a second: for what must not come to its end. The rest of such a story is another
    /// instance's, which takes its time.
    pub fn in_haste(mut self) -> Self {
        self.vars.push(("DATABASE_STATEMENT_MS", "1000".to_owned()));
        self
    }

    /// Waits for Redis no longer than is shipped: for stories in which it hangs.
    pub fn soon_without_redis(mut self) -> Self {
        self.vars.push(("REDIS_ANSWER_MS", "50".to_owned()));
        self
    }
}

impl Default for TestOptions {
    fn default() -> Self {
        Self { workers: false, database_url: None, redis_url: None, clock: Clock::system(), vars: Vec::new() }
    }
}

/// Longer than any answer takes, also in a crowd: what is never answered fails where it was asked. A client may miss that its
/// connection ended in the moment of asking, and would wait for ever (hyperium/hyper#4122).
const NEVER_ANSWERED: Duration = Duration::from_secs(300);

/// How long anything is waited for that comes by itself: longer than it takes on the slowest machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// In a crowd the server closes connections that rest; a call must not meet that moment.
fn http_client() -> reqwest::Client {
    payonce::infra::http_client::builder()
        .pool_idle_timeout(Duration::from_millis(500))
        .timeout(NEVER_ANSWERED)
        .build()
        .expect("a client")
}

/// An instance under test.
pub struct TestApp {
    pub instance: Instance,
    pub gateway: Gateway,
    pub clock: Clock,
    pub url: String,
    pub database_url: String,
    pub redis_url: String,
    /// The story's own Redis; `None` when it is another instance's, or none at all.
    pub redis: Option<RedisServer>,
    /// Whether the database ends with this instance.
    owns_database: bool,
    pub http: reqwest::Client,
}

impl TestApp {
    /// An instance whose duties the story drives by hand.
    pub async fn start() -> Self {
        Self::start_with(TestOptions::default()).await
    }

    /// An instance whose duties run by themselves.
    pub async fn start_working() -> Self {
        Self::start_with(TestOptions { workers: true, ..TestOptions::default() }).await
    }

    pub async fn start_with(options: TestOptions) -> Self {
        let owns_database = options.database_url.is_none();
        let database_url = match options.database_url {
            Some(url) => url,
            None => stores::fresh_database().await,
        };
        let redis = if options.redis_url.is_none() { Some(stores::fresh_redis().await) } else { None };
        let redis_url = options.redis_url.or(redis.as_ref().map(RedisServer::url)).expect("one of both");

        let mut env = Env::of(
            Strictness::Dev,
            [
                ("DATABASE_URL", database_url.clone()),
                ("REDIS_URL", redis_url.clone()),
                ("BIND_ADDR", "127.0.0.1:0".to_owned()),
                ("SANDBOX_SECRET", SANDBOX_SECRET.to_owned()),
                ("CHANNEL_DEADLINE_MS", "1000".to_owned()),
                // On a busy machine it may be slow, which is not what most stories are about.
                ("REDIS_ANSWER_MS", "1000".to_owned()),
                // Stories begin it by hand.
                ("RECON_AT", "off".to_owned()),
                ("DATABASE_POOL_SIZE", "16".to_owned()),
                // With 1 no two commands share a batch: the stories hold over both forms.
                (
                    "DATABASE_BATCH_MAX",
                    std::env::var("PAYONCE_BATCH_MAX").unwrap_or_else(|_| "128".to_owned()),
                ),
            ],
        );
        for (name, value) in options.vars {
            env.set(name, value);
        }
        let config = Config::read(&env).expect("a right configuration");
        let ids = Ids::random(options.clock.clone());
        let roles = Roles { api: true, workers: true, sandbox: true };
        let instance = run::open(config, roles, ids).await.expect("an instance");
        if options.workers {
            instance.begin_duties(roles);
        }
        let demo = "demo".parse().expect("an id");
        merchants::ensure_demo(&instance.app, &demo).await.expect("the demo merchant");
        give_keys(&database_url).await;
        Self {
            gateway: instance.gateway.clone().expect("the role sandbox"),
            url: format!("http://{}", instance.addr),
            clock: options.clock,
            http: http_client(),
            instance,
            database_url,
            redis_url,
            redis,
            owns_database,
        }
    }

    // ---- calls ---------------------------------------------------------------------------------------------

    pub async fn call(&self, method: Method, path: &str, token: &str, body: Option<&Value>) -> Reply {
        let request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        Reply::of(request.send().await.expect("an answer")).await
    }

    /// POST with the demo merchant's secret key.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call(Method::POST, path, SECRET_KEY, Some(&body)).await
    }

    /// GET with the demo merchant's secret key.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, SECRET_KEY, None).await
    }

    /// POST as an operator.
    pub async fn admin_post(&self, path: &str, body: Value) -> Reply {
        self.call(Method::POST, path, OPERATOR, Some(&body)).await
    }

    /// GET as an operator.
    pub async fn admin_get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, OPERATOR, None).await
    }

    // ---- the main job --------------------------------------------------------------------------------------

    /// Sets the demo merchant's stock of a thing.
    pub async fn stock(&self, sku: &str, stock: i64) {
        let body = json!({"merchant_id": "demo", "sku": sku, "stock": stock});
        self.admin_post("/admin/skus", body).await.expect(200);
    }

    /// What there is of a thing: (stock, lock_stock).
    pub async fn stock_of(&self, sku: &str) -> (i64, i64) {
        let page = self.admin_get("/admin/skus?merchant_id=demo&limit=100").await.expect(200);
        let rows = page.body["data"].as_array().expect("a page").clone();
        let row = rows.into_iter().find(|row| row["sku"] == sku).expect("a known sku");
        (row["stock"].as_i64().expect("stock"), row["lock_stock"].as_i64().expect("lock_stock"))
    }

    /// Makes an order of 1990 CNY without items.
    pub async fn order(&self, order_no: &str) -> Reply {
        self.order_with(json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990}))
            .await
    }

    pub async fn order_with(&self, body: Value) -> Reply {
        self.post("/orders", body).await.expect(201)
    }

    /// Asks for the order's pay URL through the sandbox.
    pub async fn pay_url(&self, order_no: &str) -> Reply {
        self.post("/pay/url", json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"})).await
    }

    /// Makes an order and its pay URL; gives the pay-order id.
    pub async fn order_to_pay(&self, order_no: &str) -> String {
        self.order(order_no).await;
        self.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned()
    }

    pub async fn find_order(&self, order_no: &str) -> Value {
        self.get(&format!("/orders/{order_no}")).await.expect(200).body
    }

    pub async fn status_of(&self, order_no: &str) -> String {
        self.find_order(order_no).await["status"].as_str().expect("a status").to_owned()
    }

    // ---- the channel ---------------------------------------------------------------------------------------

    /// Presses Pay in the sandbox; its webhook is sent by the next `run_until_idle`.
    pub async fn sandbox_pay(&self, pay_order_id: &str, body: Value) -> Reply {
        self.call(Method::POST, &format!("/sandbox/trades/{pay_order_id}/pay"), "", Some(&body)).await
    }

    /// Presses Decline in the sandbox.
    pub async fn sandbox_decline(&self, pay_order_id: &str) -> Reply {
        self.call(Method::POST, &format!("/sandbox/trades/{pay_order_id}/decline"), "", Some(&json!({})))
            .await
    }

    pub async fn sandbox_trade(&self, pay_order_id: &str) -> Value {
        self.call(Method::GET, &format!("/sandbox/trades/{pay_order_id}"), "", None).await.expect(200).body
    }

    /// Makes the sandbox misbehave the next `times` times.
    pub async fn fault(&self, op: FaultOp, fault: FaultKind, times: u32, ms: Option<u32>) {
        let mut body = json!({"op": op, "fault": fault, "times": times});
        if let Some(ms) = ms {
            body["ms"] = json!(ms);
        }
        let _: NewFault = serde_json::from_value(body.clone()).expect("a fault");
        self.call(Method::PUT, "/sandbox/faults", OPERATOR, Some(&body)).await.expect(200);
    }

    /// A success callback as the sandbox would send it.
    pub fn success(&self, event_id: &str, pay_order_id: &str, transaction_id: &str, total_fee: i64) -> Value {
        json!({
            "event_id": event_id, "transaction_id": transaction_id, "out_trade_no": pay_order_id,
            "total_fee": total_fee, "currency": "CNY", "trade_status": "SUCCESS",
            "paid_at": "2026-11-21T10:00:00Z",
        })
    }

    /// Posts a callback with the sandbox's own signature, dated by the story's clock.
    pub async fn webhook(&self, body: &Value) -> Reply {
        let bytes = serde_json::to_vec(body).expect("json");
        self.webhook_bytes(&bytes, &self.sign(&bytes)).await
    }

    pub fn sign(&self, body: &[u8]) -> String {
        let keys = signature::Keys::new(&[SANDBOX_SECRET.into()]).expect("a secret");
        keys.sign(body, self.clock.now())
    }

    pub async fn webhook_bytes(&self, body: &[u8], signature: &str) -> Reply {
        let request = self.http.post(format!("{}/webhooks/sandbox", self.url)).body(body.to_vec());
        let request = request.header(signature::HEADER, signature).header("content-type", "application/json");
        Reply::of(request.send().await.expect("an answer")).await
    }

    // ---- the truth -----------------------------------------------------------------------------------------

    /// How many rows of a table fulfil a condition; `$1` in it is the story's now.
    pub async fn count_where(&self, table: &str, condition: &str) -> i64 {
        let statement =
            format!("SELECT count(*) FROM {table} WHERE {condition} AND $1::timestamptz IS NOT NULL");
        sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
            .bind(self.clock.now())
            .fetch_one(self.instance.app.db.pool())
            .await
            .expect("a count")
    }

    /// How many rows of a table fulfil a condition, and how many transactions wrote them.
    pub async fn written_where(&self, table: &str, condition: &str) -> (i64, i64) {
        let statement = format!("SELECT count(*), count(DISTINCT xmin::text) FROM {table} WHERE {condition}");
        sqlx::query_as(sqlx::AssertSqlSafe(statement))
            .fetch_one(&mut self.direct_connection().await)
            .await
            .expect("counts")
    }

    /// How many rows a table has.
    pub async fn count(&self, table: &str) -> i64 {
        self.count_where(table, "true").await
    }

    /// Every invariant holds, now and after every grace is over.
    pub async fn assert_books_balance(&self) {
        self.relay_until_idle().await;
        self.assert_invariants().await;
    }

    /// The same, and nothing is told to the outside before.
    pub async fn assert_invariants(&self) {
        let report = audit::audit(&self.instance.app.db, self.clock.now()).await.expect("an audit");
        let violated: Vec<_> = report.checks.iter().filter(|check| check.violations > 0).collect();
        assert!(report.ok && violated.is_empty(), "{violated:#?}, {:#?}", report.failed);
    }

    /// The story's end: the invariants, then nothing is left behind.
    pub async fn end(self) {
        self.assert_books_balance().await;
        self.instance.app.db.close().await;
        self.leave_nothing().await;
    }

    /// The same, after which nobody may have waited in a circle.
    pub async fn end_without_deadlocks(self) {
        self.assert_books_balance().await;
        self.instance.app.db.close().await;
        assert_eq!(self.deadlocks().await, 0, "deadlocks, also those that were resolved by trying again");
        self.leave_nothing().await;
    }

    async fn leave_nothing(self) {
        let Self { instance, database_url, redis, owns_database, .. } = self;
        drop(instance);
        if let Some(mut redis) = redis {
            redis.stop().await.ok();
        }
        if owns_database {
            stores::drop_database(&database_url).await;
        }
    }
}

/// The demo merchant's keys, also where another instance has given it them.
async fn give_keys(database_url: &str) {
    let mut conn = PgConnection::connect(database_url).await.expect("a connection");
    let given = sqlx::query(
        "INSERT INTO api_keys (merchant_id, kind, key_hash, hint, created_at)
         SELECT 'demo', kind, sha256(convert_to(key, 'UTF8')), left(key, 7), '2026-01-01'
         FROM (VALUES ('SECRET', $1), ('PUBLISHABLE', $2)) AS known (kind, key)
         ON CONFLICT (key_hash) DO NOTHING",
    );
    given.bind(SECRET_KEY).bind(PUBLISHABLE_KEY).execute(&mut conn).await.expect("keys");
    conn.close().await.ok();
}

/// Returns when so many sessions wait for rows that others hold.
pub async fn until_waiting(app: &TestApp, sessions: i64) {
    // The service's role is not shown what other sessions wait for.
    until_waiting_there(&mut app.direct_connection().await, sessions).await;
}

/// The same of the database that `watcher` is connected to, as its owner.
pub async fn until_waiting_there(watcher: &mut sqlx::PgConnection, sessions: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let since = Instant::now();
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *watcher).await.expect("a count") < sessions {
        assert!(since.elapsed() < PATIENCE, "{sessions} sessions never wait");
    }
}

/// Returns when somebody stands at the gate of a story, with all in hand that they have written.
pub async fn until_at_the_gate(app: &TestApp) {
    let mut watcher = app.direct_connection().await;
    let at_it = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let since = Instant::now();
    while sqlx::query_scalar::<_, i64>(at_it).fetch_one(&mut watcher).await.expect("a count") == 0 {
        assert!(since.elapsed() < PATIENCE, "nobody comes to the gate");
    }
}

/// Asks, and hangs up as soon as something of it is seen; gives that.
pub async fn hang_up_once<T>(seen: impl Future<Output = T>, asking: impl Future) -> T {
    tokio::select! {
        biased;
        seen = seen => seen,
        _ = asking => panic!("it was answered before anybody hung up"),
    }
}

/// A figure of `/metrics`, of the series with all these labels; nothing counted yet is zero. The figures are
/// the process's, so other stories count too: compare before and after, and expect "at least".
pub async fn metric(app: &TestApp, name: &str, labels: &[(&str, &str)]) -> f64 {
    metric_at(&app.http, &app.url, name, labels).await.expect("an answer")
}

/// The same of whichever process answers there.
pub async fn metric_at(
    http: &reqwest::Client,
    url: &str,
    name: &str,
    labels: &[(&str, &str)],
) -> reqwest::Result<f64> {
    let text = http.get(format!("{url}/metrics")).send().await?.text().await?;
    let is_it = |line: &&str| {
        let has = |(label, value): &(&str, &str)| line.contains(&format!("{label}=\"{value}\""));
        line.split(['{', ' ']).next() == Some(name) && labels.iter().all(has)
    };
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    Ok(text.lines().filter(is_it).filter_map(value).sum())
}
