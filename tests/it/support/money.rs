//! What stories about callbacks and stray money ask for.

use std::collections::BTreeMap;

use payonce::channels::sandbox::signature;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::app::{SANDBOX_SECRET, SECRET_KEY, TestApp};
use super::refunding::told_of_refund;
use super::reply::Reply;

/// Payments of the sandbox that are not in our books, not once, or otherwise.
const PAYMENTS: &str = "
    WITH taken AS (
        SELECT payment.transaction_id, payment.transaction_id || ' of ' || payment.pay_order_id AS name,
               (payment.pay_order_id, payment.amount, payment.currency) AS there, payment.refunded_amount,
               (orders.order_no IS NOT NULL)::int + (stray.stray_id IS NOT NULL)::int AS places,
               CASE WHEN stray.stray_id IS NULL THEN (attempt.pay_order_id, orders.amount, orders.currency)
                    ELSE (stray.out_trade_no, stray.amount, stray.currency) END AS here,
               CASE WHEN stray.stray_id IS NULL THEN orders.refunded_amount
                    WHEN stray.status = 'REFUNDED' THEN stray.amount
                    -- On its way, it may be there already.
                    WHEN stray.status = 'REFUNDING' THEN payment.refunded_amount
                    ELSE 0 END
               -- What was made after all stands failed.
               + (SELECT coalesce(sum(amount), 0) FROM refunds
                  WHERE made_after_all_at IS NOT NULL
                    AND (stray_id = stray.stray_id OR pay_order_id = orders.paid_by)) AS gone_back
        FROM sandbox.payments AS payment
        LEFT JOIN pay_orders AS attempt USING (pay_order_id)
        LEFT JOIN orders ON orders.paid_by = attempt.pay_order_id
                        AND attempt.transaction_id = payment.transaction_id
        LEFT JOIN stray_payments AS stray ON stray.transaction_id = payment.transaction_id)
    SELECT 'payment ' || name || ' is in ' || places || ' places' FROM taken
    WHERE places <> 1
       -- The sandbox told of it; what it keeps to itself only its statement tells.
       AND (places > 0 OR EXISTS (SELECT FROM sandbox.deliveries WHERE position(transaction_id IN body) > 0))
    UNION ALL
    SELECT 'payment ' || name || ' is ' || there::text || ' there and ' || here::text || ' here'
    FROM taken WHERE places = 1 AND there::text <> here::text
    UNION ALL
    SELECT 'payment ' || name || ': ' || refunded_amount || ' went back there and ' || gone_back || ' here'
    FROM taken WHERE places = 1 AND refunded_amount <> gone_back";

/// Money in our books that the sandbox did not take.
const TRADES: &str = "
    SELECT 'trade ' || trade.transaction_id || ' is not there' FROM trades AS trade
    LEFT JOIN sandbox.payments AS payment USING (transaction_id)
    WHERE (payment.pay_order_id IS NULL OR payment.pay_order_id <> trade.pay_order_id)
       -- What never came and was charged for is booked back.
       AND NOT EXISTS (SELECT 1 FROM reconciliation_items
                       WHERE action = 'CHARGE' AND status = 'APPLIED' AND subject = trade.transaction_id)";

/// Refunds that only one of both has made, or that differ.
const REFUNDS: &str = "
    SELECT 'refund ' || refund_id || ' is ' || coalesce(theirs.amount || theirs.currency, 'not') || ' there and '
           || coalesce(ours.amount || ours.currency, 'not') || ' here'
    FROM (SELECT * FROM refunds WHERE status = 'SUCCEEDED' OR made_after_all_at IS NOT NULL) AS ours
    FULL JOIN (SELECT * FROM sandbox.refunds WHERE taken_back_at IS NULL) AS theirs USING (refund_id)
    WHERE (ours.amount, ours.currency) IS DISTINCT FROM (theirs.amount, theirs.currency)";

/// Payouts that only one of both has made, or that differ: one that was given back, or came back, is not out.
const PAYOUTS: &str = "
    SELECT 'payout ' || coalesce(withdrawal_id, payout_id) || ' is '
           || coalesce(theirs.amount || theirs.currency, 'not') || ' there and '
           || coalesce(ours.amount || ours.currency, 'not') || ' here'
    -- One that was refused before, and made after all, stands reversed.
    FROM (SELECT * FROM withdrawals WHERE channel_payout_id IS NOT NULL AND returned_at IS NULL) AS ours
    FULL JOIN (SELECT * FROM sandbox.payouts WHERE taken_back_at IS NULL) AS theirs ON payout_id = withdrawal_id
    WHERE (ours.amount, ours.currency, ours.account)
          IS DISTINCT FROM (theirs.amount, theirs.currency, theirs.account)";

impl TestApp {
    // ---- other merchants -----------------------------------------------------------------------------------

    /// An order of 1990 CNY that is paid.
    pub async fn paid(&self, order_no: &str) -> String {
        let pay_order_id = self.order_to_pay(order_no).await;
        self.sandbox_pay(&pay_order_id, json!({})).await.expect(200);
        self.run_until_idle().await;
        assert_eq!(self.status_of(order_no).await, "PAID");
        pay_order_id
    }

    /// Makes a merchant with this policy for stray money; gives its secret key.
    pub async fn merchant(&self, merchant_id: &str, stray_money: &str) -> String {
        let body = json!({"merchant_id": merchant_id, "name": merchant_id, "stray_money": stray_money});
        self.admin_post("/admin/merchants", body).await.expect(201).text_of("secret_key").to_owned()
    }

    /// Makes an order of 1990 CNY of that merchant, and its pay URL; gives the pay-order id.
    pub async fn order_to_pay_as(&self, key: &str, order_no: &str) -> String {
        let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990});
        self.call(Method::POST, "/orders", key, Some(&order)).await.expect(201);
        let body = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
        let link = self.call(Method::POST, "/pay/url", key, Some(&body)).await.expect(200);
        link.text_of("pay_order_id").to_owned()
    }

    pub async fn find_order_as(&self, key: &str, order_no: &str) -> Value {
        self.call(Method::GET, &format!("/orders/{order_no}"), key, None).await.expect(200).body
    }

    /// Makes an order with its link, has it closed by the merchant, and pays it all the same.
    pub async fn late_money(&self, order_no: &str) -> String {
        self.late_money_as(SECRET_KEY, order_no).await
    }

    pub async fn late_money_as(&self, key: &str, order_no: &str) -> String {
        let pay_order = self.order_to_pay_as(key, order_no).await;
        self.call(Method::POST, &format!("/orders/{order_no}/close"), key, Some(&json!({})))
            .await
            .expect(200);
        self.sandbox_pay(&pay_order, json!({"force": true})).await.expect(200);
        pay_order
    }

    // ---- what people see -----------------------------------------------------------------------------------

    /// All exceptions that a filter such as `status=OPEN` leaves, newest first.
    pub async fn exceptions(&self, filter: &str) -> Vec<Value> {
        let page = self.admin_get(&format!("/admin/exceptions?limit=100&{filter}")).await.expect(200);
        page.body["data"].as_array().expect("a page").clone()
    }

    /// The only open exception.
    pub async fn open_exception(&self) -> Value {
        let open = self.exceptions("status=OPEN").await;
        assert_eq!(open.len(), 1, "{open:#?}");
        open.into_iter().next().expect("one")
    }

    /// An operator's decision.
    pub async fn resolve(&self, exception: &Value, action: &str) -> Reply {
        let id = exception["exception_id"].as_str().expect("an id");
        let body = json!({"action": action, "reason": "the story wants it"});
        self.admin_post(&format!("/admin/exceptions/{id}/resolve"), body).await
    }

    /// All stray payments that a filter such as `status=HELD` leaves, newest first.
    pub async fn strays(&self, filter: &str) -> Vec<Value> {
        let page = self.admin_get(&format!("/admin/stray-payments?limit=100&{filter}")).await.expect(200);
        page.body["data"].as_array().expect("a page").clone()
    }

    /// The only stray payment.
    pub async fn stray(&self) -> Value {
        let strays = self.strays("").await;
        assert_eq!(strays.len(), 1, "{strays:#?}");
        strays.into_iter().next().expect("one")
    }

    // ---- callbacks -----------------------------------------------------------------------------------------

    /// What was made of a callback.
    pub async fn verdict_of(&self, event_id: &str) -> Option<String> {
        sqlx::query_scalar("SELECT verdict FROM webhook_inbox WHERE event_id = $1")
            .bind(event_id)
            .fetch_optional(self.instance.app.db.pool())
            .await
            .expect("a verdict")
    }

    /// Posts a callback, which must be taken in as the channel wants to hear it.
    #[track_caller]
    pub fn deliver(&self, body: &Value) -> impl Future<Output = ()> {
        let (body, caller) = (body.clone(), std::panic::Location::caller());
        async move {
            let reply = self.webhook(&body).await;
            assert_eq!((reply.status, reply.text.as_str()), (200, "SUCCESS"), "{body} at {caller}");
        }
    }

    /// A callback of an attempt that came to nothing.
    pub fn ended(&self, event_id: &str, pay_order_id: &str, trade_status: &str) -> Value {
        json!({"event_id": event_id, "out_trade_no": pay_order_id, "trade_status": trade_status})
    }

    /// A callback of a refund.
    pub fn refund_notice(&self, event_id: &str, refund_id: &str, status: &str) -> Value {
        told_of_refund(event_id, (refund_id, "po_x"), 1990, status)
    }

    /// The signature of a body, made so many seconds from the story's now.
    pub fn sign_at(&self, body: &[u8], offset_secs: i64) -> String {
        let keys = signature::Keys::new(&[SANDBOX_SECRET.into()]).expect("a secret");
        keys.sign(body, self.clock.now() + time::Duration::seconds(offset_secs))
    }

    // ---- the truth -----------------------------------------------------------------------------------------

    /// Rows of every table of the service: equal before and after what must leave no trace.
    pub async fn row_counts(&self) -> BTreeMap<String, i64> {
        let pool = self.instance.app.db.pool();
        let tables: Vec<String> =
            sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")
                .fetch_all(pool)
                .await
                .expect("tables");
        let mut counts = BTreeMap::new();
        for table in tables {
            let count = self.count(&table).await;
            counts.insert(table, count);
        }
        counts
    }

    /// Minor units that the sandbox took and gave back, by its own books.
    pub async fn sandbox_books(&self) -> (i64, i64) {
        sqlx::query_as(
            "SELECT coalesce(sum(amount), 0)::bigint, coalesce(sum(refunded_amount), 0)::bigint
             FROM sandbox.payments",
        )
        .fetch_one(self.instance.app.db.pool())
        .await
        .expect("the books")
    }

    /// Every unit that the sandbox took and told of pays an order, went back, or waits for a person, with the amount
    /// and currency that it has there.
    pub async fn assert_books_agree(&self) {
        let mut conn = self.direct_connection().await;
        let differences = texts(&mut conn, PAYMENTS).await;
        assert!(differences.is_empty(), "{differences:#?}");
    }

    /// The sandbox's books and ours agree, also the other way round: nothing is booked here that did not happen there.
    pub async fn assert_books_agree_both_ways(&self) {
        let differences = Self::differences_of_books(&mut self.direct_connection().await).await;
        assert!(differences.is_empty(), "{differences:#?}");
    }

    /// Where the sandbox's books and ours differ, in words.
    pub async fn differences_of_books(conn: &mut PgConnection) -> Vec<String> {
        let mut differences = Vec::new();
        for look in [PAYMENTS, TRADES, REFUNDS, PAYOUTS] {
            differences.extend(texts(conn, look).await);
        }
        differences
    }

    /// How many deadlocks PostgreSQL has met. What a connection knows of that is told at its end at the latest, so those
    /// of the story are gone before.
    pub async fn deadlocks(&self) -> i64 {
        let mut conn = self.direct_connection().await;
        let others = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                                     AND backend_type = 'client backend' AND pid <> pg_backend_pid())";
        for _ in 0..100 {
            if !sqlx::query_scalar::<_, bool>(others).fetch_one(&mut conn).await.expect("a look") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let met = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        sqlx::query_scalar(met).fetch_one(&mut conn).await.expect("a row")
    }

    /// Runs a statement past the service.
    pub async fn sql(&self, statement: &str) {
        let mut conn = self.direct_connection().await;
        conn.execute(AssertSqlSafe(statement.to_owned())).await.expect("a statement");
        conn.close().await.ok();
    }

    /// A connection to the story's database that is none of the service's.
    pub async fn direct_connection(&self) -> PgConnection {
        PgConnection::connect(&self.database_url).await.expect("a connection")
    }

    /// Runs a command on the story's Redis, past the service.
    pub async fn redis_command<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let client = redis::Client::open(self.redis_url.as_str()).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let (name, args) = command.split_first().expect("a command");
        redis::cmd(name).arg(args).query_async(&mut connection).await.expect("an answer")
    }
}

/// Past the service: its plans and deadlines are not made for looking at everything.
async fn texts(conn: &mut PgConnection, statement: &'static str) -> Vec<String> {
    sqlx::query_scalar(statement).fetch_all(conn).await.expect("texts")
}
