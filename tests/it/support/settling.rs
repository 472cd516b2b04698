//! What stories about commissions ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::app::TestApp;
use super::reply::Reply;

impl TestApp {
    /// Sets the demo merchant's share for a thing, or for all others.
    pub async fn rebate_rule(&self, sku: Option<&str>, rate: &str) {
        let body = json!({"merchant_id": "demo", "sku": sku, "rate": rate, "reason": "the story wants it"});
        self.admin_post("/admin/rebate-rules", body).await.expect(200);
    }

    /// Sets the level of a user of the demo merchant.
    pub async fn user_level(&self, user_id: &str, factor: &str) {
        let body = json!({"merchant_id": "demo", "user_id": user_id, "level": "GOLD", "factor": factor});
        self.admin_post("/admin/user-levels", body).await.expect(200);
    }

    /// Makes an order as `body` says, and pays it.
    pub async fn paid_order(&self, order_no: &str, mut body: Value) {
        body["order_no"] = json!(order_no);
        let amount = self.order_with(body).await.body["amount"].as_i64().expect("an amount");
        let pay_order_id = self.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
        let (event, trade) = (format!("e-{order_no}"), format!("t-{order_no}"));
        self.deliver(&self.success(&event, &pay_order_id, &trade, amount)).await;
    }

    /// Makes an order of 1990 CNY without items, and pays it.
    pub async fn plain_paid_order(&self, order_no: &str) {
        self.paid_order(order_no, json!({"user_id": "u1", "currency": "CNY", "amount": 1990})).await;
    }

    pub async fn settle(&self, order_no: &str) -> Reply {
        self.post("/settlements", json!({"order_no": order_no})).await
    }

    /// Begins to settle all that is paid for so many days; gives the run's id.
    pub async fn begin_settling(&self, older_than_days: u32) -> String {
        let body = json!({"older_than_days": older_than_days, "reason": "the story wants it"});
        let begun = self.admin_post("/admin/settlements/run", body).await.expect(200);
        begun.body["run"]["run_id"].as_str().expect("a run").to_owned()
    }

    pub async fn settlement_run(&self, run_id: &str) -> Value {
        self.admin_get(&format!("/admin/settlements/runs/{run_id}")).await.expect(200).body
    }

    pub async fn settlement_of(&self, order_no: &str) -> Value {
        self.get(&format!("/settlements/{order_no}")).await.expect(200).body
    }

    /// What stands on an account, whether it is kept in place or still to be folded.
    pub async fn balance_of(&self, account: &str) -> i64 {
        sqlx::query_scalar(
            "SELECT (coalesce((SELECT balance FROM accounts WHERE account_id = $1), 0)
                     + coalesce((SELECT sum(amount) FROM account_movements WHERE account_id = $1), 0))::bigint",
        )
        .bind(account)
        .fetch_one(self.instance.app.db.pool())
        .await
        .expect("a balance")
    }

    /// Writes `count` orders of 1990 CNY that were paid so many days ago, one by each of so many users, as the service
    /// would have written them.
    pub async fn seed_paid_orders(&self, prefix: &str, count: usize, days_ago: u32, users: usize) {
        let paid_at = format!("now() - interval '{days_ago} days'");
        self.sql(&format!(
            "BEGIN;
             CREATE TEMPORARY TABLE seeded ON COMMIT DROP AS
             SELECT '{prefix}' || g AS order_no, 'po_{prefix}' || g AS pay_order_id, 't{prefix}' || g AS trade,
                    'u' || g % {users} AS user_id, {paid_at} + g * interval '1 ms' AS paid_at
             FROM generate_series(1, {count}) AS g;
             INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at,
                                 attempts, created_at, updated_at, version)
             SELECT 'demo', order_no, user_id, 'PAID', 1990, 'CNY', pay_order_id, paid_at, paid_at, 1, paid_at, paid_at, 2
             FROM seeded;
             INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                     pay_url, transaction_id, paid_at, expires_at, created_at, updated_at, version)
             SELECT pay_order_id, 'demo', order_no, user_id, 'sandbox', 'PAID', 1990, 'CNY', 'https://pay', trade, paid_at,
                    paid_at, paid_at, paid_at, 3
             FROM seeded;
             INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
             SELECT 'sandbox', trade, pay_order_id, paid_at FROM seeded;
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
             SELECT 'demo', order_no, CASE WHEN is_attempt THEN pay_order_id ELSE '' END, seq, before, after, event, paid_at
             FROM seeded, (VALUES (false, 1, NULL, 'PENDING', 'CREATED'),
                                  (false, 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
                                  (true, 1, NULL, 'INIT', 'BEGUN'), (true, 2, 'INIT', 'PAYING', 'LINK_MADE'),
                                  (true, 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED'))
                          AS change (is_attempt, seq, before, after, event);
             INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
             SELECT 'demo', order_no, 'order.paid', 1, '{{}}', paid_at FROM seeded;
             INSERT INTO accounts (account_id, created_at, updated_at)
             VALUES ('CHANNEL:sandbox:CNY', {paid_at}, {paid_at}), ('MERCHANT:demo:CNY', {paid_at}, {paid_at})
             ON CONFLICT DO NOTHING;
             INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
             SELECT 'PAYMENT:' || pay_order_id, 'PAYMENT', 'demo', order_no, paid_at,
                    '{{CHANNEL:sandbox:CNY,MERCHANT:demo:CNY}}', '{{1990,-1990}}'
             FROM seeded;
             COMMIT"
        ))
        .await;
    }
}

/// An endpoint of rates: 10 % of every line by a factor of 2, after so many milliseconds; or whatever it is told. About too
/// many at once it gives up.
pub struct RatesServer {
    pub url: String,
    inside: Arc<Inside>,
    serving: JoinHandle<()>,
}

struct Inside {
    delay_ms: AtomicU64,
    most: AtomicUsize,
    calls: AtomicUsize,
    answer: std::sync::Mutex<Option<(u16, String)>>,
}

impl Default for Inside {
    fn default() -> Self {
        Self {
            delay_ms: AtomicU64::default(),
            most: AtomicUsize::new(usize::MAX),
            calls: AtomicUsize::default(),
            answer: std::sync::Mutex::default(),
        }
    }
}

impl RatesServer {
    pub async fn start() -> Self {
        let inside = Arc::<Inside>::default();
        let router = axum::Router::new().route("/rates", post(Self::answer)).with_state(inside.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/rates", listener.local_addr().expect("an address"));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { url, inside, serving }
    }

    async fn answer(
        State(inside): State<Arc<Inside>>,
        axum::Json(asked): axum::Json<Value>,
    ) -> (axum::http::StatusCode, String) {
        inside.calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(inside.delay_ms.load(Ordering::SeqCst))).await;
        if let Some((status, answer)) = inside.answer.lock().expect("no panic").clone() {
            return (status.try_into().expect("a status"), answer);
        }
        let orders = asked["orders"].as_array().expect("orders");
        // It falls over some others, whatever is asked beside them.
        let is_too_much = orders.len() > inside.most.load(Ordering::SeqCst);
        if is_too_much || orders.iter().any(|order| order["user_id"] == "fatal") {
            return (axum::http::StatusCode::INTERNAL_SERVER_ERROR, String::new());
        }
        let orders = orders.iter().map(|order| {
            let lines = order["lines"].as_array().expect("lines").len();
            // It is wrong about some orders, and will stay so.
            let rate = if order["user_id"] == "wrong" { "7" } else { "0.1" };
            json!({"rates": vec![rate; lines], "factor": "2"})
        });
        let answer = json!({"orders": orders.collect::<Vec<_>>()}).to_string();
        (axum::http::StatusCode::OK, answer)
    }

    /// The variables of an instance that asks it.
    pub fn vars(&self) -> Vec<(&'static str, String)> {
        vec![("RATES_URL", self.url.clone()), ("RATES_DEADLINE_MS", "5000".to_owned())]
    }

    /// From now on it takes so long.
    pub fn delay(&self, millis: u64) {
        self.inside.delay_ms.store(millis, Ordering::SeqCst);
    }

    /// From now on it says nothing about more orders at once.
    pub fn most(&self, orders: usize) {
        self.inside.most.store(orders, Ordering::SeqCst);
    }

    /// From now on it says just that; nothing: what is right.
    pub fn says(&self, answer: Option<(u16, &str)>) {
        *self.inside.answer.lock().expect("no panic") =
            answer.map(|(status, text)| (status, text.to_owned()));
    }

    pub fn calls(&self) -> usize {
        self.inside.calls.load(Ordering::SeqCst)
    }
}

impl Drop for RatesServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
