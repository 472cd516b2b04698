//! Real servers in directories of their own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection};

use super::{Finder, LocalError, LocalStores, Options, PostgresServer, RedisServer, home, packages};

/// A directory that goes away with the test. Under `target/`, where a checkout's stores would be too.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/local-tests");
        let dir = root.join(format!("{name}-{}", &home::random_token()[..8]));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn options() -> Options {
    Options { durable: false, shared_buffers: "16MB".to_owned(), max_connections: 20, ..Options::default() }
}

async fn query(url: &str, sql: &'static str) -> Result<i64, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query_scalar(sql).fetch_one(&mut connection).await
}

async fn execute(url: &str, sql: &'static str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}

async fn ping(url: &str) -> redis::RedisResult<String> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("PING").query_async(&mut connection).await
}

/// Waits for the kernel and the servers to notice a death.
async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !is_true() {
        assert!(asked.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many processes have this text in their command line.
fn processes_with(text: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

/// Runs [`holds_stores`] in a process of its own, and waits until it has its stores.
async fn holder(dir: &Path, how: &str) -> Child {
    let ready = dir.join("ready");
    let _absent = fs::remove_file(&ready);
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "local::tests::holds_stores", "--ignored"])
        .env("HOLD_STORES", how)
        .env("HOLD_STORES_IN", dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("a process with stores", || ready.exists()).await;
    child
}

#[tokio::test]
#[ignore = "the process that other tests kill"]
async fn holds_stores() {
    let Ok(dir) = env::var("HOLD_STORES_IN").map(PathBuf::from) else { return };
    let options = Options { idle_secs: 4, ..options() };
    let stores = if env::var("HOLD_STORES").unwrap() == "own" {
        LocalStores::start(&dir, &options).await.unwrap()
    } else {
        LocalStores::attach_or_start(&dir, &options).await.unwrap()
    };
    let urls = format!("{}\n{}", stores.database_url(), stores.redis_url());
    fs::write(dir.join("half"), urls).unwrap();
    fs::rename(dir.join("half"), dir.join("ready")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn data_stay_and_the_second_start_is_quick() {
    let dir = Dir::new("twice");
    let stores = LocalStores::start(&dir.0, &options()).await.unwrap();
    execute(&stores.postgres.socket_url(), "CREATE TABLE kept AS SELECT 7::bigint AS n").await;
    assert_eq!(query(&stores.database_url(), "SELECT n FROM kept").await.unwrap(), 7);
    assert_eq!(ping(&stores.redis_url()).await.unwrap(), "PONG");
    assert_eq!(ping(&stores.redis.socket_url()).await.unwrap(), "PONG");

    // The password is really asked for, on both.
    let no_password = format!("postgres://postgres:wrong@127.0.0.1:{}/payonce", stores.postgres.port());
    assert!(query(&no_password, "SELECT 1::bigint").await.is_err());
    assert!(ping(&format!("redis://127.0.0.1:{}/", stores.redis.port())).await.is_err());
    let socket_url = stores.redis.socket_url();
    assert!(ping(socket_url.split('?').next().unwrap()).await.is_err());

    let second = LocalStores::start(&dir.0, &options()).await.unwrap_err();
    let LocalError::AlreadyRunning { pid, .. } = &second else { panic!("{second}") };
    assert_eq!(*pid, std::process::id().to_string());

    let (database_url, redis_url) = (stores.database_url(), stores.redis_url());
    stores.stop().await.unwrap();
    assert!(query(&database_url, "SELECT 1::bigint").await.is_err());
    assert!(ping(&redis_url).await.is_err());

    let again = Instant::now();
    let stores = LocalStores::start(&dir.0, &options()).await.unwrap();
    assert!(again.elapsed() < Duration::from_secs(5), "{:?}", again.elapsed());
    assert_eq!(stores.database_url(), database_url, "the same port and password as before");
    assert_eq!(query(&stores.postgres.socket_url(), "SELECT n FROM kept").await.unwrap(), 7);

    // Dropping is stopping too.
    let data = dir.0.join("postgres/data").display().to_string();
    assert!(processes_with(&data) > 0);
    drop(stores);
    assert_eq!(processes_with(&data), 0);
}

#[tokio::test]
async fn a_database_in_memory_is_shared_and_leaves_nothing_there() {
    let dir = Dir::new("memory");
    let options = Options { in_memory: true, idle_secs: 4, ..options() };
    let first = LocalStores::attach_or_start(&dir.0, &options).await.unwrap();
    execute(&first.postgres.socket_url(), "CREATE TABLE kept AS SELECT 7::bigint AS n").await;
    let second = LocalStores::attach_or_start(&dir.0, &options).await.unwrap();
    assert_eq!(query(&second.postgres.socket_url(), "SELECT n FROM kept").await.unwrap(), 7);
    // On a machine without room it is on disk, as any other.
    let Ok(place) = fs::read_to_string(dir.0.join("postgres/at")) else { return };
    let place = PathBuf::from(place.trim());
    assert!(place.starts_with("/dev/shm") && place.join("data/PG_VERSION").is_file(), "{}", place.display());
    drop((first, second));
    eventually("nothing is left in memory", || !place.exists()).await;

    let again = LocalStores::attach_or_start(&dir.0, &options).await.unwrap();
    assert!(query(&again.postgres.socket_url(), "SELECT n FROM kept").await.is_err(), "it is another one");
    let place = PathBuf::from(fs::read_to_string(dir.0.join("postgres/at")).unwrap().trim());
    drop(again);
    LocalStores::stop_idle(&dir.0).await.unwrap();
    assert!(!place.exists());
}

#[tokio::test]
async fn a_killed_owner_leaves_nothing_running() {
    let dir = Dir::new("killed");
    let mut owner = holder(&dir.0, "own").await;
    let (data, port) = (dir.0.join("postgres/data"), dir.0.join("redis/port"));
    let (data, port) = (data.display().to_string(), fs::read_to_string(port).unwrap());
    let redis = format!("redis-server 127.0.0.1:{port}");
    assert_eq!((processes_with(&data), processes_with(&redis)), (1, 1));

    // Its Ctrl-C is not theirs: they are in groups of their own.
    for pid_file in ["postgres/data/postmaster.pid", "redis/redis.pid"] {
        let text = fs::read_to_string(dir.0.join(pid_file)).unwrap();
        let pid = text.lines().next().unwrap();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        assert_eq!(after_name.split_whitespace().nth(2).unwrap(), pid, "{stat}");
    }

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("no server left", || processes_with(&data) + processes_with(&redis) == 0).await;

    LocalStores::start(&dir.0, &options()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn processes_share_stores_that_end_when_nobody_uses_them() {
    let dir = Dir::new("shared");
    let (mut first, urls) = (holder(&dir.0, "share").await, fs::read_to_string(dir.0.join("ready")).unwrap());
    let mut second = holder(&dir.0, "share").await;
    assert_eq!(fs::read_to_string(dir.0.join("ready")).unwrap(), urls);
    assert!(matches!(LocalStores::stop_idle(&dir.0).await, Err(LocalError::AlreadyRunning { .. })));

    // Who started them is gone, and they go on for the other.
    first.kill().unwrap();
    first.wait().unwrap();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let stores = LocalStores::attach_or_start(&dir.0, &options()).await.unwrap();
    assert_eq!(format!("{}\n{}", stores.database_url(), stores.redis_url()), urls);
    assert_eq!(query(&stores.database_url(), "SELECT 1::bigint").await.unwrap(), 1);

    second.kill().unwrap();
    second.wait().unwrap();
    stores.stop().await.unwrap();
    let dir_name = dir.0.display().to_string();
    eventually("the watchdog stops them and ends", || processes_with(&dir_name) == 0).await;

    // And they can be had again, and be stopped at once.
    drop(LocalStores::attach_or_start(&dir.0, &options()).await.unwrap());
    LocalStores::stop_idle(&dir.0).await.unwrap();
    eventually("nothing is left", || processes_with(&dir_name) == 0).await;
}

#[tokio::test]
async fn redis_can_be_made_to_fail() {
    let dir = Dir::new("redis");
    let mut redis = RedisServer::start(&dir.0).await.unwrap();
    let url = redis.url();

    redis.pause().await.unwrap();
    let hung = tokio::time::timeout(Duration::from_millis(300), ping(&url)).await;
    assert!(!matches!(hung, Ok(Ok(_))), "{hung:?}");
    redis.resume().await.unwrap();
    assert_eq!(ping(&url).await.unwrap(), "PONG");

    redis.kill().await.unwrap();
    assert!(ping(&url).await.is_err());
    redis.restart().await.unwrap();
    assert_eq!((ping(&url).await.unwrap(), redis.url()), ("PONG".to_owned(), url));

    // A paused server can still be stopped.
    redis.pause().await.unwrap();
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn postgres_can_be_made_to_fail() {
    let dir = Dir::new("postgres");
    // What is not durable may be gone after a crash.
    let options = Options { durable: true, ..options() };
    let mut postgres = PostgresServer::start(&dir.0, &options).await.unwrap();
    let url = postgres.socket_url();
    execute(&url, "CREATE TABLE kept AS SELECT 7::bigint AS n").await;
    let mut open = PgConnection::connect(&url).await.unwrap();

    // Open connections hang as well, not only new ones.
    postgres.pause().await.unwrap();
    let answer = sqlx::query("SELECT 1").execute(&mut open);
    assert!(tokio::time::timeout(Duration::from_millis(300), answer).await.is_err());
    postgres.resume().await.unwrap();
    assert_eq!(query(&url, "SELECT n FROM kept").await.unwrap(), 7);

    postgres.kill().await.unwrap();
    assert!(query(&url, "SELECT n FROM kept").await.is_err());
    postgres.restart().await.unwrap();
    assert_eq!(query(&postgres.url(), "SELECT n FROM kept").await.unwrap(), 7);
    assert!(postgres.program("psql").is_file());
}

#[tokio::test]
async fn a_long_path_gets_a_short_socket() {
    let dir = Dir::new(&"long-".repeat(20));
    let postgres = PostgresServer::start(&dir.0, &options()).await.unwrap();
    let url = postgres.socket_url();
    let sockets = url.split_once("?host=").unwrap().1;
    assert!(sockets.starts_with("/tmp/payonce-"), "{url}");
    assert_eq!(query(&url, "SELECT 1::bigint").await.unwrap(), 1);
    drop(postgres);
    fs::remove_dir_all(sockets).unwrap();
}

#[tokio::test]
async fn root_moves_out_of_a_closed_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    if home::current_uid().unwrap() != 0 {
        return;
    }
    let closed = Dir::new("closed");
    fs::set_permissions(&closed.0, fs::Permissions::from_mode(0o700)).unwrap();
    let dir = closed.0.join("redis");
    RedisServer::start(&dir).await.unwrap().stop().await.unwrap();

    let moved = fs::read_to_string(dir.join("at")).unwrap();
    assert!(moved.starts_with("/var/lib/payonce/"), "{moved}");
    let redis = RedisServer::start(&dir).await.unwrap();
    assert_eq!(fs::read_to_string(dir.join("at")).unwrap(), moved);
    drop(redis);
    fs::remove_dir_all(moved.trim()).unwrap();
}

#[tokio::test]
async fn a_missing_program_is_named_with_the_line_that_brings_it() {
    let nowhere = Finder::new(vec![PathBuf::from("/nowhere")], PathBuf::from("/nowhere"));
    assert_eq!((nowhere.program("redis-server"), nowhere.postgres(None)), (None, None));

    let missing = packages::refusal("PostgreSQL", &["postgresql".to_owned()], "no sudo here");
    let message = missing.to_string();
    assert!(message.contains("PostgreSQL is not on this machine"), "{message}");
    let line = "Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends postgresql";
    assert!(message.ends_with(line), "{message}");
}
