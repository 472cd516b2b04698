//! Every check of the audit sees its own violation, and nothing else raises an alarm.
//!
//! Each seed breaks one thing in a healthy world (`audit/world.sql`), in a transaction that is rolled back. What
//! the schema itself refuses is seeded with the constraint dropped and triggers off, which takes a superuser.

use payonce::audit::{self, AuditReport, CheckKind};
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Conn, Db, Tx};
use payonce::orders::{OrderEvent, OrderStatus};
use payonce::pay::{PayEvent, PayStatus};
use payonce::refunds::{RefundEvent, RefundStatus, StrayEvent, StrayStatus};
use payonce::settlement::{SettlementEvent, SettlementStatus};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor};
use time::macros::{datetime, format_description};
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::commands::{self, environment};
use crate::support::{TestApp, metric, minutes, seconds, stores, until_waiting};

mod seeds;

use seeds::Seed;

/// The moment that the world and the seeds are written for.
const NOW: OffsetDateTime = datetime!(2030-01-01 00:00 UTC);

const BY_HAND: &str = include_str!("audit/by_hand.sql");
const WORLD: &str = include_str!("audit/world.sql");

/// An empty, migrated database of the test's own.
async fn database() -> Db {
    let config = stores::database_config(&stores::fresh_database().await);
    Db::new(&config, Ids::seeded(Clock::system(), 1)).unwrap()
}

/// A transaction that holds the healthy world; dropped, it leaves nothing behind. Its merchant's key lets only one
/// such transaction in at a time, so those that drop constraints do not lock each other out.
async fn world(db: &Db) -> Tx {
    let mut tx = db.begin().await.unwrap();
    // The owner may break what the service must not.
    run(&mut tx, "SET LOCAL ROLE NONE; SET LOCAL lock_timeout = 0").await;
    run(&mut tx, BY_HAND).await;
    run(&mut tx, WORLD).await;
    tx
}

async fn run(conn: &mut Conn, sql: &'static str) {
    sqlx::raw_sql(sql).execute(conn).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

fn broken(report: &AuditReport) -> Vec<&'static str> {
    report.checks.iter().filter(|check| check.violations > 0).map(|check| check.id).collect()
}

fn sorted(seed: &Seed) -> Vec<&'static str> {
    let mut ids: Vec<_> = [seed.check].iter().chain(seed.also).copied().collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn an_empty_database_is_in_order() {
    let report = audit::audit(&database().await, NOW).await.unwrap();
    assert!(report.ok, "{report:#?}");
    assert!(report.money_at_risk.is_empty());
}

#[tokio::test]
async fn a_healthy_world_raises_no_alarm() {
    let db = database().await;
    let mut tx = world(&db).await;
    let report = audit::run_checks(&mut tx, NOW).await.unwrap();
    assert!(report.ok, "{:#?}", report.checks.iter().filter(|c| c.violations > 0).collect::<Vec<_>>());
}

#[tokio::test]
async fn every_check_sees_its_violation() {
    let db = database().await;
    let mut tx = world(&db).await;
    let mut wrong = Vec::new();
    for seed in seeds::all() {
        run(&mut tx, "SAVEPOINT healthy").await;
        run(&mut tx, seed.sql).await;
        let report = audit::run_checks(&mut tx, NOW).await.unwrap();
        run(&mut tx, "ROLLBACK TO healthy").await;

        let mut found = broken(&report);
        found.sort_unstable();
        if found != sorted(seed) {
            wrong.push(format!("{}\n  found {found:?}, expected {:?}", seed.sql, sorted(seed)));
        }
        assert!(!report.ok);
        for check in report.checks.iter().filter(|check| check.violations > 0) {
            let shown = usize::try_from(check.violations).unwrap().min(10);
            assert_eq!(check.sample.len(), shown, "{check:?}");
            assert!(check.sample.iter().all(|line| !line.is_empty()), "{check:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_check_has_a_seed() {
    let report = audit::audit(&database().await, NOW).await.unwrap();
    let mut ids: Vec<_> = report.checks.iter().map(|check| check.id).collect();
    for id in &ids {
        assert!(seeds::all().any(|seed| seed.check == *id), "nothing seeds a violation of {id}");
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "two checks share an id");
}

/// The last moment that a seed speaks of by itself, or that its world was made.
fn begun_at(seed: &Seed) -> OffsetDateTime {
    let said = seed.sql.split('\'').filter(|word| word.starts_with("2029-12-31 ")).max();
    let said = format!("{}:00", said.unwrap_or_default().max("2029-12-31 12:00"));
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    PrimitiveDateTime::parse(&said[..19], format).unwrap().assume_utc()
}

/// What is eventual must be quiet while its grace lasts, which is a minute or more, and a quarter of an hour at most.
#[tokio::test]
async fn eventual_checks_wait_for_their_grace() {
    let db = database().await;
    let mut tx = world(&db).await;
    for seed in seeds::all() {
        run(&mut tx, "SAVEPOINT healthy").await;
        run(&mut tx, seed.sql).await;
        let report = audit::run_checks(&mut tx, begun_at(seed) + seconds(59)).await.unwrap();
        let early = report.checks.iter().find(|c| c.violations > 0 && c.kind == CheckKind::Eventual);
        assert!(early.is_none(), "{early:#?} of {}", seed.sql);
        if report.checks.iter().any(|c| c.id == seed.check && c.kind == CheckKind::Eventual) {
            let late = audit::run_checks(&mut tx, begun_at(seed) + seconds(15 * 60 + 1)).await.unwrap();
            assert!(broken(&late).contains(&seed.check), "{} does not see {}", seed.check, seed.sql);
        }
        run(&mut tx, "ROLLBACK TO healthy").await;
    }
}

/// The states that a set of changes may go through, as `(from, event, to)`.
type Edges = Vec<(&'static str, &'static str, &'static str, bool)>;

/// Every pair of states with every event between them, and whether the table of a life has it.
macro_rules! edges {
    ($status:ident, $event:ident) => {
        product($status::ALL, $event::ALL)
            .into_iter()
            .map(|(from, event, to)| {
                let is_there = from.after(*event).into_iter().any(|after| after == *to);
                (from.as_str(), event.as_str(), to.as_str(), is_there)
            })
            .collect::<Edges>()
    };
}

fn product<S, E>(states: &'static [S], events: &'static [E]) -> Vec<(&'static S, &'static E, &'static S)> {
    let pairs = states.iter().flat_map(|from| events.iter().map(move |event| (from, event)));
    pairs.flat_map(|(from, event)| states.iter().map(move |to| (from, event, to))).collect()
}

/// Writes these edges as history and counts those that the audit does not allow.
async fn forbidden(tx: &mut Tx, pay_order_id: &str, edges: &Edges) -> i64 {
    run(tx, "DELETE FROM order_history").await;
    for (seq, (from, event, to, _)) in (2..).zip(edges) {
        let conn: &mut Conn = tx;
        sqlx::query("INSERT INTO order_history VALUES ('m', 'X', $1, $2, $3, $4, $5, now())")
            .bind(pay_order_id)
            .bind(seq)
            .bind(from)
            .bind(to)
            .bind(event)
            .execute(conn)
            .await
            .unwrap();
    }
    let report = audit::run_checks(tx, NOW).await.unwrap();
    report.checks.iter().find(|check| check.id == "history_edges").unwrap().violations
}

#[tokio::test]
async fn the_audit_allows_the_edges_of_the_tables_and_no_others() {
    let db = database().await;
    for (pay_order_id, edges) in
        [("", edges!(OrderStatus, OrderEvent)), ("po_x", edges!(PayStatus, PayEvent))]
    {
        let mut tx = world(&db).await;
        let (allowed, refused): (Edges, Edges) = edges.into_iter().partition(|edge| edge.3);
        assert!(!allowed.is_empty());
        assert_eq!(forbidden(&mut tx, pay_order_id, &allowed).await, 0);
        assert_eq!(forbidden(&mut tx, pay_order_id, &refused).await, i64::try_from(refused.len()).unwrap());
    }
}

/// Histories whose second change goes along an edge, each with the thing that stands where it led.
const CHECKS_OF_ONE_LIFE: [(&str, &str); 3] = [
    (
        "refund_history",
        "made AS (INSERT INTO refunds (refund_id, refund_no, pay_order_id, amount, currency, status, reason, failure,
                                       created_at, updated_at)
                  SELECT 'x' || n, 'x' || n, 'x', 1, 'CNY', after, 'r', CASE after WHEN 'FAILED' THEN 'no' END, now(), now()
                  FROM edge)
         INSERT INTO refund_history
         SELECT 'x' || n, 1, NULL, before, 'CARRIED_OVER', now() FROM edge
         UNION ALL SELECT 'x' || n, 2, before, after, event, now() FROM edge",
    ),
    (
        "stray_history",
        "made AS (INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason,
                                              status, paid_at, created_at, updated_at)
                  SELECT 'x' || n, 'sandbox', 'x' || n, 'x', 1, 'CNY', 'UNKNOWN_ORDER', after, now(), now(), now() FROM edge)
         INSERT INTO stray_history
         SELECT 'x' || n, 1, NULL, before, 'CARRIED_OVER', now() FROM edge
         UNION ALL SELECT 'x' || n, 2, before, after, event, now() FROM edge",
    ),
    (
        "settlement_history",
        "step AS (SELECT *, CASE event WHEN 'RESTORED' THEN 3 ELSE 7 END AS clawed_back FROM edge),
         made AS (INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission,
                                           clawed_back, currency, status, created_at, updated_at)
                  SELECT 'm', 'x' || n, 'u', 10, 1, '{1}', 1, CASE after WHEN 'SETTLED' THEN 10 ELSE clawed_back END,
                         clawed_back, 'CNY', after, now(), now() FROM step)
         INSERT INTO settlement_history
         SELECT 'm', 'x' || n, 1, 'SETTLED', before, 'CARRIED_OVER', 5, now() FROM edge
         UNION ALL SELECT 'm', 'x' || n, 2, before, after, event, clawed_back, now() FROM step",
    ),
];

#[tokio::test]
async fn the_audit_allows_the_edges_of_what_goes_back_and_no_others() {
    let db = database().await;
    let lives = [
        edges!(RefundStatus, RefundEvent),
        edges!(StrayStatus, StrayEvent),
        edges!(SettlementStatus, SettlementEvent),
    ];
    for ((id, written), edges) in CHECKS_OF_ONE_LIFE.into_iter().zip(lives) {
        let (allowed, refused): (Edges, Edges) = edges.into_iter().partition(|edge| edge.3);
        assert!(!allowed.is_empty());
        for (edges, expected) in [(&allowed, 0), (&refused, refused.len())] {
            let mut tx = world(&db).await;
            let statement = format!(
                "WITH edge AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
                                            AS edge (before, event, after, n)), {written}"
            );
            let conn: &mut Conn = &mut tx;
            sqlx::query(AssertSqlSafe(statement))
                .bind(edges.iter().map(|edge| edge.0).collect::<Vec<_>>())
                .bind(edges.iter().map(|edge| edge.1).collect::<Vec<_>>())
                .bind(edges.iter().map(|edge| edge.2).collect::<Vec<_>>())
                .execute(conn)
                .await
                .unwrap();
            let report = audit::run_checks(&mut tx, NOW).await.unwrap();
            let check = report.checks.iter().find(|check| check.id == id).unwrap();
            assert_eq!(check.violations, i64::try_from(expected).unwrap(), "{check:#?}");
        }
    }
}

#[tokio::test]
async fn money_that_has_not_come_to_rest_is_summed_once() {
    let db = database().await;
    let mut tx = world(&db).await;
    let risk = async |tx: &mut Tx| -> Vec<(String, i64)> {
        let report = audit::run_checks(tx, NOW).await.unwrap();
        report.money_at_risk.iter().map(|risk| (risk.currency.as_str().to_owned(), risk.amount)).collect()
    };
    // HELD 100, REFUNDING 70 and its refund, PROCESSING 40, PAYING 30; the kept dollars are at rest.
    let of_world = [("CNY".to_owned(), 240), ("USD".to_owned(), 0)];
    assert_eq!(risk(&mut tx).await, of_world);

    // What was at risk when it was audited last comes back to zero, whatever it was in.
    run(
        &mut tx,
        r#"INSERT INTO last_audit (next_at, audited_at, report)
           VALUES (now(), now(), '{"checks": [], "money_at_risk": [{"currency": "JPY", "amount": 7}]}')"#,
    )
    .await;
    assert_eq!(risk(&mut tx).await, [of_world[0].clone(), ("JPY".to_owned(), 0), of_world[1].clone()]);
    run(&mut tx, r#"UPDATE last_audit SET report = '{"money_at_risk": "of a version to come"}'"#).await;
    assert_eq!(risk(&mut tx).await, of_world);

    // What is HELD went back by a refund that was made after all.
    run(
        &mut tx,
        "UPDATE refunds SET stray_id = 'sp_d', channel_refund_id = 'c', made_after_all_at = updated_at
         WHERE refund_id = 'rf_c0'",
    )
    .await;
    assert_eq!(risk(&mut tx).await[0], ("CNY".to_owned(), 140));
}

#[tokio::test]
async fn what_waits_in_a_lane_that_rests_is_not_late() {
    let db = database().await;
    let mut tx = world(&db).await;
    run(
        &mut tx,
        "UPDATE compensations SET due_at = '2029-12-31 23:54' WHERE subject = 'rf_r';
         UPDATE compensations SET due_at = '2029-12-31 23:58' WHERE subject = 'rf_d';
         UPDATE webhook_inbox SET received_at = '2029-12-31 23:40' WHERE event_id = 'e5';
         UPDATE compensation_lanes SET paused_at = '2029-12-31 12:00', paused_by = 'ann', reason = 'quiet' WHERE lane = 'REALTIME'",
    )
    .await;
    let report = audit::run_checks(&mut tx, NOW).await.unwrap();
    assert_eq!(broken(&report), [""; 0]);
}

#[tokio::test]
async fn what_a_dead_sender_had_is_not_late_while_its_endpoint_rests_or_an_earlier_event_waits() {
    let db = database().await;
    let mut tx = world(&db).await;
    // The first asked for a pause; the second comes after it.
    run(
        &mut tx,
        "INSERT INTO resting_lanes VALUES ('m', 'm', '2030-01-01 00:30');
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, leased_until,
                                 last_error, created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, 'm', order_no, 'm', '{}', 'PENDING', '2029-12-31 12:00',
                '2029-12-31 12:01', 'away', '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D'",
    )
    .await;
    let report = audit::run_checks(&mut tx, NOW).await.unwrap();
    assert_eq!(broken(&report), [""; 0]);
    run(&mut tx, "UPDATE resting_lanes SET rests_until = '2029-12-31 23:30'").await;
    let late = audit::run_checks(&mut tx, NOW).await.unwrap();
    let check = late.checks.iter().find(|check| check.id == "delivery_late").unwrap();
    assert_eq!(check.violations, 1, "the first of its order");
}

/// An order that says it was paid by an attempt that is not there.
const PAID_BY_NOBODY: &str =
    "SET session_replication_role = replica;
     INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at,
                         created_at, updated_at)
     VALUES ('demo', 'AU', 'u1', 'PAID', 1, 'CNY', 'po_none', now(), now(), now(), now())";

#[tokio::test]
async fn a_check_that_cannot_be_made_is_named_and_takes_no_other_with_it() {
    let app = TestApp::start().await;
    app.sql(PAID_BY_NOBODY).await;
    let mut owner = app.direct_connection().await;
    owner.execute("BEGIN; LOCK TABLE webhook_inbox IN ACCESS EXCLUSIVE MODE").await.expect("held");
    let report = app.admin_get("/admin/audit").await.expect(200).body;
    assert_eq!(report["ok"], false);
    let failed = report["failed"].as_array().expect("a list");
    let is_of_callbacks =
        |failed: &Value| failed["id"].as_str().is_some_and(|id| id.starts_with("callback_"));
    assert!(!failed.is_empty() && failed.iter().all(is_of_callbacks), "{failed:#?}");
    let why = failed[0]["reason"].as_str().expect("a reason");
    assert!(why.contains("lock timeout"), "{why}");
    let checks = report["checks"].as_array().expect("a list");
    let is_violated = |check: &Value| check["id"] == "order_paid_by" && check["violations"] == 1;
    assert!(checks.iter().any(is_violated), "{checks:#?}");
    // Stories beside this one set the same gauges of the process.
    app.eventually("the gauge says so", async || {
        audit::publish(&app.instance.app.db).await.expect("figures");
        metric(&app, "payonce_audit_failed", &[("check", "callback_once")]).await >= 1.0
    })
    .await;

    let said = commands::run(&["audit"], &environment(&app.database_url, &app.redis_url)).await;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.status.code(), Some(3), "{text}");
    assert!(text.contains("FAILED") && text.contains("callback_once"), "{text}");
    owner.execute("COMMIT").await.expect("free");
    app.sql("DELETE FROM orders").await;
    app.end().await;
}

/// Who waits for a table in the story's database.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_audits_at_once_is_one_and_holds_nobody_up() {
    let app = TestApp::start().await;
    let mut owner = app.direct_connection().await;
    owner.execute("BEGIN; LOCK TABLE webhook_inbox IN ACCESS EXCLUSIVE MODE").await.expect("held");
    // The service's role is not shown what other sessions wait for.
    let mut watcher = app.direct_connection().await;
    let audits = futures_util::future::join_all((0..24).map(|_| app.admin_get("/admin/audit")));
    let (answers, ()) = tokio::join!(audits, async {
        until_waiting(&app, 1).await;
        // More orders than connections, had each audit one.
        for index in 0..20 {
            app.order(&format!("AU{index}")).await;
        }
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(&mut watcher).await.expect("a count");
        assert_eq!(waiting, 1, "one audit");
        owner.execute("COMMIT").await.expect("free");
    });
    // One that waited too long for the table on a slow machine says so to everybody.
    let statuses: std::collections::BTreeSet<u16> = answers.iter().map(|reply| reply.status).collect();
    assert!(statuses.len() == 1 && statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    assert_eq!(app.admin_get("/admin/audit").await.expect(200).body["ok"], true);
    app.end().await;
}

/// When the last audit was made and when the next one is due, in whole minutes of the clock since then, and whether all
/// was well.
async fn last_audit(app: &TestApp) -> Option<(OffsetDateTime, i64, bool)> {
    let last: Option<(OffsetDateTime, OffsetDateTime, bool)> =
        sqlx::query_as("SELECT audited_at, next_at, (report->>'ok')::boolean FROM last_audit")
            .fetch_optional(&mut app.direct_connection().await)
            .await
            .expect("a look");
    last.map(|(audited_at, next_at, ok)| (audited_at, (next_at - audited_at).whole_minutes(), ok))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_instance_audits_at_a_time_and_rests_far_longer_than_it_took() {
    let app = TestApp::start().await;
    let look = async || audit::run_due(&app.instance.app.db, &app.clock).await.expect("a duty");
    let mut another = app.direct_connection().await;
    another.execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('audit'))").await.expect("its turn");
    look().await;
    assert_eq!(last_audit(&app).await, None, "another instance is at it");

    // It dies. Who has the turn now cannot make all checks, keeps what the others found, and rests all the same.
    let hold_up = "ROLLBACK; BEGIN; LOCK TABLE webhook_inbox IN ACCESS EXCLUSIVE MODE";
    another.execute(hold_up).await.expect("held");
    look().await;
    another.execute("ROLLBACK").await.expect("free");
    let held_up = last_audit(&app).await.expect("an audit");
    assert!(held_up.1 == 5 && !held_up.2, "{held_up:?}");
    look().await;
    assert_eq!(last_audit(&app).await, Some(held_up), "nobody looks before the rest is over");
    app.clock.advance(minutes(6));

    // The next one is held up for five minutes.
    another.execute(hold_up).await.expect("held");
    tokio::join!(look(), async {
        until_waiting(&app, 1).await;
        app.clock.advance(minutes(5));
        another.execute("COMMIT").await.expect("free");
    });
    let (first_at, rests, is_well) = last_audit(&app).await.expect("an audit");
    assert!((50..=51).contains(&rests) && is_well, "it took 5 minutes and rests nine times as long: {rests}");

    app.sql(PAID_BY_NOBODY).await;
    app.clock.advance(minutes(40));
    look().await;
    assert_eq!(last_audit(&app).await, Some((first_at, rests, true)), "it rests");
    app.clock.advance(minutes(10));
    look().await;
    let (second_at, rests, is_well) = last_audit(&app).await.expect("an audit");
    assert!(second_at > first_at + minutes(50) && rests == 5 && !is_well, "{second_at}, {rests}, {is_well}");

    // One that somebody asks for is as good.
    app.sql("DELETE FROM orders").await;
    app.clock.advance(minutes(1));
    assert_eq!(app.admin_get("/admin/audit").await.expect(200).body["ok"], true);
    let (asked_at, rests, is_well) = last_audit(&app).await.expect("an audit");
    assert!(asked_at >= second_at + minutes(1) && rests == 5 && is_well, "{asked_at}, {rests}, {is_well}");

    // A clock that was two days ahead for a moment holds nobody up.
    app.clock.advance(minutes(2 * 24 * 60));
    look().await;
    app.clock.set_back(minutes(2 * 24 * 60));
    look().await;
    let (mended_at, ..) = last_audit(&app).await.expect("an audit");
    assert!(asked_at < mended_at && mended_at <= app.clock.now(), "{asked_at}, {mended_at}");
    app.end().await;
}
