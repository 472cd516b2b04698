//! What stands in the tables before a scene begins, written by set-based SQL as the service itself would have
//! written it: `payonce audit` at the end finds no fault with it.

use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;

use super::Failure;

mod lived;

pub use lived::lived;

/// The merchant of the bench.
pub const MERCHANT: &str = "bench";
/// Things on sale, named S1, S2 …
pub const SKUS: i32 = 10_000;
/// What every order costs.
pub const AMOUNT: i64 = 1990;
/// Orders are due so long after they were made: long after the last scene of a run of two hours.
pub const LIFE: time::Duration = time::Duration::hours(12);

/// Orders to be made ahead.
#[derive(Clone, Debug)]
pub struct Orders<'a> {
    /// Order numbers are this and a number from 1.
    pub prefix: &'a str,
    /// How many.
    pub count: i32,
    /// When they are due.
    pub expires_at: OffsetDateTime,
    /// Over how many things they are spread, one item each; 0 for orders without items.
    pub skus: i32,
    /// Whether each has an attempt that waits for money.
    pub with_attempt: bool,
}

/// The number of a seeded order.
pub fn order_no(prefix: &str, number: i32) -> String {
    format!("{prefix}{number}")
}

/// The id of the attempt of a seeded order: as long as a real one.
pub fn pay_order_id(prefix: &str, number: i32) -> String {
    format!("po_{:0>26}", order_no(prefix, number))
}

const STOCK: &str = "INSERT INTO skus (merchant_id, sku, stock, created_at, updated_at)
    SELECT $1, 'S' || g, 1000000000, now(), now() FROM generate_series(1, $2) AS g";

const ORDERS: [&str; 2] = [
    "INSERT INTO orders (merchant_id, order_no, user_id, amount, currency, expires_at, attempts, created_at, updated_at)
     SELECT $1, $2 || g, 'u' || g % 100000, $6, 'CNY', $4, $7, now(), now() FROM generate_series(1, $3) AS g
     WHERE $5 >= 0",
    "INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
     SELECT $1, $2 || g, 1, 'PENDING', 'CREATED', now() FROM generate_series(1, $3) AS g
     WHERE $4::timestamptz IS NOT NULL AND $5 + $6 + $7 >= 0",
];

const ITEMS: [&str; 3] = [
    "INSERT INTO order_items (merchant_id, order_no, line_no, sku, quantity, unit_price)
     SELECT $1, $2 || g, 1, 'S' || 1 + (g * 31) % $5, 1, $6 FROM generate_series(1, $3) AS g
     WHERE $4::timestamptz IS NOT NULL AND $7 >= 0",
    "INSERT INTO stock_reservations (merchant_id, order_no, line_no, sku, quantity, created_at, updated_at)
     SELECT $1, $2 || g, 1, 'S' || 1 + (g * 31) % $5, 1, now(), now() FROM generate_series(1, $3) AS g
     WHERE $4::timestamptz IS NOT NULL AND $6 + $7 >= 0",
    "UPDATE skus SET lock_stock = lock_stock + held.quantity
     FROM (SELECT 'S' || 1 + (g * 31) % $5 AS sku, count(*) AS quantity
           FROM generate_series(1, $3) AS g GROUP BY 1) AS held
     WHERE merchant_id = $1 AND skus.sku = held.sku
       AND $2 <> '' AND $4::timestamptz IS NOT NULL AND $6 + $7 >= 0",
];

const ATTEMPTS: [&str; 2] = [
    "INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                             pay_url, expires_at, created_at, updated_at, version)
     SELECT 'po_' || lpad($2 || g, 26, '0'), $1, $2 || g, 'u' || g % 100000, 'sandbox', 'PAYING', $6, 'CNY',
            'http://127.0.0.1:8080/sandbox/cashier/po_' || lpad($2 || g, 26, '0'), $4, now(), now(), 2
     FROM generate_series(1, $3) AS g WHERE $5 + $7 >= 0",
    "INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
     SELECT $1, $2 || g, 'po_' || lpad($2 || g, 26, '0'), step.seq, step.before, step.after, step.event, now()
     FROM generate_series(1, $3) AS g,
          (VALUES (1, NULL, 'INIT', 'BEGUN'), (2, 'INIT', 'PAYING', 'LINK_MADE')) AS step (seq, before, after, event)
     WHERE $4::timestamptz IS NOT NULL AND $5 + $6 + $7 >= 0",
];

// Statements with the same parameters: merchant, prefix, count, amount, an instant. See [`fill`].

/// What is earned by sales.
const RULE: &str = "INSERT INTO rebate_rules (merchant_id, rate, created_at, updated_at)
     SELECT $1, 0.1, $5::timestamptz, $5 WHERE $2 <> '' AND $3::integer + $4::bigint > 0 ON CONFLICT DO NOTHING";

/// Paid orders, without their bookings.
const PAID: [&str; 4] = [
    "INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at, attempts,
                         created_at, updated_at, version)
     SELECT $1, $2 || g, 'u' || g % 100000, 'PAID', $4, 'CNY', 'po_' || lpad($2 || g, 26, '0'),
            $5 + g * interval '1 us', $5, 1, $5, $5, 2
     FROM generate_series(1, $3) AS g",
    "INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                             pay_url, transaction_id, paid_at, expires_at, created_at, updated_at, version)
     SELECT 'po_' || lpad($2 || g, 26, '0'), $1, $2 || g, 'u' || g % 100000, 'sandbox', 'PAID', $4, 'CNY',
            'https://pay', 'txn_' || $2 || g, $5, $5, $5, $5, 3
     FROM generate_series(1, $3) AS g",
    "INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
     SELECT $1, $2 || g, CASE WHEN is_attempt THEN 'po_' || lpad($2 || g, 26, '0') ELSE '' END, seq, before, after,
            event, $5
     FROM generate_series(1, $3) AS g,
          (VALUES (false, 1, NULL, 'PENDING', 'CREATED'), (false, 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
                  (true, 1, NULL, 'INIT', 'BEGUN'), (true, 2, 'INIT', 'PAYING', 'LINK_MADE'),
                  (true, 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED')) AS step (is_attempt, seq, before, after, event)
     WHERE $4::bigint > 0",
    "INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
     SELECT 'sandbox', 'txn_' || $2 || g, 'po_' || lpad($2 || g, 26, '0'), $5
     FROM generate_series(1, $3) AS g WHERE $1 <> '' AND $4::bigint > 0",
];

/// The bookings of sales.
const SALES: [&str; 2] = [
    "INSERT INTO accounts (account_id, created_at, updated_at)
     SELECT account_id, $5, $5
     FROM (VALUES ('CHANNEL:sandbox:CNY'), ('MERCHANT:' || $1 || ':CNY')) AS account (account_id)
     WHERE $2 <> '' AND $3::integer + $4::bigint > 0 ON CONFLICT DO NOTHING",
    "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
     SELECT 'PAYMENT:po_' || lpad($2 || g, 26, '0'), 'PAYMENT', $1, $2 || g, $5,
            ARRAY['CHANNEL:sandbox:CNY', 'MERCHANT:' || $1 || ':CNY'], ARRAY[$4::bigint, -$4::bigint]
     FROM generate_series(1, $3) AS g",
];

/// What was told of paid orders long ago. The last statement of its transaction: until the end of it the trigger that has
/// events told is off, and so is every other one.
const TOLD: &str = "WITH quiet AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true))
     INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
     SELECT $1, $2 || g, 'order.paid', 1, '{}', $5 FROM quiet, generate_series(1, $3) AS g WHERE $4::bigint > 0";

/// Orders without items that were paid at that instant, of which a tenth is earned.
pub async fn paid_orders(
    database_url: &str,
    paid_at: OffsetDateTime,
    prefix: &str,
    count: i32,
) -> Result<(), Failure> {
    let statements = [&[RULE][..], &PAID, &SALES, &[TOLD]].concat();
    fill(database_url, &statements, paid_at, (prefix, count, AMOUNT)).await
}

/// What was told and done; the tasks first, because of the trigger.
const DONE: [&str; 2] = [
    "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, due_at, attempts, created_at,
                                updated_at)
     SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || lpad($2 || g, 26, '0'), $1, $2 || g, 'DONE', $5, 1, $5, $5
     FROM generate_series(1, $3) AS g WHERE $4::bigint > 0",
    "WITH quiet AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true)), event AS (
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT $1, $2 || g, 'bench.told', 1, jsonb_build_object('order_no', $2 || g), $5
         FROM quiet, generate_series(1, $3) AS g WHERE $4::bigint > 0
         RETURNING id, merchant_id, order_no, event, payload, created_at
     )
     INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, attempts, due_at, log,
                             created_at, updated_at)
     SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, merchant_id,
            jsonb_build_object('type', event, 'timestamp', created_at, 'data', payload)::text, 'DELIVERED', 1, created_at,
            jsonb_build_array(jsonb_build_object('at', created_at, 'url', 'https://shop', 'status', 204, 'latency_ms', 1)),
            created_at, created_at
     FROM event",
];

/// Events that arrived and tasks that were done, so many of each.
pub async fn done(
    database_url: &str,
    done_at: OffsetDateTime,
    prefix: &str,
    count: i32,
) -> Result<(), Failure> {
    fill(database_url, &DONE, done_at, (prefix, count, AMOUNT)).await
}

/// Empties the tables of deliveries and tasks but for what is not over, because what is deleted row by row stays on the disk.
const FORGET_DONE: &str = "SET LOCAL enable_seqscan = off;
     LOCK TABLE compensations, deliveries IN ACCESS EXCLUSIVE MODE;
     CREATE TEMPORARY TABLE tasks_kept ON COMMIT DROP AS
         SELECT * FROM compensations WHERE status NOT IN ('DONE', 'DEAD');
     INSERT INTO tasks_kept SELECT * FROM compensations WHERE status = 'DEAD';
     CREATE TEMPORARY TABLE deliveries_kept ON COMMIT DROP AS
         SELECT * FROM deliveries WHERE coalesce(status, 'age') = 'PENDING';
     INSERT INTO deliveries_kept SELECT * FROM deliveries WHERE status = 'DEAD';
     TRUNCATE compensations, deliveries;
     INSERT INTO compensations OVERRIDING SYSTEM VALUE SELECT * FROM tasks_kept;
     INSERT INTO deliveries SELECT * FROM deliveries_kept;";

/// Forgets what is told and done, that of [`done`] among it.
pub async fn forget_done(database_url: &str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    let mut tx = connection.begin().await?;
    sqlx::raw_sql(FORGET_DONE).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(connection.close().await?)
}

/// Carries the statements out in one transaction.
async fn fill(
    database_url: &str,
    statements: &[&'static str],
    at: OffsetDateTime,
    (prefix, count, amount): (&str, i32, i64),
) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    let mut tx = connection.begin().await?;
    for statement in statements {
        let statement = sqlx::query(*statement).bind(MERCHANT).bind(prefix).bind(count).bind(amount).bind(at);
        statement.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(connection.close().await?)
}

/// The payments of paid orders in the books of the sandbox: prefix, count, amount, instant of payment, and where the
/// sandbox posts its callbacks.
const SANDBOX_PAYMENTS: [&str; 2] = [
    "INSERT INTO sandbox.trades (pay_order_id, amount, currency, subject, payer_id, notify_url, status, expires_at,
                                 created_at, updated_at)
     SELECT 'po_' || lpad($1 || g, 26, '0'), $3, 'CNY', 'a figure', 'u' || g % 100000, $5, 'PAID', $4, $4, $4
     FROM generate_series(1, $2) AS g",
    "INSERT INTO sandbox.payments (transaction_id, pay_order_id, number, amount, currency, paid_at, created_at, updated_at)
     SELECT 'txn_' || $1 || g, 'po_' || lpad($1 || g, 26, '0'), 1, $3, 'CNY', $4, $4, $4
     FROM generate_series(1, $2) AS g WHERE $5 <> ''",
];

/// Tells the sandbox of the payments of [`paid_orders`].
pub async fn sandbox_payments(
    database_url: &str,
    notify_url: &str,
    paid_at: OffsetDateTime,
    prefix: &str,
    count: i32,
) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    for statement in SANDBOX_PAYMENTS {
        let statement = sqlx::query(statement).bind(prefix).bind(count).bind(AMOUNT).bind(paid_at);
        statement.bind(notify_url).execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

/// What makes top-ups of [`PAID`], and books them.
const WALLETS: [&str; 3] = [
    "UPDATE orders SET kind = 'TOPUP'
     WHERE merchant_id = $1 AND order_no = ANY (ARRAY(SELECT $2 || g FROM generate_series(1, $3) AS g))
       AND $4::bigint > 0 AND $5::timestamptz IS NOT NULL",
    "INSERT INTO accounts (account_id, created_at, updated_at)
     SELECT account_id, $5, $5
     FROM (SELECT 'CHANNEL:sandbox:CNY' AS account_id
           UNION ALL SELECT format('USER_AVAILABLE:%s:u%s:CNY', $1::text, g % 100000) FROM generate_series(1, $3) AS g) AS account
     WHERE $2 <> '' AND $4::bigint > 0 ON CONFLICT DO NOTHING",
    "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
     SELECT 'PAYMENT:po_' || lpad($2 || g, 26, '0'), 'PAYMENT', $1, $2 || g, $5,
            ARRAY['CHANNEL:sandbox:CNY', format('USER_AVAILABLE:%s:u%s:CNY', $1::text, g % 100000)],
            ARRAY[$4::bigint, -$4::bigint]
     FROM generate_series(1, $3) AS g",
];
/// What every wallet has.
const WALLET: i64 = 1_000_000_000;

/// Users u0, u1 … with something to spend.
pub async fn wallets(database_url: &str, now: OffsetDateTime, count: i32) -> Result<(), Failure> {
    let statements = [&PAID[..], &WALLETS, &[TOLD]].concat();
    fill(database_url, &statements, now, ("wallet_", count, WALLET)).await
}

/// Whether [`product`] is there.
pub async fn has_product(database_url: &str) -> Result<bool, Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    let is_there = "SELECT EXISTS (SELECT 1 FROM products WHERE merchant_id = $1)";
    let is_there = sqlx::query_scalar(is_there).bind(MERCHANT).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(is_there)
}

/// A product at one minor unit each.
pub async fn product(database_url: &str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    for statement in [
        "INSERT INTO products (merchant_id, product_code, pricing, key_scope, created_at, updated_at)
         VALUES ($1, 'tokens', 'PER_UNIT', 'REQUEST', now(), now())",
        "INSERT INTO product_prices (merchant_id, product_code, currency, fx_version, unit_price, created_at, updated_at)
         VALUES ($1, 'tokens', 'CNY', '', 1, now(), now())",
    ] {
        sqlx::query(statement).bind(MERCHANT).execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

/// Orders without items that wait for their first pay URL, due long after the scene.
pub async fn fresh_orders(
    database_url: &str,
    now: OffsetDateTime,
    prefix: &str,
    count: i32,
) -> Result<(), Failure> {
    let expires_at = now + LIFE;
    orders(database_url, &Orders { prefix, count, expires_at, skus: 0, with_attempt: false }).await
}

/// Puts things on sale.
pub async fn stock(database_url: &str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    sqlx::query(STOCK).bind(MERCHANT).bind(SKUS).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Makes orders in one transaction.
pub async fn orders(database_url: &str, orders: &Orders<'_>) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    let mut tx = connection.begin().await?;
    let items: &[&'static str] = if orders.skus > 0 { &ITEMS } else { &[] };
    let attempts: &[&'static str] = if orders.with_attempt { &ATTEMPTS } else { &[] };
    // Each statement takes the same parameters.
    for statement in ORDERS.iter().chain(items).chain(attempts) {
        sqlx::query(*statement)
            .bind(MERCHANT)
            .bind(orders.prefix)
            .bind(orders.count)
            .bind(orders.expires_at)
            .bind(orders.skus)
            .bind(AMOUNT)
            .bind(i32::from(orders.with_attempt))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(connection.close().await?)
}

/// Statistics as they are on a database that has lived a while, and no checkpoint in the middle of a run.
pub async fn settle(database_url: &str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(database_url).await?;
    sqlx::query("VACUUM ANALYZE").execute(&mut connection).await?;
    sqlx::query("CHECKPOINT").execute(&mut connection).await?;
    Ok(connection.close().await?)
}
