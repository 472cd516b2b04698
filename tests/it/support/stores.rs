//! One private PostgreSQL for the whole test run, a database and a Redis for each story.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use payonce::config::DatabaseConfig;
use payonce::local::{LocalStores, Options, PostgresServer, RedisServer};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

use super::fuzz::is_full;

static STORES: OnceCell<LocalStores> = OnceCell::const_new();
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where the servers of all stories keep their files.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("stores")
}

/// The PostgreSQL that all stories share: set up as in production, in memory where there is room. On disk it takes half a
/// second to make each story its database, because ext4 looks past every file of those that were dropped lately.
/// With `PAYONCE_KEEP=1` one that does not run yet is on disk, so that what a failed story left can be looked at for longer than
/// a minute; so it is with `PAYONCE_FULL=1`, because ten million rows take more room than is looked for in memory.
pub async fn shared() -> &'static LocalStores {
    STORES
        .get_or_init(|| async {
            let in_memory = std::env::var_os("PAYONCE_KEEP").is_none() && !is_full();
            let options = Options { max_connections: 400, in_memory, ..Options::default() };
            LocalStores::attach_or_start(&directory(), &options).await.expect("private stores")
        })
        .await
}

/// Runs a statement as the owner of a database, and lets the service do with new tables what it does with others.
pub async fn as_owner(url: &str, statement: &str) {
    let mut owner = PgConnection::connect(url).await.expect("connect");
    run(&mut owner, statement.to_owned()).await;
    run(&mut owner, "SELECT grant_service_rights()".to_owned()).await;
    owner.close().await.expect("close");
}

/// How a story that needs no instance reaches its database.
pub fn database_config(url: &str) -> DatabaseConfig {
    DatabaseConfig {
        url: url.to_owned().into(),
        pool_size: 4,
        max_batch: 128,
        acquire_deadline: Duration::from_secs(5),
        statement_deadline: Duration::from_secs(60),
    }
}

/// A name that no other story of this or of another test process has.
pub fn fresh_name() -> String {
    format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A migrated database of the story's own; gives its URL.
///
/// The template is made once for each state of the migrations, under a lock that all test processes share.
pub async fn fresh_database() -> String {
    let stores = shared().await;
    let url = stores.postgres.socket_url();
    let template = format!("template_{:x}", migrations_fingerprint());
    let mut admin = PgConnection::connect(&url).await.expect("connect");
    admin.execute("SELECT pg_advisory_lock(4711)").await.expect("lock");
    let known: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_database WHERE datname = $1")
        .bind(&template)
        .fetch_optional(&mut admin)
        .await
        .expect("look for the template");
    if known.is_none() {
        let unfinished = format!("{template}_unfinished");
        run(&mut admin, format!("DROP DATABASE IF EXISTS {unfinished}")).await;
        run(&mut admin, format!("CREATE DATABASE {unfinished}")).await;
        let mut conn = PgConnection::connect(&with_database(&url, &unfinished)).await.expect("connect");
        sqlx::migrate!().run_direct(None, &mut conn, false).await.expect("migrate");
        conn.close().await.expect("close");
        run(&mut admin, format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await;
    }
    let name = fresh_name();
    // An earlier run that was killed may have left one: ids of processes come again.
    run(&mut admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    run(&mut admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
    admin.close().await.expect("close");
    with_database(&url, &name)
}

/// A database of the story's own without any table, for what earlier versions left; gives its URL.
pub async fn empty_database() -> String {
    let url = shared().await.postgres.socket_url();
    let mut admin = PgConnection::connect(&url).await.expect("connect");
    let name = fresh_name();
    run(&mut admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    run(&mut admin, format!("CREATE DATABASE {name}")).await;
    admin.close().await.expect("close");
    with_database(&url, &name)
}

async fn run(conn: &mut PgConnection, statement: String) {
    conn.execute(AssertSqlSafe(statement)).await.expect("statement");
}

/// Drops the database of a story that ended well; one that failed leaves it to be looked at.
pub async fn drop_database(url: &str) {
    let Some(name) = url.split(['/', '?']).find(|part| part.starts_with('t') && part.contains('_')) else {
        return;
    };
    let mut admin = PgConnection::connect(&shared().await.postgres.socket_url()).await.expect("connect");
    run(&mut admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
}

fn with_database(url: &str, name: &str) -> String {
    url.replacen("/payonce", &format!("/{name}"), 1)
}

fn migrations_fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let mut hasher = DefaultHasher::new();
    for migration in sqlx::migrate!().iter() {
        migration.checksum.hash(&mut hasher);
    }
    hasher.finish()
}

/// A Redis of the story's own, which it may stop, pause or empty.
pub async fn fresh_redis() -> RedisServer {
    let dir = directory().join("redis").join(fresh_name());
    RedisServer::start(&dir).await.expect("private redis")
}

/// A PostgreSQL of the story's own, migrated, which it may pause or crash.
pub async fn private_postgres() -> PostgresServer {
    private_postgres_with(Options::default()).await
}

/// The same with settings of the story's own.
pub async fn private_postgres_with(options: Options) -> PostgresServer {
    let dir = directory().join("postgres-of").join(fresh_name());
    let options = Options { shared_buffers: "32MB".to_owned(), ..options };
    let server = PostgresServer::start(&dir, &options).await.expect("private postgres");
    let mut conn = PgConnection::connect(&server.socket_url()).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut conn, false).await.expect("migrate");
    conn.close().await.expect("close");
    server
}

/// Makes a standby of a server: it answers whoever reads, and takes nothing until it is promoted.
pub async fn make_standby(postgres: &mut PostgresServer) {
    let mut conn = PgConnection::connect(&postgres.socket_url()).await.expect("connect");
    let data: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut conn).await.expect("a path");
    postgres.stop().await.expect("stopped");
    std::fs::write(Path::new(&data).join("standby.signal"), "").expect("written");
    postgres.restart().await.expect("a standby");
}

/// Says one command to a Redis, past the service's own client.
pub async fn tell_redis<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> T {
    try_to_tell_redis(url, words).await.expect("an answer")
}

/// The same to one that may be gone, or cut its clients off in this very moment.
pub async fn try_to_tell_redis<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> redis::RedisResult<T> {
    let mut conn = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (name, arguments) = words.split_first().expect("a command");
    redis::cmd(name).arg(arguments).query_async(&mut conn).await
}
