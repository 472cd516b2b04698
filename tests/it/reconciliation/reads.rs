//! What looking for work, and for what a user spent, reads: what there is of it, and not what was before or is not ready.

use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Db, Tx};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::plans::{run, statements};
use crate::support::stores;

/// Rows of each of these tables, and of what its indexes lead to, that a statement reads.
async fn rows_read(tx: &mut Tx, statement: &str, arguments: &str, tables: &[&str]) -> u64 {
    run(tx, &format!("PREPARE look AS {statement}")).await;
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE look({arguments})");
    let conn: &mut payonce::infra::db::Conn = tx;
    let plan: Value = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_one(conn).await.expect("a plan");
    run(tx, "DEALLOCATE look").await;
    read_below(&plan, tables)
}

fn read_below(node: &Value, tables: &[&str]) -> u64 {
    let number = |name: &str| node[name].as_u64().unwrap_or(0);
    let own = match node["Relation Name"].as_str().filter(|name| tables.contains(name)) {
        Some(_) => (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops"),
        None => 0,
    };
    own + match node {
        Value::Array(parts) => parts.iter().map(|part| read_below(part, tables)).sum(),
        Value::Object(fields) => fields.values().map(|part| read_below(part, tables)).sum::<u64>(),
        _ => 0,
    }
}

fn only_statement(what: &str) -> String {
    let mut found = statements(|text| text.contains(what));
    assert_eq!(found.len(), 1, "{what}");
    found.remove(0)
}

async fn database() -> Db {
    let config = stores::database_config(&stores::fresh_database().await);
    Db::new(&config, Ids::seeded(Clock::system(), 1)).expect("a pool")
}

/// Holds of one user, each charged, with what is booked for them.
fn charged_holds(from: usize, until: usize) -> String {
    format!(
        "INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                                  key_fx_version, currency, fx_version, cycle, pricing, unit_price, estimated_units, units,
                                  counted_units, carries_fee, held, charged, status, expires_at, created_at, updated_at)
         SELECT 'uh_' || g, 'shop', 'r', 'u', 'p', 'k' || g, '', '', 'CNY', '', 'c', 'PER_UNIT', 1, 1, 1, 1, false, 0, 1,
                'CONFIRMED', now(), now(), now()
         FROM generate_series({from}, {until}) AS g;
         INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         SELECT kind || ':uh_' || g, kind, now(), '{{USER_AVAILABLE:shop:u:CNY,USER_HELD:shop:u:CNY}}', '{{-1,1}}'
         FROM generate_series({from}, {until}) AS g, unnest(ARRAY['USAGE_HOLD', 'USAGE_CHARGE']) AS kind;"
    )
}

#[tokio::test]
async fn who_spent_money_that_never_came_is_found_by_what_was_booked_since() {
    let (db, statement) = (database().await, only_statement("allow_compensating_charge) AS is_allowed"));
    let mut tx = db.begin().await.expect("a transaction");
    run(&mut tx, "SET LOCAL ROLE NONE; SET LOCAL session_replication_role = replica").await;
    run(&mut tx, &charged_holds(1, 20_000)).await;
    run(
        &mut tx,
        "INSERT INTO orders (merchant_id, order_no, kind, user_id, status, amount, currency, paid_by, paid_at, expires_at,
                             created_at, updated_at)
         VALUES ('shop', 'T', 'TOPUP', 'u', 'PAID', 9, 'CNY', 'po_t', now(), now(), now(), now());
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                 transaction_id, paid_at, expires_at, created_at, updated_at)
         VALUES ('po_t', 'shop', 'T', 'u', 'sandbox', 'PAID', 9, 'CNY', 't', now(), now(), now(), now());
         INSERT INTO trades (channel, transaction_id, pay_order_id, created_at) VALUES ('sandbox', 't', 'po_t', now());
         INSERT INTO products (merchant_id, product_code, pricing, key_scope, allow_compensating_charge, created_at, updated_at)
         VALUES ('shop', 'p', 'PER_UNIT', 'REQUEST', true, now(), now());
         INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         VALUES ('PAYMENT:po_t', 'PAYMENT', now(), '{CHANNEL:sandbox:CNY,USER_AVAILABLE:shop:u:CNY}', '{9,-9}')",
    )
    .await;
    run(&mut tx, &charged_holds(20_001, 20_003)).await;
    for world in ["", "ANALYZE"] {
        run(&mut tx, world).await;
        let read =
            rows_read(&mut tx, &statement, "'sandbox', 't', 'x'", &["usage_holds", "ledger_transactions"])
                .await;
        assert!((3..20).contains(&read), "{read} rows were read for three holds: {world}");
    }
}

#[tokio::test]
async fn whoever_looks_for_differences_reads_none_of_a_day_that_is_still_compared() {
    let (db, statement) = (database().await, only_statement("AS kind (action, asks, place)"));
    let mut tx = db.begin().await.expect("a transaction");
    run(&mut tx, "SET LOCAL ROLE NONE; SET LOCAL session_replication_role = replica").await;
    run(
        &mut tx,
        "INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source, leased_until,
                                      created_at, updated_at)
         VALUES ('rc_1', 'sandbox', '2026-01-01', now(), now(), 'MATCHING', 'CHANNEL', now(), now(), now()),
                ('rc_2', 'sandbox', '2026-01-02', now(), now(), 'ACTING', 'CHANNEL', now(), now(), now());
         INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, theirs,
                                           currency, at, action, moves_money, status, seen_round, due_at, created_at, updated_at)
         -- Of a day that is compared, of one that is, but are not due yet, and three that are.
         SELECT 'ri_' || g, 'sandbox', CASE WHEN g <= 20000 THEN 'rc_1' ELSE 'rc_2' END, 'MISSING_HERE', 'PAYMENT', 't' || g, '',
                't' || g, 1, 'CNY', now(), CASE g % 2 WHEN 0 THEN 'APPLY' ELSE 'ASK' END, false,
                CASE WHEN g = 30003 THEN 'APPLYING' ELSE 'PROPOSED' END, 1,
                now() + CASE WHEN g BETWEEN 20001 AND 30000 THEN interval '1 h' ELSE interval '0' END, now(), now()
         FROM generate_series(1, 30003) AS g",
    )
    .await;
    for world in ["", "ANALYZE"] {
        run(&mut tx, world).await;
        run(&mut tx, "SAVEPOINT before").await;
        let read = rows_read(
            &mut tx,
            &statement,
            "10, now(), now(), ARRAY['APPLY','ASK','CHARGE','ESCALATE'], ARRAY['elsewhere'], \
             ARRAY[false,true,true,false], now()",
            &["reconciliation_items"],
        )
        .await;
        let taken: i64 = sqlx::query_scalar("SELECT count(*) FROM reconciliation_items WHERE version = 2")
            .fetch_one(&mut *tx)
            .await
            .expect("a count");
        assert_eq!(taken, 3, "{world}");
        assert!(read < 20, "{read} rows were read for three items: {world}");
        run(&mut tx, "ROLLBACK TO before").await;
    }
}

#[tokio::test]
async fn whoever_ends_a_comparison_reads_each_difference_of_the_day_once() {
    let (db, statement) = (database().await, only_statement("seen_round < $2 AND status = ANY($8)"));
    let mut tx = db.begin().await.expect("a transaction");
    run(&mut tx, "SET LOCAL ROLE NONE; SET LOCAL session_replication_role = replica").await;
    run(
        &mut tx,
        "INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source, leased_until,
                                      created_at, updated_at)
         VALUES ('rc_1', 'sandbox', '2026-01-01', now(), now(), 'MATCHING', 'CHANNEL', now(), now(), now());
         INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, theirs,
                                           currency, at, action, moves_money, status, seen_round, due_at, created_at, updated_at)
         -- This round came upon all of them but three of the last ones.
         SELECT 'ri_' || g, 'sandbox', 'rc_1', 'MISSING_HERE', 'PAYMENT', 't' || g, '', 't' || g, 1, 'CNY', now(), 'APPLY', true,
                'WAITING', CASE WHEN g > 39997 THEN 1 ELSE 2 END, now(), now(), now()
         FROM generate_series(20001, 40000) AS g",
    )
    .await;
    for world in ["", "ANALYZE"] {
        run(&mut tx, world).await;
        let read = rows_read(
            &mut tx,
            &statement,
            "'rc_1', 2, 500, now(), now(), now(), now(), ARRAY['WAITING'], ARRAY[]::text[], 'ri_39990', 'ri_40000'",
            &["reconciliation_items"],
        )
        .await;
        assert!((3..20).contains(&read), "{read} rows were read of the ten behind the last place: {world}");
    }
}
