//! The binary itself: what it says, how it ends, and that it keeps secrets to itself.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::doctor::sql;
use crate::support::stores;
use crate::support::usage::Usage;

const SECRET: &str = "a-secret-of-more-than-24-bytes";
const OPERATOR: &str = "an-operator-token-of-30-bytes!";

/// A right environment, but for what a case changes.
pub fn environment(database_url: &str, redis_url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("DATABASE_URL", database_url.to_owned()),
        ("REDIS_URL", redis_url.to_owned()),
        ("ADMIN_TOKENS", format!("operator@anna:{OPERATOR}")),
        ("ENCRYPTION_KEY", SECRET.to_owned()),
        ("SANDBOX_SECRET", SECRET.to_owned()),
        ("BIND_ADDR", "127.0.0.1:0".to_owned()),
    ]
}

/// The binary in an environment of its own, and in a directory without a `.env`.
pub fn payonce(arguments: &[&str], environment: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.args(arguments).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub async fn run(arguments: &[&str], environment: &[(&'static str, String)]) -> Output {
    let output = payonce(arguments, environment).output();
    tokio::time::timeout(Duration::from_secs(60), output).await.expect("it ends").expect("it runs")
}

pub fn fresh_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(stores::fresh_name());
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

#[tokio::test]
async fn a_wrong_configuration_stops_the_start_and_says_which_variable() {
    let right = environment("postgres://u:p@127.0.0.1:1/x", "redis://127.0.0.1:1");
    let cases = [
        ("DATABASE_URL", ""),
        ("DATABASE_URL", "mysql://u:hush-hush@h/x"),
        ("REDIS_URL", ""),
        ("REDIS_URL", "http://h"),
        ("ADMIN_TOKENS", ""),
        ("ADMIN_TOKENS", "operator:hush-hush"),
        ("ADMIN_TOKENS", "root:hush-hush-hush-hush-hush-hush"),
        ("ADMIN_TOKENS", "hush-hush-hush-hush-hush-hush-hush"),
        ("ENCRYPTION_KEY", ""),
        ("ENCRYPTION_KEY", "hush-hush"),
        ("SANDBOX_SECRET", "hush-hush"),
        ("BIND_ADDR", "here"),
        ("BIND_ADDR", "127.0.0.1:99999"),
        ("PUBLIC_URL", "ftp://x"),
        ("PUBLIC_URL", "https://pay.shop.example/pay"),
        ("RUST_LOG", "payonce=loud"),
        ("CORS_ORIGINS", "*"),
        ("LOG_FORMAT", "xml"),
        ("ORDER_TIMEOUT_SECONDS", "0"),
        ("DATABASE_POOL_SIZE", "1e3"),
        ("LOCK_TTL_MS", "1"),
    ];
    for (name, value) in cases {
        let mut environment = right.clone();
        environment.retain(|(known, _)| *known != name);
        environment.push((name, value.to_owned()));
        let output = run(&["serve"], &environment).await;
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{name}={value}: {said}");
        assert!(said.contains(name) && said.contains("expected"), "{name}={value}: {said}");
        assert!(!said.contains("hush-hush") && !said.contains("panicked"), "{name}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test]
async fn a_time_zone_that_the_database_does_not_know_stops_the_start() {
    let mut environment = environment(&stores::fresh_database().await, "redis://127.0.0.1:1");
    environment.push(("RECON_TZ", "Mars/Olympus".to_owned()));
    let output = run(&["serve"], &environment).await;
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in ["RECON_TZ", "expected", "Mars/Olympus"] {
        assert!(said.contains(word), "{said}");
    }
}

#[tokio::test]
async fn usage_errors_end_with_2() {
    let too_long = "x".repeat(501);
    for arguments in [
        &["nonsense"][..],
        &[],
        &["serve", "--roles", "kitchen"],
        &["audit", "-o", "xml"],
        &["merchant", "create"],
        &["merchant", "create", "not an id"],
        &["merchant", "key", "m", "--overlap", "-1", "--reason", "x"],
        &["merchant", "key", "m"],
        &["admin"],
        &["admin", "nonsense"],
        &["admin", "timeline"],
        &["admin", "rotate-keys", "m"],
        &["admin", "orders", "--limit", "many"],
        &["doctor", "--instances", "0"],
        &["settle", "--older-than-days", "36501", "--dry-run"],
        &["settle", "--older-than-days", "4500000", "--dry-run"],
        &["settle", "--older-than-days", "30", "--reason", ""],
        &["settle", "--older-than-days", "30", "--reason", &too_long],
        &["sweep", "--reason", " "],
        &["sweep", "--reason", &too_long],
        &["reconcile", "--channel", "sandbox", "--date", "2026-11-20", "--reason", ""],
        &["reconcile", "--channel", "sandbox", "--date", "2026-11-20", "--reason", &too_long],
        &["--surprise"],
    ] {
        let output = run(arguments, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        // Every one says where to read on.
        assert!(errors(&output).contains("help"), "{arguments:?}: {}", errors(&output));
    }
    assert_eq!(run(&["--help"], &[]).await.status.code(), Some(0));
    assert_eq!(run(&["--version"], &[]).await.status.code(), Some(0));
}

#[tokio::test]
async fn openapi_prints_the_document_without_any_environment() {
    let output = run(&["openapi"], &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let document = json_of(&output);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    assert!(document["paths"]["/pay/url"]["post"].is_object());
    // Who reads no further has heard enough; a disk that is full is told.
    for (how, code) in [("\"$0\" openapi | true", Some(0)), ("\"$0\" openapi > /dev/full", Some(1))] {
        let heard = Command::new("sh").args(["-c", how, env!("CARGO_BIN_EXE_payonce")]).output().await;
        let heard = heard.expect("it runs");
        assert_eq!(heard.status.code(), code, "{how}: {}", errors(&heard));
        assert!(!errors(&heard).contains("panicked"), "{how}: {}", errors(&heard));
    }
}

/// A database without a single table.
pub async fn empty_database() -> String {
    let url = stores::fresh_database().await;
    let mut conn = PgConnection::connect(&url).await.expect("connect");
    for statement in
        ["DROP SCHEMA IF EXISTS sandbox CASCADE", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public"]
    {
        sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.expect("emptied");
    }
    conn.close().await.expect("closed");
    url
}

#[tokio::test]
async fn migrate_works_on_an_empty_database_and_again() {
    let url = empty_database().await;
    let environment = [("DATABASE_URL", url.clone())];
    for _ in 0..2 {
        let output = run(&["migrate"], &environment).await;
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    }
    let output = run(&["-o", "json", "audit"], &environment).await;
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    stores::drop_database(&url).await;

    let gone = [("DATABASE_URL", "postgres://u:hush-hush@127.0.0.1:1/x".to_owned())];
    let output = run(&["migrate"], &gone).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("payonce: ") && !errors(&output).contains("hush-hush"),
        "{}",
        errors(&output)
    );
}

#[tokio::test]
async fn what_goes_by_a_migration_that_is_not_applied_does_not_start() {
    let url = empty_database().await;
    let environment = environment(&url, "redis://127.0.0.1:1");
    let by_hand = ["sweep", "--dry-run"];
    for asked in [&["serve", "--no-migrate"][..], &by_hand, &["audit"], &["admin", "overview"]] {
        let output = run(asked, &environment).await;
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{asked:?}: {said}");
        assert!(said.contains("from 0001") && said.contains("`payonce migrate` applies them"), "{said}");
    }
    assert_eq!(run(&["migrate"], &environment).await.status.code(), Some(0));
    let output = run(&by_hand, &environment).await;
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    // One of a newer version is no reason.
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (999999, 'of a newer version', true, '\\x00', 0)";
    sql(&url, newer).await;
    let output = run(&by_hand, &environment).await;
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_schema_of_another_name_serves_as_well() {
    let url = empty_database().await;
    let elsewhere = "CREATE SCHEMA shop;
                     DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = shop', current_database()); END $$";
    sql(&url, elsewhere).await;
    let environment = environment(&url, "redis://127.0.0.1:1");
    for asked in [&["migrate"][..], &["sweep", "--dry-run"], &["audit"]] {
        let output = run(asked, &environment).await;
        assert_eq!(output.status.code(), Some(0), "{asked:?}: {}", errors(&output));
    }
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_migration_waits_for_the_one_under_way_however_long_that_takes() {
    let url = stores::fresh_database().await;
    let mut other = PgConnection::connect(&url).await.expect("connect");
    let turn = "SELECT pg_advisory_lock(hashtextextended('payonce.migrate', 0))";
    sqlx::query(turn).execute(&mut other).await.expect("its turn");
    let begun = Instant::now();
    let environment = [("DATABASE_URL", url.clone())];
    let waits = async {
        let output = run(&["migrate"], &environment).await;
        (output, begun.elapsed())
    };
    let ends = async {
        // Longer than anybody waits for a lock.
        tokio::time::sleep(Duration::from_secs(4)).await;
        other.close().await.expect("closed");
    };
    let ((output, took), ()) = tokio::join!(waits, ends);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(took >= Duration::from_secs(4), "it did not wait: {took:?}");
    assert!(errors(&output).contains("is waited for"), "{}", errors(&output));
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn dev_refuses_the_database_of_a_shop_before_it_touches_it() {
    let url = empty_database().await;
    let mut shop = PgConnection::connect(&url).await.expect("connect");
    // Of a version before any migration there is.
    for statement in ["CREATE TABLE merchants (merchant_id text)", "INSERT INTO merchants VALUES ('my-shop')"]
    {
        sqlx::query(statement).execute(&mut shop).await.expect(statement);
    }
    let environment = environment(&url, "redis://127.0.0.1:1");
    // Nor does it read what lies there for the shop's own service.
    let dir = fresh_dir();
    std::fs::write(dir.join(".env"), "PUBLIC_URL=https://pay.shop.example/pay\n").expect("written");
    let output = payonce(&["dev"], &environment).current_dir(&dir).output().await.expect("it runs");
    std::fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("my-shop") && errors(&output).contains("nothing was changed"),
        "{output:?}"
    );
    let tables =
        "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(&mut shop).await.expect("counted");
    assert_eq!(tables, 1, "it was migrated");
    shop.close().await.expect("closed");
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_a_file_says_is_there_before_the_arguments_are_read() {
    let dir = fresh_dir();
    let run_there = async |file: &str| {
        std::fs::write(dir.join(".env"), file).expect("written");
        payonce(&["admin", "overview"], &[]).current_dir(&dir).output().await.expect("it runs")
    };
    let asked = run_there("PAYONCE_URL=http://127.0.0.1:1\nPAYONCE_ADMIN_TOKEN=hush-hush\n").await;
    assert_eq!(asked.status.code(), Some(1));
    assert!(errors(&asked).contains("127.0.0.1:1"), "an instance was to be asked: {}", errors(&asked));
    let broken = run_there("PAYONCE_URL=http://127.0.0.1:1\nhush hush\n").await;
    assert_eq!(broken.status.code(), Some(1), "half a file is no configuration: {}", errors(&broken));
    assert!(errors(&broken).contains(".env") && !errors(&broken).contains("hush"), "{}", errors(&broken));
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[tokio::test]
async fn merchants_are_made_and_audited_from_the_command_line() {
    let url = stores::fresh_database().await;
    let environment = environment(&url, "redis://127.0.0.1:1");
    let made = run(&["-o", "json", "merchant", "create", "m1", "--name", "First"], &environment).await;
    assert_eq!(made.status.code(), Some(0), "{}", errors(&made));
    let made = json_of(&made);
    assert_eq!(made["merchant_id"], "m1");
    assert!(made["secret_key"].as_str().is_some_and(|key| key.starts_with("sk_") && key.len() > 40));
    let again = run(&["merchant", "create", "m1"], &environment).await;
    assert_eq!(again.status.code(), Some(1), "{}", errors(&again));
    let rotated = run(&["merchant", "key", "m1", "-o", "json", "--reason", "it leaked"], &environment).await;
    assert_eq!(rotated.status.code(), Some(0), "{}", errors(&rotated));
    assert_ne!(json_of(&rotated)["secret_key"], made["secret_key"]);
    let nobody = run(&["merchant", "key", "nobody", "--reason", "x"], &environment).await;
    assert_eq!(nobody.status.code(), Some(1), "{}", errors(&nobody));

    let audit = run(&["audit", "-o", "json"], &environment).await;
    assert_eq!((audit.status.code(), &json_of(&audit)["ok"]), (Some(0), &json!(true)));
    let mut conn = PgConnection::connect(&url).await.expect("connect");
    sqlx::query(
        "INSERT INTO skus (merchant_id, sku, stock, lock_stock, created_at, updated_at)
         VALUES ('m1', 'TEA', 5, 3, now(), now())",
    )
    .execute(&mut conn)
    .await
    .expect("stock that is held for no order");
    conn.close().await.expect("closed");
    let audit = run(&["audit", "-o", "json"], &environment).await;
    assert_eq!((audit.status.code(), &json_of(&audit)["ok"]), (Some(3), &json!(false)), "{}", errors(&audit));
    let table = run(&["audit"], &environment).await;
    assert_eq!(table.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&table.stdout).contains("VIOLATED"));
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_was_said_of_a_product_can_be_taken_back_by_a_command() {
    let url = stores::fresh_database().await;
    let environment = environment(&url, "redis://127.0.0.1:1");
    let made = run(&["merchant", "create", "m1", "--name", "First"], &environment).await;
    assert_eq!(made.status.code(), Some(0), "{}", errors(&made));
    let product = [
        "-o",
        "json",
        "admin",
        "set-product",
        "--merchant-id",
        "m1",
        "--product-code",
        "tokens",
        "--currency",
        "CNY",
        "--unit-price",
        "1",
        "--reason",
        "ticket 4711",
    ];
    for (said, charges, quota) in [
        (&["--allow-compensating-charge", "--cycle-quota", "5"][..], true, serde_json::json!(5)),
        (&[], true, serde_json::json!(5)),
        (&["--allow-compensating-charge=false"], false, serde_json::json!(5)),
        (&["--allow-compensating-charge=true", "--cycle-quota", "null"], true, Value::Null),
    ] {
        let set = run(&[&product[..], said].concat(), &environment).await;
        assert_eq!(set.status.code(), Some(0), "{said:?}: {}", errors(&set));
        let set = json_of(&set);
        assert_eq!(
            (&set["allow_compensating_charge"], &set["cycle_quota"]),
            (&Value::Bool(charges), &quota),
            "{said:?}: {set}"
        );
    }
    let wrong = run(&[&product[..], &["--allow-compensating-charge=maybe"]].concat(), &environment).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
    stores::drop_database(&url).await;
}

/// Resident memory in KiB.
fn resident_kib(child: &Child) -> u64 {
    Usage::of(child.id().expect("alive")).memory
}

pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

async fn ready_after(url: &str, since: Instant) -> Duration {
    loop {
        let http = payonce::infra::http_client::builder().build().expect("a client");
        if let Ok(response) = http.get(format!("{url}/readyz")).send().await
            && response.status() == 200
        {
            return since.elapsed();
        }
        assert!(since.elapsed() < Duration::from_secs(20), "never ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn terminate(child: &mut Child) -> Option<i32> {
    let pid = child.id().expect("alive").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status().await.expect("kill");
    assert!(sent.success());
    let ended = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
    ended.expect("within ten seconds").expect("a status").code()
}

#[tokio::test]
async fn serve_is_ready_soon_keeps_its_secrets_and_ends_well() {
    let (database_url, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut environment = environment(&database_url, &redis.url());
    environment.retain(|(name, _)| *name != "BIND_ADDR");
    environment.extend([("BIND_ADDR", format!("127.0.0.1:{port}")), ("RUST_LOG", "trace".to_owned())]);
    let made = json_of(&run(&["-o", "json", "merchant", "create", "m1"], &environment).await);
    let key = made["secret_key"].as_str().expect("a key");

    let since = Instant::now();
    let mut command = payonce(&["serve", "--roles", "api,workers,sandbox"], &environment);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stderr = child.stderr.take().expect("a pipe");
    let log = tokio::spawn(async move {
        let mut log = Vec::new();
        stderr.read_to_end(&mut log).await.map(|_| String::from_utf8_lossy(&log).into_owned())
    });
    let ready = ready_after(&url, since).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("ready after {ready:?}, {} KiB resident", resident_kib(&child));
    assert!(ready < Duration::from_secs(2), "{ready:?}");
    if !cfg!(debug_assertions) {
        assert!(ready < Duration::from_millis(300) && resident_kib(&child) < 60 * 1024);
    }

    pay_through(&url, key).await;
    let asked = Instant::now();
    assert_eq!(terminate(&mut child).await, Some(0));
    println!("ended {:?} after SIGTERM", asked.elapsed());
    let log = log.await.expect("no panic").expect("a log");
    assert!(log.contains("listening on"), "the log is looked at");
    for secret in [SECRET, OPERATOR, key, made["publishable_key"].as_str().expect("a key"), redis.password()]
    {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "a secret in the log: {line:?}");
    }
    stores::drop_database(&database_url).await;
}

/// Whoever finds an instance open may stop it at once: it ends well even before it is ready.
#[tokio::test]
async fn an_instance_that_is_stopped_while_it_starts_ends_well() {
    let (database_url, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let addr = format!("127.0.0.1:{}", free_port());
    let mut environment = environment(&database_url, &redis.url());
    environment.retain(|(name, _)| *name != "BIND_ADDR");
    environment.push(("BIND_ADDR", addr.clone()));
    let mut child =
        payonce(&["serve", "--roles", "api,workers,sandbox"], &environment).spawn().expect("it starts");
    let since = Instant::now();
    while tokio::net::TcpStream::connect(&addr).await.is_err() {
        assert!(since.elapsed() < Duration::from_secs(20), "never open");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(terminate(&mut child).await, Some(0));
    stores::drop_database(&database_url).await;
}

/// Uses the keys and tokens in every way that could put them into a log.
async fn pay_through(url: &str, key: &str) {
    let http = payonce::infra::http_client::builder().build().expect("a client");
    let post = |path: &str, token: &str, body: Value| {
        let request = http.post(format!("{url}{path}")).bearer_auth(token).json(&body);
        async move { request.send().await.expect("an answer").status().as_u16() }
    };
    let order = json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "amount": 1990});
    assert_eq!(post("/orders", key, order).await, 201);
    assert_eq!(
        post("/pay/url", key, json!({"order_no": "A1", "payer_id": "u1", "channel": "sandbox"})).await,
        200
    );
    assert_eq!(post("/orders", &format!("{key}x"), json!({})).await, 401);
    assert_eq!(
        post("/admin/skus", OPERATOR, json!({"merchant_id": "m1", "sku": "T", "stock": 1})).await,
        200
    );
    assert_eq!(post("/admin/merchants/m1/keys", OPERATOR, json!({"reason": "a story"})).await, 201);
}

#[tokio::test]
async fn a_command_does_not_wait_for_ever_for_an_instance_that_hangs() {
    let hung = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", hung.local_addr().expect("an address"));
    let output = run(&["admin", "overview", "--url", &url, "--token", OPERATOR], &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
}
