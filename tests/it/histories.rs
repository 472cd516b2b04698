//! What becomes of refunds, stray money and commissions is written down by the database itself, whoever changes it.

use std::time::{Duration, Instant};

use payonce::refunds::{RefundEvent, RefundStatus, StrayEvent, StrayStatus};
use payonce::settlement::{SettlementEvent, SettlementStatus};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::support::stores;

/// A database of the story's own, as its owner at a prompt sees it.
async fn prompt() -> PgConnection {
    PgConnection::connect(&stores::fresh_database().await).await.expect("connect")
}

/// New refunds that wait for the channel.
async fn ask(conn: &mut PgConnection, ids: &[&str]) {
    let refunds = "INSERT INTO refunds (refund_id, refund_no, pay_order_id, amount, currency, reason, created_at, updated_at)
                   SELECT id, id, 'po', 1, 'CNY', 'r', '2030-01-01', '2030-01-01' FROM unnest($1::text[]) AS id";
    sqlx::query(refunds).bind(ids).execute(conn).await.expect("refunds");
}

/// A history, one line for each change.
async fn history(conn: &mut PgConnection, table: &str, of: &str) -> Vec<String> {
    let lines = format!(
        "SELECT format('%s %s %s %s %s', seq, coalesce(from_status, '-'), event, to_status,
                       to_char(created_at AT TIME ZONE 'UTC', 'MM-DD'))
         FROM {table} WHERE {of} ORDER BY seq"
    );
    sqlx::query_scalar(AssertSqlSafe(lines)).fetch_all(conn).await.expect("a history")
}

/// Two states, and the word for what leads from one to the other.
type Edges = Vec<(&'static str, &'static str, &'static str)>;

/// Every two states of a life.
macro_rules! edges {
    ($status:ident, $event:ident) => {{
        let mut edges = Edges::new();
        for from in $status::ALL {
            for to in $status::ALL.iter().filter(|to| *to != from) {
                let event = $event::ALL.iter().find(|event| from.after(**event) == Some(*to));
                edges.push((from.as_str(), event.map_or("BY_HAND", |event| event.as_str()), to.as_str()));
            }
        }
        edges
    }};
}

#[tokio::test]
async fn every_change_is_called_by_the_word_of_the_service_and_any_other_was_made_by_hand() {
    let mut conn = prompt().await;
    for (table, key, begin, birth, edges) in [
        (
            "refunds",
            "refund",
            "INSERT INTO refunds (refund_id, refund_no, pay_order_id, amount, currency, reason, created_at, status, failure,
                                  updated_at)
             SELECT n, n, 'po', 1, 'CNY', 'r', '2030-01-01', before, CASE before WHEN 'FAILED' THEN 'no' END, '2030-01-01'",
            "ASKED",
            edges!(RefundStatus, RefundEvent),
        ),
        (
            "stray_payments",
            "stray",
            "INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason, paid_at,
                                         created_at, status, updated_at)
             SELECT n, 'sandbox', n, 'po', 1, 'CNY', 'UNKNOWN_ORDER', '2030-01-01', '2030-01-01', before, '2030-01-01'",
            "RECEIVED",
            edges!(StrayStatus, StrayEvent),
        ),
    ] {
        let of_edges = "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS edge (before, after, n)";
        let is_refund = table == "refunds";
        let failure = if is_refund { "failure = CASE after WHEN 'FAILED' THEN 'no' END," } else { "" };
        let change = format!(
            "UPDATE {table} SET {failure} status = after, updated_at = '2030-01-02' {of_edges} WHERE {key}_id = n::text"
        );
        for statement in [format!("{begin} {of_edges}"), change] {
            sqlx::query(AssertSqlSafe(statement))
                .bind(edges.iter().map(|edge| edge.0).collect::<Vec<_>>())
                .bind(edges.iter().map(|edge| edge.2).collect::<Vec<_>>())
                .execute(&mut conn)
                .await
                .expect("all of them at once");
        }
        assert!(edges.iter().any(|edge| edge.1 == "BY_HAND"));
        for (n, (from, event, to)) in (1..).zip(edges) {
            let told = history(&mut conn, &format!("{key}_history"), &format!("{key}_id = '{n}'")).await;
            let born = match from {
                // It began as it was asked for.
                "PROCESSING" => vec!["- ASKED PENDING 01-01".into(), "PENDING REQUESTED PROCESSING 01-01".into()],
                _ => vec![format!("- {birth} {from} 01-01")],
            };
            let changes = born.into_iter().chain([format!("{from} {event} {to} 01-02")]);
            let expected: Vec<_> = (1..).zip(changes).map(|(seq, change)| format!("{seq} {change}")).collect();
            assert_eq!(told, expected);
        }
    }
    conn.close().await.expect("close");
}

#[tokio::test]
async fn a_commission_has_a_history_once_something_of_it_is_claimed_back() {
    let mut conn = prompt().await;
    let given = "INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission,
                                          currency, created_at, updated_at)
                 SELECT 'm', o, 'u', 100, 0.1, '{0.1}', 1, 10, 'CNY', '2030-01-01', '2030-01-01' FROM unnest('{A,B}'::text[]) AS o";
    conn.execute(given).await.expect("settlements");
    let (mut status, mut expected) = (SettlementStatus::Settled, Vec::new());
    for (seq, (clawed_back, event)) in (1..).zip([
        (4, SettlementEvent::PartClawedBack),
        (7, SettlementEvent::PartClawedBack),
        (10, SettlementEvent::AllClawedBack),
        (7, SettlementEvent::Restored),
        (4, SettlementEvent::Restored),
        (10, SettlementEvent::AllClawedBack),
        (0, SettlementEvent::Restored),
        (10, SettlementEvent::AllClawedBack),
    ]) {
        let to = status.after(event).expect("an edge");
        let change = "UPDATE settlements SET updated_at = '2030-01-02', status = CASE order_no WHEN 'A' THEN $1 ELSE status END,
                                             clawed_back = CASE order_no WHEN 'A' THEN $2 ELSE 0 END";
        let changed = sqlx::query(change).bind(to.as_str()).bind(clawed_back).execute(&mut conn).await;
        changed.expect("both settlements");
        expected.push(format!("{seq} {status} {event} {to} 01-02"));
        status = to;
    }
    assert_eq!(history(&mut conn, "settlement_history", "order_no = 'A'").await, expected);
    assert_eq!(history(&mut conn, "settlement_history", "order_no = 'B'").await, [""; 0]);
    let amounts = "SELECT array_agg(clawed_back ORDER BY seq) FROM settlement_history";
    let amounts: Vec<i64> = sqlx::query_scalar(amounts).fetch_one(&mut conn).await.expect("amounts");
    assert_eq!(amounts, [4, 7, 10, 7, 4, 10, 0, 10]);
    conn.close().await.expect("close");
}

#[tokio::test]
async fn a_change_is_written_once_by_whatever_statement_it_is_made() {
    let mut conn = prompt().await;
    // The service may add to histories, which is all that this takes.
    conn.execute("SET ROLE payonce_service").await.expect("its role");
    ask(&mut conn, &["a", "b"]).await;
    for statement in [
        // Twice in one transaction, and once not at all.
        "BEGIN; UPDATE refunds SET status = 'PROCESSING' WHERE refund_id = 'a';
         UPDATE refunds SET status = 'SUCCEEDED' WHERE refund_id = 'a'; COMMIT;
         BEGIN; UPDATE refunds SET status = 'PROCESSING' WHERE refund_id = 'b'; ROLLBACK",
        // Nothing that is a state.
        "UPDATE refunds SET channel_refund_id = 'C', version = version + 1, updated_at = '2030-01-05'",
        "UPDATE refunds SET status = 'PROCESSING' WHERE refund_id = 'none'",
        // One statement that adds some, changes others, and changes one of these twice, of which one is done.
        "WITH asked AS (INSERT INTO refunds SELECT refund_id || 2, merchant_id, refund_no || 2, order_no, pay_order_id, stray_id,
                               amount, currency, 'PENDING', reason, NULL, NULL, created_at, updated_at FROM refunds),
              moved AS (UPDATE refunds SET status = 'PROCESSING' WHERE refund_id = 'b'),
              again AS (UPDATE refunds SET status = 'PROCESSING' WHERE refund_id = 'b')
         UPDATE refunds SET status = 'FAILED', failure = 'taken back' WHERE refund_id = 'a'",
        "INSERT INTO refunds SELECT * FROM refunds WHERE refund_id = 'b'
         UNION ALL SELECT 'c', merchant_id, 'c', order_no, pay_order_id, stray_id, amount, currency, status, reason, failure,
                          channel_refund_id, created_at, updated_at, version, return_stock, asked_by, made_after_all_at,
                          made_after_all_times
         FROM refunds WHERE refund_id = 'a2'
         ON CONFLICT (refund_id) DO UPDATE SET status = 'SUCCEEDED', updated_at = '2030-01-06'",
    ] {
        sqlx::raw_sql(statement).execute(&mut conn).await.unwrap_or_else(|error| panic!("{error}: {statement}"));
    }
    for (id, expected) in [
        (
            "a",
            &[
                "1 - ASKED PENDING 01-01",
                "2 PENDING REQUESTED PROCESSING 01-01",
                "3 PROCESSING SUCCEEDED SUCCEEDED 01-01",
                "4 SUCCEEDED FAILED FAILED 01-05",
            ][..],
        ),
        (
            "b",
            &[
                "1 - ASKED PENDING 01-01",
                "2 PENDING REQUESTED PROCESSING 01-05",
                "3 PROCESSING SUCCEEDED SUCCEEDED 01-06",
            ],
        ),
        ("a2", &["1 - ASKED PENDING 01-05"]),
        ("b2", &["1 - ASKED PENDING 01-05"]),
        ("c", &["1 - ASKED PENDING 01-05"]),
        ("none", &[]),
    ] {
        assert_eq!(
            history(&mut conn, "refund_history", &format!("refund_id = '{id}'")).await,
            expected,
            "{id}"
        );
    }
    conn.close().await.expect("close");
}

#[tokio::test]
async fn two_that_change_one_refund_write_one_after_the_other() {
    let url = stores::fresh_database().await;
    let connect = async || PgConnection::connect(&url).await.expect("connect");
    let (mut first, mut second, mut watch) = (connect().await, connect().await, connect().await);
    ask(&mut first, &["a"]).await;
    first.execute("BEGIN; UPDATE refunds SET status = 'PROCESSING'").await.expect("the row is held");
    let waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity
                                  WHERE datname = current_database() AND wait_event_type = 'Lock'
                                    AND query LIKE 'UPDATE refunds%')";
    let (moved, ()) = tokio::join!(second.execute("UPDATE refunds SET status = 'SUCCEEDED'"), async {
        let begun = Instant::now();
        while !sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut watch).await.expect("a look") {
            assert!(begun.elapsed() < Duration::from_secs(10), "the second change waits for nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        first.execute("COMMIT").await.expect("the row is free");
    });
    moved.expect("the second change");
    let expected = [
        "1 - ASKED PENDING 01-01",
        "2 PENDING REQUESTED PROCESSING 01-01",
        "3 PROCESSING SUCCEEDED SUCCEEDED 01-01",
    ];
    assert_eq!(history(&mut watch, "refund_history", "refund_id = 'a'").await, expected);
    for conn in [first, second, watch] {
        conn.close().await.expect("close");
    }
}

#[tokio::test]
async fn what_was_written_while_triggers_were_off_is_found_at_its_next_change() {
    let mut conn = prompt().await;
    conn.execute("SET session_replication_role = replica").await.expect("no triggers");
    ask(&mut conn, &["a"]).await;
    conn.execute("SET session_replication_role = origin").await.expect("triggers");
    conn.execute("UPDATE refunds SET status = 'PROCESSING'").await.expect("a change");
    conn.execute("UPDATE refunds SET status = 'SUCCEEDED'").await.expect("another");
    let expected = ["1 - FOUND PROCESSING 01-01", "2 PROCESSING SUCCEEDED SUCCEEDED 01-01"];
    assert_eq!(history(&mut conn, "refund_history", "refund_id = 'a'").await, expected);
    conn.close().await.expect("close");
}
