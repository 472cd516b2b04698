//! `payonce doctor`: each thing that can be broken here is, and the doctor names it with the line that mends it.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::commands::{empty_database, environment, errors, fresh_dir, json_of, run};
use crate::support::fake_broker::{FakeBroker, Manner};
use crate::support::servers::{Broker, Watched, quorum_of};
use crate::support::{TestApp, TestOptions, stores};

type Environment = Vec<(&'static str, String)>;

fn with(environment: &Environment, changes: &[(&'static str, &str)]) -> Environment {
    let mut environment = environment.clone();
    for (name, value) in changes {
        environment.retain(|(known, _)| known != name);
        environment.push((name, (*value).to_owned()));
    }
    environment
}

/// A database, a Redis, and an environment in which nothing is wrong.
async fn healthy(database_url: &str, redis_url: &str) -> Environment {
    with(&environment(database_url, redis_url), &[("PUBLIC_URL", "https://pay.shop.example")])
}

async fn examine(environment: &Environment, more: &[&str]) -> (Option<i32>, Value) {
    let output = run(&[&["doctor", "-o", "json"], more].concat(), environment).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("hush-hush"), "a secret: {said}");
    assert!(errors(&output).is_empty(), "{}", errors(&output));
    (output.status.code(), json_of(&output))
}

fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("findings");
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("no {check}: {report:#}"))
}

fn wrong(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings").iter();
    findings.filter(|it| it["health"] == "WRONG").map(|it| it["check"].as_str().expect("a name")).collect()
}

#[track_caller]
fn expect_wrong(seen: &(Option<i32>, Value), check: &str, mend: &str) {
    assert_eq!((seen.0, wrong(&seen.1)), (Some(3), vec![check]), "{:#}", seen.1);
    let line = finding(&seen.1, check)["mend"].as_str().expect("a line");
    assert!(line.contains(mend), "{check}: {line}");
}

pub async fn sql(url: &str, statement: &str) {
    let mut conn = PgConnection::connect(url).await.expect("connect");
    conn.execute(AssertSqlSafe(statement.to_owned())).await.expect(statement);
    conn.close().await.expect("closed");
}

#[tokio::test]
async fn nothing_is_wrong_where_nothing_is_wrong() {
    let (database, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let environment = healthy(&database, &redis.url()).await;
    let (code, report) = examine(&environment, &[]).await;
    assert_eq!((code, wrong(&report), &report["ok"]), (Some(0), vec![], &json!(true)), "{report:#}");
    for check in [
        "config.SANDBOX_SECRET",
        "database.version",
        "database.primary",
        "database.schema",
        "database.role",
        "database.durability",
        "database.connections",
        "database.clock",
        "database.time_zone",
        "redis.version",
        "redis.eviction",
        "network.port",
        "network.public_url",
    ] {
        assert_eq!(finding(&report, check)["health"], "FINE", "{report:#}");
    }
    let table = run(&["doctor"], &environment).await;
    assert!(String::from_utf8_lossy(&table.stdout).ends_with("nothing is wrong\n"), "{table:?}");
    stores::drop_database(&database).await;
}

#[tokio::test]
async fn every_wrong_variable_is_named_at_once_and_no_secret_is_shown() {
    let (database, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let right = healthy(&database, &redis.url()).await;
    let changes = [
        ("SANDBOX_SECRET", "hush-hush"),
        ("ADMIN_TOKENS", "operator:hush-hush"),
        ("ENCRYPTION_KEY", ""),
        ("PUBLIC_URL", "ftp://x"),
        ("BIND_ADDR", "here"),
        ("CORS_ORIGINS", "*"),
        ("LOG_FORMAT", "xml"),
        ("ORDER_TIMEOUT_SECONDS", "0"),
        ("DATABASE_POOL_SIZE", "1e3"),
        ("PAYONCE_ROLES", "kitchen"),
    ];
    let (code, report) = examine(&with(&right, &changes), &[]).await;
    let mut expected: Vec<String> = changes.iter().map(|(name, _)| format!("config.{name}")).collect();
    let mut found: Vec<&str> = wrong(&report);
    expected.sort();
    found.sort_unstable();
    assert_eq!((code, found), (Some(3), expected.iter().map(String::as_str).collect()), "{report:#}");
    for (name, _) in changes {
        let mend = finding(&report, &format!("config.{name}"))["mend"].as_str().expect("a line").to_owned();
        assert!(mend.contains(&format!("{name}=")), "{mend}");
    }
    let (_, report) =
        examine(&with(&right, &[("DATABASE_URL", "mysql://u:hush-hush@h/x"), ("REDIS_URL", "")]), &[]).await;
    assert_eq!(wrong(&report), ["config.DATABASE_URL", "config.REDIS_URL"], "{report:#}");
    assert_eq!(finding(&report, "database.role")["health"], "UNKNOWN");
    stores::drop_database(&database).await;
}

#[tokio::test]
async fn what_cannot_be_left_empty_hides_nothing_behind_it_and_its_line_mends_it() {
    let (database, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let right = healthy(&database, &redis.url()).await;
    let dir = fresh_dir();
    let (readable, short, missing) = (dir.join("secret"), dir.join("short"), dir.join("none"));
    std::fs::write(&readable, "hush-hush hush-hush hush-hush").expect("written");
    std::fs::write(&short, "hush-hush").expect("written");
    let [readable, short, missing] = [&readable, &short, &missing].map(|path| path.to_str().expect("text"));
    for (changes, check, mend) in [
        (&[("RECON_AUTO", "all")][..], "config.RECON_DAILY_CAP", "RECON_DAILY_CAP=CNY:500000".to_owned()),
        (
            &[("SSL_CERT_FILE", "/dev/null")],
            "config.SSL_CERT_FILE",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt".to_owned(),
        ),
        (
            &[("SSL_CERT_FILE", "")],
            "config.SSL_CERT_FILE",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt".to_owned(),
        ),
        (
            &[("SANDBOX_SECRET_FILE", readable)],
            "config.SANDBOX_SECRET",
            "leave out SANDBOX_SECRET= or SANDBOX_SECRET_FILE=".to_owned(),
        ),
        (
            &[("SANDBOX_SECRET", ""), ("SANDBOX_SECRET_FILE", missing)],
            "config.SANDBOX_SECRET",
            format!("echo \"$(openssl rand -hex 24)\" > \"{missing}\""),
        ),
        (
            &[("ENCRYPTION_KEY", ""), ("ENCRYPTION_KEY_FILE", short)],
            "config.ENCRYPTION_KEY",
            format!("put {short} right, or let this user read it"),
        ),
    ] {
        let (code, report) = examine(&with(&right, changes), &[]).await;
        assert_eq!((code, wrong(&report)), (Some(3), vec![check]), "{report:#}");
        assert_eq!(finding(&report, check)["mend"], mend, "{report:#}");
        // What comes behind it was looked at.
        for fine in ["config.RUST_LOG", "database.schema", "database.time_zone", "redis.reachable"] {
            assert_eq!(finding(&report, fine)["health"], "FINE", "{report:#}");
        }
    }
    let mars = examine(&with(&right, &[("RECON_TZ", "Mars/Olympus")]), &[]).await;
    expect_wrong(&mars, "database.time_zone", "RECON_TZ=UTC");
    stores::drop_database(&database).await;
}

#[tokio::test]
async fn what_is_wrong_with_redis_and_the_network_is_named() {
    let (database, mut redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let right = healthy(&database, &redis.url()).await;
    let _: String =
        stores::tell_redis(&redis.url(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    expect_wrong(&examine(&right, &[]).await, "redis.eviction", "maxmemory-policy noeviction");
    let _: String =
        stores::tell_redis(&redis.url(), &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("an address").to_string();
    expect_wrong(&examine(&with(&right, &[("BIND_ADDR", &addr)]), &[]).await, "network.port", "BIND_ADDR=");
    let world = with(&right, &[("BIND_ADDR", "0.0.0.0:0"), ("PUBLIC_URL", "")]);
    expect_wrong(&examine(&world, &[]).await, "network.public_url", "PUBLIC_URL=https://");
    let plain = with(&right, &[("PUBLIC_URL", "http://pay.shop.example")]);
    expect_wrong(&examine(&plain, &[]).await, "network.public_url", "PUBLIC_URL=https://");
    redis.stop().await.expect("stopped");
    expect_wrong(&examine(&right, &[]).await, "redis.reachable", "redis-cli");
    stores::drop_database(&database).await;
}

#[tokio::test]
async fn what_is_wrong_with_the_database_is_named_and_the_line_mends_it() {
    let (database, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let right = healthy(&database, &redis.url()).await;
    let gone = with(&right, &[("DATABASE_URL", "postgres://u:hush-hush@127.0.0.1:1/x")]);
    expect_wrong(&examine(&gone, &[]).await, "database.reachable", "psql");
    let empty = empty_database().await;
    expect_wrong(
        &examine(&with(&right, &[("DATABASE_URL", &empty)]), &[]).await,
        "database.schema",
        "payonce migrate",
    );
    stores::drop_database(&empty).await;
    expect_wrong(
        &examine(&right, &["--instances", "1000"]).await,
        "database.connections",
        "DATABASE_POOL_SIZE=",
    );

    sql(
        &database,
        "REVOKE INSERT ON orders FROM payonce_service; GRANT DELETE ON admin_log TO payonce_service",
    )
    .await;
    let seen = examine(&right, &[]).await;
    expect_wrong(&seen, "database.role", "payonce migrate");
    let found = finding(&seen.1, "database.role")["found"].as_str().expect("text");
    assert!(found.contains("public.orders") && found.contains("public.admin_log"), "{found}");
    assert_eq!(run(&["migrate"], &right).await.status.code(), Some(0));
    assert_eq!(examine(&right, &[]).await.0, Some(0), "mended");

    sql(&database, "ALTER TABLE admin_log DISABLE TRIGGER admin_log_only_grows").await;
    expect_wrong(&examine(&right, &[]).await, "database.role", "ENABLE TRIGGER admin_log_only_grows");
    sql(&database, "ALTER TABLE admin_log ENABLE REPLICA TRIGGER admin_log_only_grows").await;
    expect_wrong(&examine(&right, &[]).await, "database.role", "ENABLE TRIGGER admin_log_only_grows");
    sql(&database, "DROP TRIGGER admin_log_only_grows ON admin_log").await;
    let seen = examine(&right, &[]).await;
    expect_wrong(&seen, "database.role", "CREATE TRIGGER admin_log_only_grows");
    let line = finding(&seen.1, "database.role")["mend"].as_str().expect("a line");
    sql(&database, line.split('\'').nth(1).expect("a statement")).await;
    assert_eq!(examine(&right, &[]).await.0, Some(0), "mended");
    let name =
        database.split(['/', '?']).find(|part| part.starts_with('t') && part.contains('_')).expect("a name");
    sql(&database, &format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    expect_wrong(&examine(&right, &[]).await, "database.durability", "RESET synchronous_commit");
    stores::drop_database(&database).await;
}

#[tokio::test]
async fn a_user_who_may_not_make_roles_serves_all_the_same_and_the_doctor_has_the_line() {
    let (empty, redis) = (empty_database().await, stores::fresh_redis().await);
    let name =
        empty.split(['/', '?']).find(|part| part.starts_with('t') && part.contains('_')).expect("a name");
    let user = format!("{name}_user");
    sql(&empty, &format!("CREATE ROLE {user} LOGIN; ALTER DATABASE {name} OWNER TO {user}; ALTER SCHEMA public OWNER TO {user}")).await;
    let url = empty.replacen("postgres@", &format!("{user}@"), 1);
    let right = healthy(&url, &redis.url()).await;
    let migrated = run(&["migrate"], &right).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", errors(&migrated));
    expect_wrong(
        &examine(&right, &[]).await,
        "database.role",
        &format!("GRANT payonce_service TO \"{user}\""),
    );

    let options = TestOptions {
        database_url: Some(url.clone()),
        redis_url: Some(redis.url()),
        ..TestOptions::default()
    };
    let app = TestApp::start_with(options.clone()).await;
    let pay_order = app.order_to_pay("U1").await;
    app.deliver(&app.success("e1", &pay_order, "txn_1", 1990)).await;
    assert_eq!(app.status_of("U1").await, "PAID");
    assert_eq!(app.admin_get("/admin/overview").await.expect(200).body["degraded"], json!(["database_role"]));
    app.end().await;

    sql(&empty, &format!("GRANT payonce_service TO {user}")).await;
    assert_eq!(run(&["migrate"], &right).await.status.code(), Some(0));
    assert_eq!(examine(&right, &[]).await.0, Some(0), "mended");
    let app = TestApp::start_with(options).await;
    app.order_to_pay("U2").await;
    assert_eq!(app.admin_get("/admin/overview").await.expect(200).body["degraded"], json!([]));
    app.end().await;
    stores::drop_database(&empty).await;
    sql(&stores::shared().await.postgres.socket_url(), &format!("DROP ROLE {user}")).await;
}

#[tokio::test]
async fn a_cluster_that_forgets_and_has_no_role_is_named() {
    let options = payonce::local::Options { durable: false, ..payonce::local::Options::default() };
    let (mut postgres, redis) = (stores::private_postgres_with(options).await, stores::fresh_redis().await);
    let url = postgres.socket_url();
    let right = healthy(&url, &redis.url()).await;
    sql(&url, "DROP OWNED BY payonce_service; DROP ROLE payonce_service").await;
    let (code, report) = examine(&right, &[]).await;
    assert_eq!((code, wrong(&report)), (Some(3), vec!["database.role", "database.durability"]), "{report:#}");
    let mend = |check: &str| finding(&report, check)["mend"].as_str().expect("a line").to_owned();
    assert!(mend("database.role").contains("CREATE ROLE payonce_service NOLOGIN"), "{report:#}");
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        assert!(mend("database.durability").contains(&format!("SET {setting} = on")), "{report:#}");
    }

    sql(&url, "CREATE ROLE payonce_service NOLOGIN").await;
    assert_eq!(run(&["migrate"], &right).await.status.code(), Some(0));
    let (_, report) = examine(&right, &[]).await;
    assert_eq!(wrong(&report), ["database.durability"], "the role is mended: {report:#}");

    stores::make_standby(&mut postgres).await;
    let (_, report) = examine(&right, &[]).await;
    assert!(wrong(&report).contains(&"database.primary"), "{report:#}");
    postgres.stop().await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_behind_sentinels_is_examined_where_the_master_is() {
    let (database, mut redis) = (stores::fresh_database().await, Watched::start().await);
    let right = healthy(&database, &redis.url()).await;
    let (code, report) = examine(&right, &[]).await;
    assert_eq!((code, wrong(&report)), (Some(0), vec![]), "{report:#}");
    assert_eq!(finding(&report, "redis.eviction")["health"], "FINE", "{report:#}");
    let _: String =
        stores::tell_redis(&redis.master.url(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let address = format!("127.0.0.1:{} CONFIG SET", redis.master.port());
    expect_wrong(&examine(&right, &[]).await, "redis.eviction", &address);
    redis.end_all().await;
    expect_wrong(&examine(&right, &[]).await, "redis.reachable", "SENTINEL CKQUORUM shop");
    stores::drop_database(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_quorum_is_examined() {
    let (database, (mut nodes, url)) = (stores::fresh_database().await, quorum_of(3).await);
    let right = healthy(&database, &url).await;
    assert_eq!(examine(&right, &[]).await.0, Some(0));
    let _: String =
        stores::tell_redis(&nodes[2].url(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let address = format!("127.0.0.1:{} CONFIG SET", nodes[2].port());
    expect_wrong(&examine(&right, &[]).await, "redis.eviction", &address);

    nodes[2].kill().await.expect("killed");
    let (code, report) = examine(&right, &[]).await;
    let reachable = finding(&report, "redis.reachable");
    assert_eq!((code, &reachable["health"]), (Some(0), &json!("NOTE")), "the others grant locks: {report:#}");
    nodes[1].kill().await.expect("killed");
    expect_wrong(&examine(&right, &[]).await, "redis.reachable", "redis-cli");
    stores::drop_database(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_is_asked_as_the_service_asks_it_and_only_where_it_does() {
    let (database, redis) = (stores::fresh_database().await, stores::fresh_redis().await);
    let right = healthy(&database, &redis.url()).await;
    let dead = "amqp://u:hush-hush@127.0.0.1:1/";
    assert_eq!(examine(&right, &[]).await.0, Some(0), "there is none");
    let brings_reports = with(&right, &[("AMQP_URL", dead)]);
    expect_wrong(&examine(&brings_reports, &[]).await, "rabbitmq.reachable", "rabbitmq-server");

    let used = with(&right, &[("DELAY_QUEUE", "rabbitmq")]);
    expect_wrong(&examine(&used, &[]).await, "config.AMQP_URL", "AMQP_URL=amqp://");
    let at = |url: &str| with(&used, &[("AMQP_URL", url)]);
    expect_wrong(&examine(&at(dead), &[]).await, "rabbitmq.reachable", "rabbitmq-server");
    let file = std::env::temp_dir().join(format!("payonce-broker-{}", std::process::id()));
    std::fs::write(&file, dead).expect("written");
    let in_file = with(&used, &[("AMQP_URL_FILE", file.to_str().expect("a path"))]);
    expect_wrong(&examine(&in_file, &[]).await, "rabbitmq.reachable", "rabbitmq-server");
    std::fs::remove_file(&file).expect("removed");

    let dumb = FakeBroker::start(Manner { is_dumb: true, ..Manner::default() }).await;
    expect_wrong(&examine(&at(&dumb.url()), &[]).await, "rabbitmq.reachable", "rabbitmq-server");

    let broker = Broker::fresh().await;
    assert_eq!(examine(&at(&broker.url), &[]).await.0, Some(0));
    let (_, host) = broker.url.split_once('@').expect("a login");
    let stranger = format!("amqp://stranger:hush-hush@{host}");
    expect_wrong(&examine(&at(&stranger), &[]).await, "rabbitmq.reachable", "rabbitmq-server");
    let elsewhere = broker.url.replace("/%2f", "/no-such-vhost");
    expect_wrong(&examine(&at(&elsewhere), &[]).await, "rabbitmq.reachable", "rabbitmq-server");
    stores::drop_database(&database).await;
}
