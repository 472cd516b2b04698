//! A database of an earlier version is brought up to this one, and everything in it is right.

use std::time::Duration;

use payonce::audit;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::Db;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use time::macros::datetime;
use tokio::time::timeout;

use crate::support::books::sides;
use crate::support::{TestApp, TestOptions, stores};

/// The migration that opened the books.
const BOOKS: i64 = 8;
/// The migration that counts what was charged without a quota.
const COUNTS: i64 = 18;
/// The migration that lets events wait in a queue of their own.
const QUEUE: i64 = 26;

/// The migration that lets histories write themselves.
const HISTORIES: i64 = 31;
/// The migration that gives a commission's history as many lines as its version says.
const VERSIONS: i64 = 37;
/// The migration that marks the days whose lines do not count any more.
const FORGOTTEN: i64 = 40;
/// The migration that marks the refunds which were made after all.
const MADE_AFTER_ALL: i64 = 56;
/// The migration that books them.
const AFTER_ALL_BOOKED: i64 = 69;

/// The migration that makes a booking one row.
const WHOLE: i64 = 61;

/// A healthy world of the version before something: one thing in every state.
fn world_before(what: &str) -> &'static str {
    let (before, _) = include_str!("audit/world.sql").split_once(what).expect("a line between");
    before
}

/// A database that the version before this migration left, with its world.
async fn database_before(migration: i64, world: &str) -> String {
    let url = stores::empty_database().await;
    let migrations = sqlx::migrate!();
    let before = migrations.iter().map(|known| known.version).filter(|version| *version < migration).max();
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    migrations.run_direct(before, &mut owner, false).await.expect("the version before");
    let fill = format!("BEGIN; SET LOCAL session_replication_role = replica; {world}; COMMIT");
    owner.execute(AssertSqlSafe(fill)).await.expect("a world");
    owner.close().await.expect("close");
    url
}

#[tokio::test]
async fn the_books_open_with_everything_that_was_there_and_go_on_from_it() {
    let url = database_before(BOOKS, world_before("-- ==== the books")).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    owner.close().await.expect("close");
    let config = stores::database_config(&url);
    let db = Db::new(&config, Ids::seeded(Clock::system(), 1)).expect("a pool");
    let report = audit::audit(&db, datetime!(2030-01-01 00:00 UTC)).await.expect("an audit");
    assert!(
        report.ok,
        "{:#?}",
        report.checks.iter().filter(|check| check.violations > 0).collect::<Vec<_>>()
    );
    db.close().await;

    let app =
        TestApp::start_with(TestOptions { database_url: Some(url.clone()), ..TestOptions::default() }).await;
    let opened = [
        ("CHANNEL sandbox CNY", 570),
        ("CHANNEL sandbox USD", 5),
        ("MERCHANT m CNY", -100),
        ("PLATFORM_REVENUE - USD", -5),
        ("SUSPENSE sandbox CNY", -170),
        ("USER_AVAILABLE m CNY", -300),
    ];
    assert_eq!(app.trial_balance().await, sides(opened));
    // What the channel took back before was never booked, and is not now.
    assert_eq!(app.booking("REFUND:rf_cx").await, None);

    let told = json!({"event_id": "r1", "kind": "REFUND", "refund_id": "rf_r", "out_trade_no": "po_d0",
                      "refund_fee": 70, "currency": "CNY", "status": "SUCCEEDED"});
    app.deliver(&told).await;
    let mut gone = sides(opened);
    gone.insert("CHANNEL sandbox CNY".to_owned(), 500);
    gone.insert("SUSPENSE sandbox CNY".to_owned(), -100);
    assert_eq!(app.trial_balance().await, gone);
    app.end().await;
    stores::drop_database(&url).await;
}

/// Every entry, as whoever reads them sees it, those of each account in their order.
async fn entries(owner: &mut PgConnection) -> Vec<(String, String, i64)> {
    sqlx::query_as(
        "SELECT account_id, transaction_id, amount FROM ledger_entries ORDER BY account_id, entry_id",
    )
    .fetch_all(owner)
    .await
    .expect("entries")
}

#[tokio::test]
async fn bookings_come_together_with_all_of_their_entries_in_the_order_that_they_had() {
    let url = database_before(WHOLE, world_before("-- ==== a withdrawal that was made after all")).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    let before = entries(&mut owner).await;
    assert!(before.len() > 50, "{before:?}");

    // What is in the way is named, and nothing is changed.
    let config = stores::database_config(&url);
    let migrate = || Db::migrate(&config, Ids::seeded(Clock::system(), 1));
    for (hollow, what) in [
        ("INSERT INTO ledger_transactions (transaction_id, kind, created_at) VALUES ('PAYOUT:x', 'PAYOUT', now())",
         "bookings without entries"),
        ("INSERT INTO ledger_entries (transaction_id, account_id, amount) VALUES ('PAYOUT:x', 'MERCHANT:m:CNY', 1)",
         "entries without a booking"),
        ("INSERT INTO ledger_transactions (transaction_id, kind, created_at) VALUES ('PAYOUT:x', 'PAYOUT', now());
          INSERT INTO ledger_entries (transaction_id, account_id, amount)
          VALUES ('PAYOUT:x', 'USER_HELD:m:u:CNY', 1), ('PAYOUT:x', 'USER_HELD:m:v:CNY', -1)",
         "PAYOUT:x was booked by hand"),
    ] {
        owner.execute("SET session_replication_role = replica").await.expect("triggers are off");
        owner.execute(hollow).await.expect("something odd");
        let seen = entries(&mut owner).await;
        let refused = migrate().await.expect_err(what).to_string();
        assert!(refused.contains(what), "{refused}");
        assert_eq!(entries(&mut owner).await, seen, "{what}");
        let gone = "DELETE FROM ledger_entries WHERE transaction_id = 'PAYOUT:x';
                    DELETE FROM ledger_transactions WHERE transaction_id = 'PAYOUT:x'";
        owner.execute(gone).await.expect("gone");
    }

    migrate().await.expect("this version");
    assert_eq!(entries(&mut owner).await, before);
    let db = Db::new(&config, Ids::seeded(Clock::system(), 1)).expect("a pool");
    let report = audit::audit(&db, datetime!(2030-01-01 00:00 UTC)).await.expect("an audit");
    assert!(report.ok, "{report:#?}");
    db.close().await;

    // What comes behind it is numbered behind it.
    let last: i64 = sqlx::query_scalar("SELECT max(entry_id) FROM ledger_entries")
        .fetch_one(&mut owner)
        .await
        .expect("a number");
    let app =
        TestApp::start_with(TestOptions { database_url: Some(url.clone()), ..TestOptions::default() }).await;
    app.top_up("N1", "u1", 10).await;
    let listed = app.get("/users/u1/entries").await.expect(200).body;
    let first = listed["data"][0]["entry_id"].as_i64().expect("a number");
    assert!(first > last, "{listed}, {last}");
    owner.close().await.expect("close");
    app.end().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn many_bookings_take_a_walk_of_them_and_not_one_for_each() {
    let many = "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
                SELECT 'PAYMENT:' || g, 'PAYMENT', now() FROM generate_series(1, 30000) AS g;
                INSERT INTO ledger_entries (transaction_id, account_id, amount)
                SELECT 'PAYMENT:' || g, account_id, amount
                FROM generate_series(1, 30000) AS g,
                     (VALUES ('CHANNEL:sandbox:CNY', 1), ('MERCHANT:m:CNY', -1)) AS entry (account_id, amount)";
    let url = database_before(WHOLE, many).await;
    let config = stores::database_config(&url);
    // With a look at all of them for each, 10,000 took 5.5 s and 20,000 took 32.
    let migrated = timeout(Duration::from_secs(40), Db::migrate(&config, Ids::seeded(Clock::system(), 1)));
    migrated.await.expect("a walk of them").expect("this version");
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM ledger_entries")
        .fetch_one(&mut owner)
        .await
        .expect("a count");
    assert_eq!(count, 60_000);
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_was_charged_without_a_quota_counts_from_then_on() {
    let world = "INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key,
             key_currency, key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota,
             estimated_units, units, counted_units, carries_fee, held, status, expires_at, created_at, updated_at)
         SELECT 'uh_' || n, 'm', 'r', 'u', product, 'k' || n, '', '', 'CNY', '', 'c', pricing, 0, quota, 10, units,
                counted, false, 0, status, now(), now(), now()
         FROM (VALUES (1, 'tokens', 'PER_UNIT', NULL, 7, 0, 'CONFIRMED'), (2, 'tokens', 'PER_UNIT', 100, 5, 5, 'CONFIRMED'),
                      (3, 'tokens', 'PER_UNIT', NULL, 9, 0, 'HELD'), (4, 'calls', 'PER_CALL', NULL, 9, 0, 'CONFIRMED'),
                      (5, 'calls', 'PER_CALL', NULL, 0, 0, 'CONFIRMED'), (6, 'calls', 'PER_CALL', NULL, 2, 0, 'EXPIRED'))
              AS hold (n, product, pricing, quota, units, counted, status);
         INSERT INTO usage_cycles (merchant_id, user_id, product_code, cycle, used_units) VALUES ('m', 'u', 'tokens', 'c', 5)";
    let url = database_before(COUNTS, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let used: Vec<(String, i64)> =
        sqlx::query_as("SELECT product_code, used_units FROM usage_cycles ORDER BY product_code")
            .fetch_all(&mut owner)
            .await
            .expect("cycles");
    assert_eq!(used, [("calls".to_owned(), 1), ("tokens".to_owned(), 12)]);
    let counted: Vec<i64> = sqlx::query_scalar("SELECT counted_units FROM usage_holds ORDER BY hold_id")
        .fetch_all(&mut owner)
        .await
        .expect("holds");
    assert_eq!(counted, [7, 5, 0, 1, 0, 0]);
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn events_that_nobody_has_looked_at_wait_in_the_queue_from_then_on() {
    let world =
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at, again_at,
                                     open_deliveries)
                 SELECT 'm', coalesce(open::text, 'new'), 'story.told', 1, '{}', '2029-12-31', again_at, open
                 FROM (VALUES (NULL::smallint, NULL::timestamptz), (-1, '2030-01-02'), (0, NULL), (1, NULL))
                      AS event (open, again_at)";
    let url = database_before(QUEUE, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let waiting =
        "SELECT is_again, order_no, extract(year FROM queued_at)::integer FROM outbox_queue ORDER BY 1";
    let waiting: Vec<(bool, String, i32)> =
        sqlx::query_as(waiting).fetch_all(&mut owner).await.expect("the queue");
    assert_eq!(waiting, [(false, "new".to_owned(), 2029), (true, "-1".to_owned(), 2030)]);
    owner.close().await.expect("close");
}

#[tokio::test]
async fn days_whose_lines_did_not_count_any_more_are_marked_and_no_others() {
    let world = "INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source,
                                              leased_until, created_at, updated_at, finished_at)
         SELECT name, name, day, day, day + interval '1 day', CASE WHEN ago IS NULL THEN 'MATCHING' ELSE 'DONE' END,
                'CHANNEL', day, day, day, now() - ago
         FROM (VALUES ('long ago', interval '6 days 1 hour'), ('of late', interval '5 days 23 hours'), ('under way', NULL))
              AS run (name, ago), (SELECT current_date - 9 AS day) AS past";
    let url = database_before(FORGOTTEN, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let marked = "SELECT channel, forgotten_at = finished_at + interval '6 days' FROM reconciliations
                  WHERE forgotten_at IS NOT NULL";
    let marked: Vec<(String, bool)> = sqlx::query_as(marked).fetch_all(&mut owner).await.expect("the days");
    assert_eq!(marked, [("long ago".to_owned(), true)]);
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_became_of_refunds_stray_money_and_commissions_is_carried_over_and_goes_on_from_there() {
    let world = world_before("-- ==== the histories");
    let url = database_before(HISTORIES, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    // Beside the two of which nothing was claimed back.
    let claimed_back = "INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor,
                                                 commission, clawed_back, currency, status, created_at, updated_at, version)
                        SELECT 'm', status, 'u', 100, 0.1, '{0.1}', 1, 10, clawed_back, 'CNY', status, '2029-12-31',
                               '2030-01-01', 2
                        FROM (VALUES ('SETTLED', 4), ('CLAWED_BACK', 10)) AS given (status, clawed_back)";
    owner.execute(claimed_back).await.expect("commissions");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let carried: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT to_status, format('%s %s %s', from_status, event, extract(year FROM created_at)), clawed_back
         FROM settlement_history WHERE order_no = to_status AND seq = 1 ORDER BY clawed_back",
    )
    .fetch_all(&mut owner)
    .await
    .expect("a history");
    let of_before = "SETTLED CARRIED_OVER 2030".to_owned();
    let expected = [("SETTLED".to_owned(), of_before.clone(), 4), ("CLAWED_BACK".to_owned(), of_before, 10)];
    assert_eq!(carried, expected);
    owner
        .execute("DELETE FROM settlement_history; DELETE FROM settlements WHERE order_no = status")
        .await
        .expect("gone");

    let go_on =
        "UPDATE refunds SET status = 'PROCESSING', updated_at = '2029-12-31 13:00' WHERE refund_id = 'rf_r'";
    owner.execute(go_on).await.expect("a refund goes on");
    let history: Vec<(String, String, i32)> = sqlx::query_as(
        "SELECT format('%s %s', coalesce(from_status, 'nothing'), event), to_status,
                extract(hour FROM created_at AT TIME ZONE 'UTC')::integer
         FROM refund_history WHERE refund_id = 'rf_r' ORDER BY seq",
    )
    .fetch_all(&mut owner)
    .await
    .expect("a history");
    let expected = [
        ("nothing CARRIED_OVER".to_owned(), "PENDING".to_owned(), 12),
        ("PENDING REQUESTED".to_owned(), "PROCESSING".to_owned(), 13),
    ];
    assert_eq!(history, expected);
    owner.close().await.expect("close");

    let db = Db::new(&stores::database_config(&url), Ids::seeded(Clock::system(), 1)).expect("a pool");
    let report = audit::audit(&db, datetime!(2030-01-01 00:00 UTC)).await.expect("an audit");
    let wrong: Vec<_> = report.checks.iter().filter(|check| check.violations > 0).collect();
    assert!(report.ok, "{wrong:#?}");
    db.close().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_commission_that_was_given_again_before_there_were_histories_is_carried_over_too() {
    let url = database_before(VERSIONS, "").await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    // Of the first all had been given again; of the second too, and a part was claimed back since; the others have all.
    let commissions =
        "INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission, clawed_back,
                                  currency, status, created_at, updated_at, version)
         SELECT 'm', order_no, 'u', 100, 0.1, '{0.1}', 1, 10, clawed_back, 'CNY', 'SETTLED', '2029-12-31', '2030-01-01', version
         FROM (VALUES ('A', 0, 3), ('B', 7, 5), ('C', 4, 2), ('D', 0, 1), ('E', 4, 9)) AS given (order_no, clawed_back, version);
         INSERT INTO settlement_history
         SELECT 'm', order_no, seq, 'SETTLED', 'SETTLED', event, clawed_back, '2030-01-01'
         FROM (VALUES ('B', 1, 'PART_CLAWED_BACK', 4), ('B', 2, 'PART_CLAWED_BACK', 7), ('C', 1, 'PART_CLAWED_BACK', 4),
                      ('E', 1, 'CARRIED_OVER', 4)) AS line (order_no, seq, event, clawed_back)";
    owner.execute(commissions).await.expect("commissions");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let lines =
        "SELECT string_agg(concat_ws(' ', order_no, seq, event, clawed_back), ', ' ORDER BY order_no, seq)
                 FROM settlement_history";
    let lines: String = sqlx::query_scalar(lines).fetch_one(&mut owner).await.expect("lines");
    let of_b = "B 1 CARRIED_OVER 0, B 2 PART_CLAWED_BACK 4, B 3 PART_CLAWED_BACK 7";
    assert_eq!(lines, format!("A 1 CARRIED_OVER 0, {of_b}, C 1 PART_CLAWED_BACK 4, E 1 CARRIED_OVER 4"));
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_refund_that_a_person_is_shown_to_be_made_after_all_is_marked_and_no_other() {
    let world = "INSERT INTO refunds (refund_id, refund_no, pay_order_id, amount, currency, status, reason, failure,
                                      channel_refund_id, created_at, updated_at)
         SELECT name, name, 'po', 1, 'CNY', 'FAILED', 'R', 'no', number, '2029-12-30', '2029-12-31'
         FROM (VALUES ('made', 'sr'), ('made and resolved', 'sr'), ('taken back', 'sr'), ('may be made', NULL))
              AS refund (name, number);
         INSERT INTO exceptions (exception_id, kind, subject, detail, status, action, resolved_by, reason, created_at, updated_at)
         SELECT 'ex ' || name, 'CONTRADICTION', name, format('sandbox had %s gone back, from trade t for po', said),
                CASE WHEN who IS NULL THEN 'OPEN' ELSE 'RESOLVED' END,
                CASE WHEN who IS NOT NULL THEN 'NONE' END, who, who, '2029-12-31', '2029-12-31'
         FROM (VALUES ('made', 'refused refund R of 1 CNY (minor units) and made it after all: it has', NULL),
                      ('made and resolved', 'refused refund R of 1 CNY (minor units) and made it after all: it has', 'anna'),
                      ('taken back', 'made refund R of 1 CNY (minor units) and says that it failed, and cannot be asked now: it \
                                     may not have', NULL),
                      ('may be made', 'refused refund R of 1 CNY (minor units) and says that it made it, and cannot be asked \
                                      now: it may have', NULL)) AS told (name, said, who)";
    let url = database_before(MADE_AFTER_ALL, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let marked =
        "SELECT refund_id, made_after_all_at = updated_at FROM refunds WHERE made_after_all_at IS NOT NULL";
    let marked: Vec<(String, bool)> = sqlx::query_as(marked).fetch_all(&mut owner).await.expect("refunds");
    assert_eq!(marked, [("made".to_owned(), true)]);
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_was_made_after_all_before_it_was_booked_is_booked_and_told_once() {
    // A sale, a top-up whose user has 10 left, stray money that is held, and such that somebody without a merchant has kept.
    let world = "INSERT INTO orders (merchant_id, order_no, user_id, kind, status, amount, currency, paid_by, paid_at, expires_at,
                                     attempts, created_at, updated_at, version)
         SELECT 'm', order_no, 'u', kind, 'PAID', 100, 'CNY', pay_order_id, '2029-12-31', '2029-12-31', 1, '2029-12-31', '2029-12-31', 2
         FROM (VALUES ('A', 'SALE', 'po_a'), ('T', 'TOPUP', 'po_t')) AS paid (order_no, kind, pay_order_id);
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                 transaction_id, paid_at, expires_at, created_at, updated_at, version)
         SELECT pay_order_id, 'm', order_no, 'u', 'sandbox', 'PAID', 100, 'CNY', pay_order_id, '2029-12-31', '2029-12-31', '2029-12-31', '2029-12-31', 3
         FROM (VALUES ('po_a', 'A'), ('po_t', 'T')) AS attempt (pay_order_id, order_no);
         INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, merchant_id, amount, currency, reason, status,
                                     paid_at, created_at, updated_at)
         SELECT stray_id, 'sandbox', stray_id, stray_id, merchant_id, 30, 'CNY', 'UNKNOWN_ORDER', status, '2029-12-31', '2029-12-31',
                '2029-12-31'
         FROM (VALUES ('held', 'm', 'HELD'), ('kept', NULL, 'KEPT')) AS stray (stray_id, merchant_id, status);
         INSERT INTO refunds (refund_id, refund_no, merchant_id, order_no, pay_order_id, stray_id, amount, currency, status, reason,
                              failure, channel_refund_id, made_after_all_at, created_at, updated_at)
         SELECT name, name, merchant_id, order_no, pay_order_id, stray_id, 30, 'CNY', 'FAILED', 'R', 'no', 'c', made_at::timestamptz,
                '2029-12-30', '2029-12-31'
         FROM (VALUES ('sale', 'm', 'A', 'po_a', NULL, '2029-12-31'), ('top-up', 'm', 'T', 'po_t', NULL, '2029-12-31'),
                      ('held', 'm', NULL, NULL, 'held', '2029-12-31'), ('kept', NULL, NULL, NULL, 'kept', '2029-12-31'),
                      ('taken back', 'm', 'A', 'po_a', NULL, NULL))
              AS refund (name, merchant_id, order_no, pay_order_id, stray_id, made_at);
         INSERT INTO accounts (account_id, kind, merchant_id, user_id, currency, sense, balance, created_at, updated_at)
         VALUES ('USER_AVAILABLE:m:u:CNY', 'USER_AVAILABLE', 'm', 'u', 'CNY', -1, 10, '2029-12-31', '2029-12-31')";
    let url = database_before(AFTER_ALL_BOOKED, world).await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    let (_, again) = include_str!("../../migrations/0069_refunds_after_all_booked.sql")
        .split_once("-- What is known by now.")
        .expect("what may be run again");
    for _ in 0..2 {
        let booked = "SELECT string_agg(concat_ws(' ', transaction_id, account_ids, amounts, merchant_id, order_no), '; '
                                        ORDER BY transaction_id)
                      FROM ledger_transactions WHERE kind = 'REFUND_AFTER_ALL'";
        let booked: String = sqlx::query_scalar(booked).fetch_one(&mut owner).await.expect("bookings");
        assert_eq!(
            booked,
            "REFUND_AFTER_ALL:held:1 {CHANNEL:sandbox:CNY,SUSPENSE:sandbox:CNY} {-30,30} m; \
             REFUND_AFTER_ALL:kept:1 {CHANNEL:sandbox:CNY,PLATFORM_REVENUE:CNY} {-30,30}; \
             REFUND_AFTER_ALL:sale:1 {CHANNEL:sandbox:CNY,MERCHANT:m:CNY} {-30,30} m A; \
             REFUND_AFTER_ALL:top-up:1 {CHANNEL:sandbox:CNY,USER_AVAILABLE:m:u:CNY,USER_RECEIVABLE:m:u:CNY} {-30,10,20} m T"
        );
        let told =
            "SELECT string_agg(concat_ws(' ', payload ->> 'refund_no', payload ->> 'owed'), ', ' ORDER BY id)
                    FROM outbox WHERE event = 'refund.made_after_all'";
        let told: String = sqlx::query_scalar(told).fetch_one(&mut owner).await.expect("events");
        assert_eq!(told, "held 0, kept 0, sale 0, top-up 20");
        owner.execute(AssertSqlSafe(format!("--{again}"))).await.expect("it may be run again");
    }
    owner.close().await.expect("close");
    stores::drop_database(&url).await;
}
