//! No plan of a statement that takes a batch, or looks up by a name or a task's subject, walks a table or an index from end
//! to end, whatever PostgreSQL believes of the tables: a plan is made once for each connection, and tables look
//! otherwise an hour later.

use std::collections::HashMap;

use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Conn, Db, Tx};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::support::{TestApp, TestOptions, stores};

mod ages;
mod audits;
mod counts;
mod holds;
mod lists;
mod retries;
mod settlements;

/// What the tables look like when the plans are made.
fn worlds() -> [(&'static str, String); 2] {
    [
        ("nothing was ever looked at", String::new()),
        ("a quiet night: much is over, little is open", quiet_night(20_000)),
    ]
}

/// No more than so many rows of each table.
fn quiet_night(most: u32) -> String {
    let few = |seed: String, rows: u32| {
        let (wanted, given) = (format!("{{{rows}}}"), rows.min(most).to_string());
        assert!(seed.contains(&wanted), "tables of {rows} rows");
        seed.replace(&wanted, &given)
    };
    let seed = [20_000, 10_000, 5_000, 1_000]
        .into_iter()
        .fold(include_str!("plans/quiet_night.sql").to_owned(), few);
    format!("{seed} {ANALYZE}")
}

/// Looks at every table of ours. The command for all tables would look at those that all databases share, and whoever looks
/// at one of these in a transaction keeps the stories beside it waiting.
const ANALYZE: &str = "DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'sandbox') LOOP
        EXECUTE 'ANALYZE ' || name;
    END LOOP;
END $$;";

/// Every table was vacuumed while there was nothing in it: each counts as no page, until it is analyzed.
const EMPTIED: (&str, &str) = (
    "all was gone when it was vacuumed",
    "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relkind = 'r'
     AND relnamespace IN ('public'::regnamespace, 'sandbox'::regnamespace)",
);

/// What a statement has that joins a batch, looks up by a name or a task's subject, or compares a day.
const KEYED: [&str; 6] =
    ["unnest(", "id = $", "subject = $", "id = ANY($", "order_no = $", "statement_lines"];
/// Few rows: one for each shop, for each run, for each channel and day, for each shop whose address rests; and indexes of
/// what is not done.
const SMALL: [&str; 4] = ["merchants", "settlement_runs", "reconciliations", "resting_lanes"];
const SMALL_INDEXES: [&str; 1] = ["reconciliations_open"];

/// Every statement that is checked against the schema.
fn all_statements() -> impl Iterator<Item = String> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let read = |entry: std::io::Result<std::fs::DirEntry>| -> Value {
        serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap()
    };
    std::fs::read_dir(directory).unwrap().map(read).map(|cached| cached["query"].as_str().unwrap().to_owned())
}

/// Statements as they were checked against the schema.
pub fn statements(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    all_statements().filter(|text| is_wanted(text)).collect()
}

/// Statements that join a batch, or look up by a name or a task's subject, as they were checked against the schema.
fn keyed_statements() -> Vec<String> {
    let is_keyed = |text: &str| KEYED.iter().any(|key| text.contains(key)) && text.contains("$1");
    // The invariants look at everything, and the sandbox's tables are empty in these worlds.
    let is_other = |text: &str| text.contains("WITH clock AS") || text.contains("sandbox.");
    statements(|text| is_keyed(text) && !is_other(text))
}

/// The generic plan of a statement, made with the settings of the service's own connections.
async fn plan(conn: &mut Conn, statement: &str) -> Value {
    let count = (1..).take_while(|number| statement.contains(&format!("${number}"))).count();
    let nothing = if count == 0 { String::new() } else { format!("({})", vec!["NULL"; count].join(", ")) };
    run(conn, &format!("PREPARE batch AS {statement}")).await;
    let explain = AssertSqlSafe(format!("EXPLAIN (FORMAT JSON) EXECUTE batch{nothing}"));
    let plan: Value = sqlx::query_scalar(explain).fetch_one(&mut *conn).await.expect("a plan");
    run(conn, "DEALLOCATE batch").await;
    plan
}

pub async fn run(conn: &mut Conn, sql: &str) {
    let outcome = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *conn).await;
    outcome.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// A world, until the transaction is dropped; with the settings of the service's own connections.
async fn enter(config: &DatabaseConfig, seed: &str) -> Tx {
    let db = Db::new(config, Ids::seeded(Clock::system(), 1)).unwrap();
    let mut tx = db.begin().await.unwrap();
    run(&mut tx, "SET LOCAL ROLE NONE").await;
    run(&mut tx, seed).await;
    tx
}

/// Shows every part of a plan, from the top down.
fn each_part(node: &Value, see: &mut impl FnMut(&Value)) {
    see(node);
    match node {
        Value::Array(parts) => parts.iter().for_each(|part| each_part(part, see)),
        Value::Object(fields) => fields.values().for_each(|part| each_part(part, see)),
        _ => {}
    }
}

/// The first column of each index.
async fn first_columns(conn: &mut Conn) -> HashMap<String, String> {
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT relname::text, pg_get_indexdef(oid, 1, true) FROM pg_class WHERE relkind = 'i'",
    )
    .fetch_all(conn)
    .await
    .expect("columns");
    columns.into_iter().collect()
}

/// The nodes that read a table or an index without looking up the beginning of a key.
fn walks(plan: &Value, first_columns: &HashMap<String, String>, found: &mut Vec<String>) {
    each_part(plan, &mut |node| {
        let kind = node["Node Type"].as_str().unwrap_or_default();
        let first = node["Index Name"].as_str().and_then(|index| first_columns.get(index));
        let text = |name: &str| node[name].as_str().unwrap_or_default();
        let (entry, filter) = (text("Index Cond"), text("Filter"));
        // By a range of the first column only where no id is known: one that is known is looked up.
        let knows_id =
            || [entry, filter].iter().any(|text| ["_id = ", "(id = "].iter().any(|id| text.contains(id)));
        let looks_up = first.is_some_and(|first| {
            entry.contains(&format!("({first} = ")) || entry.contains(&format!("({first}")) && !knows_id()
        });
        let is_one_of = |names: &[&str], field: &str| names.iter().any(|name| node[field] == **name);
        let is_small = is_one_of(&SMALL, "Relation Name") || is_one_of(&SMALL_INDEXES, "Index Name");
        if kind == "Seq Scan" && !is_small
            || (kind.contains("Index") && kind.contains("Scan") && !looks_up && !is_small)
        {
            found.push(format!(
                "{kind} of {} {} {}",
                node["Relation Name"], node["Index Name"], node["Index Cond"]
            ));
        }
    });
}

#[tokio::test]
async fn no_plan_of_a_batch_or_of_a_look_up_walks_a_table_from_end_to_end() {
    let statements = keyed_statements();
    assert!(statements.len() >= 150, "{} statements were found", statements.len());
    let config = stores::database_config(&stores::fresh_database().await);
    let mut walking = Vec::new();
    // Some of everything, analyzed before the crowd comes.
    for (world, seed) in worlds().into_iter().chain([("a shop's first day", quiet_night(30))]) {
        let mut tx = enter(&config, &seed).await;
        let first = first_columns(&mut tx).await;
        // These worlds have no withdrawals: what joins them to a statement is looked at by itself below.
        let of_both = |text: &&String| text.contains("statement_lines") && text.contains("withdrawals");
        for statement in statements.iter().filter(|text| !of_both(text)) {
            let mut found = Vec::new();
            walks(&plan(&mut tx, statement).await, &first, &mut found);
            if !found.is_empty() {
                walking.push(format!("{world}: {found:?} in {statement}"));
            }
        }
    }
    assert!(walking.is_empty(), "{}", walking.join("\n\n"));
}

/// Books so many bookings between a merchant and users, each of a name with that beginning, and gives how many rows of
/// accounts were read for it.
async fn rows_read_to_book(tx: &mut Tx, name: &str, bookings: i32) -> i64 {
    let read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'accounts'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut **tx).await.expect("a figure");
    let book = format!(
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         SELECT 'SETTLEMENT:{name}' || g, 'SETTLEMENT', now(),
                ARRAY['COMMISSION_EXPENSE:shop:CNY', format('USER_AVAILABLE:shop:u%s:CNY', g)], '{{1,-1}}'
         FROM generate_series(1, {bookings}) AS g"
    );
    run(tx, &book).await;
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut **tx).await.expect("a figure");
    after - before
}

#[tokio::test]
async fn a_booking_looks_up_its_accounts_also_where_they_were_few_when_its_plan_was_made() {
    let config = stores::database_config(&stores::fresh_database().await);
    let open = |first: i32, last: i32| {
        format!(
            "INSERT INTO accounts (account_id, created_at, updated_at)
             SELECT format('USER_AVAILABLE:shop:u%s:CNY', g), now(), now() FROM generate_series({first}, {last}) AS g"
        )
    };
    for (few, first) in [(2, 500), (30, 300)] {
        let seed = format!(
            "{}; INSERT INTO accounts (account_id, created_at, updated_at)
                 VALUES ('COMMISSION_EXPENSE:shop:CNY', now(), now()); ANALYZE accounts; {}",
            open(1, few),
            open(few + 1, first)
        );
        let mut tx = enter(&config, &seed).await;
        rows_read_to_book(&mut tx, "few", first).await;
        run(&mut tx, &open(first + 1, 20_000)).await;
        let read = rows_read_to_book(&mut tx, "many", 500).await;
        assert!(read < 10_000, "{few}: {read} rows of accounts were read for 500 bookings");
    }
}

/// What is open is little beside what is over: these hold nothing else, and may be walked by whoever looks at all of it.
const OF_WHAT_IS_OPEN: [&str; 4] =
    ["outbox_queue", "deliveries_dead", "deliveries_open_by_age", "resting_lanes"];

#[tokio::test]
async fn no_statement_about_what_is_told_walks_what_was_told_before() {
    let is_told =
        |text: &String| ["deliveries", "resting_lanes", "outbox"].iter().any(|name| text.contains(name));
    let is_other = |text: &String| text.contains("WITH clock AS") || text.contains("sandbox.");
    let statements: Vec<String> = all_statements().filter(is_told).filter(|text| !is_other(text)).collect();
    for what in ["DELETE FROM deliveries", "SELECT true, id, merchant_id", "event.created_at >= $2"] {
        assert!(statements.iter().any(|text| text.contains(what)), "{what}: a statement of this story");
    }
    let config = stores::database_config(&stores::fresh_database().await);
    let mut walking = Vec::new();
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        let first = first_columns(&mut tx).await;
        for statement in &statements {
            let mut found = Vec::new();
            walks(&plan(&mut tx, statement).await, &first, &mut found);
            let is_small = |walk: &String| OF_WHAT_IS_OPEN.iter().any(|name| walk.contains(name));
            let is_ours = |walk: &String| ["outbox", "deliveries"].iter().any(|name| walk.contains(name));
            found.retain(|walk| is_ours(walk) && !is_small(walk));
            if !found.is_empty() {
                walking.push(format!("{world}: {found:?} in {statement}"));
            }
        }
    }
    assert!(walking.is_empty(), "{}", walking.join("\n\n"));
}

/// Rows that were read of some tables, by any way.
async fn rows_read(app: &TestApp, tables: &[&str]) -> Vec<(String, i64)> {
    let read = "SELECT relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
                WHERE schemaname = 'public' AND relname = ANY($1) ORDER BY relname";
    let mut conn = app.direct_connection().await;
    sqlx::query_as(read).bind(tables).fetch_all(&mut conn).await.expect("figures")
}

#[tokio::test]
async fn a_list_reads_what_it_shows_and_not_what_is_over() {
    let app = TestApp::start().await;
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_REFUND', 'rf_' || g, 'demo', 'O' || g, 'DONE', 1, now(), now(), now()
         FROM generate_series(1, 20000) AS g;
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT 'demo', 'O' || g, 'story.told', 1, '{}', now() FROM generate_series(1, 20000) AS g;
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, 'demo', '{}', 'DELIVERED', now(), now(), now()
         FROM outbox",
    )
    .await;
    // A connection tells what it read when it is closed.
    let looking = TestApp::start_with(TestOptions::over(&app)).await;
    let tables = ["compensations", "deliveries", "outbox"];
    let before = rows_read(&app, &tables).await;
    for path in [
        "/admin/compensations?subject=rf_7",
        "/admin/compensations?merchant_id=demo&order_no=O7",
        "/admin/compensations?order_no=O7",
        "/admin/compensations?status=DEAD",
        "/admin/compensations?status=READY",
        "/admin/compensations",
        "/admin/outbox?merchant_id=demo&order_no=O7",
        "/admin/outbox?status=NEW",
        "/admin/outbox?status=PENDING",
        "/admin/outbox?status=DEAD",
        "/admin/outbox?status=PUBLISHED",
        "/admin/outbox",
    ] {
        // Often enough for a plan that knows nothing of what is asked for.
        for _ in 0..8 {
            let shown =
                looking.admin_get(path).await.expect(200).body["data"].as_array().expect("a page").len();
            let is_one = path.contains("O7") || path.contains("rf_7");
            assert!(shown == 20 || shown == usize::from(is_one), "{path}: {shown}");
        }
    }
    looking.instance.app.db.close().await;
    let after = rows_read(&app, &tables).await;
    for ((table, before), (_, after)) in before.into_iter().zip(after) {
        println!("{} rows of {table} were read", after - before);
        // One walk is more.
        assert!(after - before < 20_000, "{} rows of {table} were read", after - before);
    }
    app.sql("DELETE FROM compensations; DELETE FROM deliveries; DELETE FROM outbox").await;
    app.end().await;
}

#[tokio::test]
async fn a_claim_finds_what_is_due_in_its_lane_past_any_number_of_done_tasks() {
    let claims = statements(|text| text.contains("compensation_lanes AS resting"));
    assert_eq!(claims.len(), 1);
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        let plan = plan(&mut tx, &claims[0]).await.to_string();
        // On the inner side of a join it would be carried out for each row of the other, and take a batch each time.
        assert!(plan.contains("CTE due"), "{world}: what is due is found once: {plan}");
        let cond = plan.split("compensations_due").nth(1).unwrap_or_else(|| panic!("{world}: {plan}"));
        assert!(cond.contains("lane = $3") && cond.contains("due_at <= $1"), "{world}: {plan}");
    }
}

#[tokio::test]
async fn a_claim_walks_no_queue_that_was_empty_when_its_plan_was_made() {
    let claims = [
        "compensation_lanes AS resting",
        "`claim_due`: takes what is due",
        "`take_waiting`: takes events",
        "`discard_unaddressed`: takes new events",
        "AS \"is_first_unaddressed!\"",
        "UPDATE sandbox.deliveries\n         SET attempts",
    ];
    let claims = claims.map(|begin| statements(|text| text.contains(begin)));
    assert!(claims.iter().all(|found| found.len() == 1), "{claims:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds().into_iter().chain([(EMPTIED.0, EMPTIED.1.to_owned())]) {
        let mut tx = enter(&config, &seed).await;
        let first = first_columns(&mut tx).await;
        for claim in claims.iter().flatten() {
            let mut found = Vec::new();
            walks(&plan(&mut tx, claim).await, &first, &mut found);
            assert!(found.is_empty(), "{world}: {found:?} in {claim}");
        }
    }
}

#[tokio::test]
async fn money_at_risk_is_found_past_all_that_is_over() {
    let sums = statements(|text| text.contains("'CHANNEL;'"));
    assert_eq!(sums.len(), 1);
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        let (mut ways, plan) = (Vec::new(), plan(&mut tx, &sums[0]).await);
        each_part(&plan, &mut |node| {
            let scanned = node["Relation Name"].as_str().filter(|_| node["Node Type"] == "Seq Scan");
            ways.extend(node["Index Name"].as_str().or(scanned).map(str::to_owned));
        });
        ways.sort_unstable();
        let expected = [
            "accounts_pkey",
            "exceptions_one_open",
            "exceptions_one_open",
            "last_audit",
            "reconciliation_items_open",
            "reconciliation_items_pkey",
            "refunds_of_stray",
            "refunds_pkey",
            "refunds_unfinished",
            "stray_payments_pkey",
            "stray_payments_unfinished",
            "withdrawals_pkey",
            "withdrawals_unfinished",
        ];
        assert_eq!(ways, expected, "{world}");
    }
}

/// The conditions by which an index is entered, each with the index.
fn entries(plan: &Value, found: &mut Vec<(String, String)>) {
    each_part(plan, &mut |node| {
        let text = |name: &str| node[name].as_str().map(str::to_owned);
        if let (Some(index), Some(condition)) = (text("Index Name"), text("Index Cond")) {
            found.push((index, condition));
        }
    });
}

#[tokio::test]
async fn a_range_of_a_comparison_reads_only_what_is_of_it() {
    let statements = keyed_statements();
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        let begins = [
            "-- A range of the statement's lines",
            "-- What was recorded here in a stretch",
            "WITH listed_elsewhere",
        ];
        for begin in begins {
            let statement = statements.iter().find(|text| text.starts_with(begin)).expect("a walk");
            let mut found = Vec::new();
            entries(&plan(&mut tx, statement).await, &mut found);
            assert!(!found.is_empty());
            for (index, condition) in found {
                let needs = match index.as_str() {
                    "trades_pkey" => "transaction_id",
                    "statement_lines_by_key" => "channel_id",
                    "statement_lines_by_our_id" => "our_id",
                    _ => continue,
                };
                assert!(condition.contains(needs), "{world}: {index} by {condition} in {begin}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_merchant_has_sent_again_is_a_range_of_its_own_events() {
    let again = statements(|text| text.contains("event.created_at >= $2"));
    assert_eq!(again.len(), 1);
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        let mut found = Vec::new();
        let plan = plan(&mut tx, &again[0]).await;
        entries(&plan, &mut found);
        // In the order of the index, so that a look ends at its limit.
        each_part(&plan, &mut |node| {
            let is_range = node["Index Name"] == "outbox_of_merchant";
            assert!(!is_range || node["Node Type"] == "Index Only Scan", "{world}: {node}");
        });
        let (ranges, keys): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(index, _)| index == "outbox_of_merchant");
        let [(_, range)] = &ranges[..] else { panic!("{world}: {ranges:?} {keys:?}") };
        for part in ["merchant_id = $1", "created_at >= $2", "ROW(created_at, id) >"] {
            assert!(range.contains(part), "{world}: {range}");
        }
        let of_outbox: Vec<_> = keys.iter().filter(|(index, _)| index.starts_with("outbox")).collect();
        let is_key = |(index, by): &(String, String)| match index.as_str() {
            "outbox_pkey" => by.contains("id = "),
            "outbox_queue_pkey" => by.contains("event_id = "),
            _ => false,
        };
        assert!(of_outbox.iter().all(|entry| is_key(entry)), "{world}: {of_outbox:?}");
    }
}

/// The scans of a table: (index, filter).
fn scans_of(plan: &Value, table: &str, found: &mut Vec<(String, Value)>) {
    each_part(plan, &mut |node| {
        if node["Relation Name"] == table {
            let index = node["Index Name"].as_str().unwrap_or("no index");
            found.push((index.to_owned(), node["Filter"].clone()));
        }
    });
}

#[tokio::test]
async fn an_end_of_a_comparison_looks_at_the_charges_of_its_months_alone_and_a_refund_at_its_order_s() {
    let (listed, asked) = (
        statements(|text| text.contains("UPDATE reconciliation_items SET listed_at")),
        statements(|text| text.contains("charge.kind = 'COMPENSATING_CHARGE'")),
    );
    assert_eq!((listed.len(), asked.len()), (2, 1));
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        for (texts, index, parts) in [
            (&listed, "reconciliation_items_charged", ["channel = $2", "at >= $", "at < $"].as_slice()),
            (&asked, "ledger_transactions_of_charges", &["merchant_id = ", "order_no = "]),
        ] {
            for text in texts {
                let mut found = Vec::new();
                entries(&plan(&mut tx, text).await, &mut found);
                let entry = found.iter().find(|(entered, _)| entered == index);
                let (_, condition) = entry.unwrap_or_else(|| panic!("{world}: {found:?} in {text}"));
                assert!(parts.iter().all(|part| condition.contains(part)), "{world}: {index} by {condition}");
            }
        }
    }
}
