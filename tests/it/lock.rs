//! The distributed lock on one real Redis: it saves work, and never stands in the way for long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use payonce::config::RedisConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::lock::{BackendUnavailable, LockBackend, LockSettings, Locks, Scene, Turn, backend_on};
use payonce::infra::redis::Redis;
use tokio::time::sleep;

use crate::support::stores::{fresh_redis, tell_redis};
use crate::support::{TestApp, metric};

mod robbed;

const KEY: &str = "lock:ORDER:demo:L1";
/// Long enough that a slow machine does not look like a dead holder.
const TTL: Duration = Duration::from_millis(900);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn client(url: &str, answer_deadline: Duration) -> Redis {
    let config = RedisConfig { servers: url.parse().expect("servers"), answer_deadline, lock_ttl: TTL };
    Redis::new(&config).expect("a client")
}

/// The locks of one instance.
fn locks_with(url: &str, settings: LockSettings) -> Locks {
    let backend = backend_on(&client(url, millis(1000)));
    Locks::new(backend, settings, Ids::random(Clock::system()))
}

fn locks(url: &str) -> Locks {
    locks_with(url, LockSettings::with_ttl(TTL))
}

async fn holder(url: &str) -> Option<String> {
    tell_redis(url, &["GET", KEY]).await
}

/// Waits until nobody holds the key.
async fn released_within(url: &str, patience: Duration) -> bool {
    let asked = Instant::now();
    while asked.elapsed() < patience {
        if holder(url).await.is_none() {
            return true;
        }
        sleep(millis(10)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_of_two_instances_hold_it_one_at_a_time() {
    let redis = fresh_redis().await;
    let patient = LockSettings {
        tries: 10_000,
        pause: millis(4),
        queue_deadline: Duration::from_secs(120),
        ..LockSettings::with_ttl(Duration::from_secs(30))
    };
    let instances = [locks_with(&redis.url(), patient), locks_with(&redis.url(), patient)];
    let (inside, turns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks = (0..100).map(|index| {
        let (locks, inside, turns) = (instances[index % 2].clone(), inside.clone(), turns.clone());
        tokio::spawn(async move {
            let guard = locks.acquire(Scene::Settle, KEY).await.expect("its turn");
            assert!(!guard.is_degraded());
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
            sleep(millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            turns.fetch_add(1, Ordering::SeqCst);
            drop(guard);
        })
    });
    for task in futures_util::future::join_all(tasks).await {
        task.expect("no two at once");
    }
    assert_eq!(turns.load(Ordering::SeqCst), 100);
}

#[tokio::test]
async fn only_the_owner_renews_it_or_gives_it_back() {
    let redis = fresh_redis().await;
    let backend = backend_on(&client(&redis.url(), millis(1000)));
    assert!(backend.try_acquire(KEY, "mine", TTL).await.expect("an answer"));
    assert!(!backend.try_acquire(KEY, "theirs", TTL).await.expect("an answer"));
    assert!(!backend.renew(KEY, "theirs", TTL).await.expect("an answer"));
    assert!(!backend.release(KEY, "theirs").await.expect("an answer"));
    assert_eq!(holder(&redis.url()).await.as_deref(), Some("mine"));
    assert!(backend.renew(KEY, "mine", TTL).await.expect("an answer"));
    assert!(backend.release(KEY, "mine").await.expect("an answer"));
    assert_eq!(holder(&redis.url()).await, None);
    assert!(!backend.renew(KEY, "mine", TTL).await.expect("an answer"), "a late renewal takes nothing back");
    assert_eq!(holder(&redis.url()).await, None);
}

#[tokio::test]
async fn the_lock_of_a_dead_holder_ends_with_its_time_to_live() {
    let redis = fresh_redis().await;
    let dead = backend_on(&client(&redis.url(), millis(1000)));
    assert!(dead.try_acquire(KEY, "dead", millis(400)).await.expect("an answer"));
    let life: i64 = tell_redis(&redis.url(), &["PTTL", KEY]).await;
    assert!((1..=400).contains(&life), "{life}");
    sleep(millis(420)).await;
    let guard = locks(&redis.url()).acquire(Scene::Settle, KEY).await.expect("free again");
    assert!(!guard.is_degraded());
}

#[tokio::test]
async fn the_watchdog_keeps_a_long_hold_and_ends_with_it() {
    let redis = fresh_redis().await;
    let (here, there) = (locks(&redis.url()), locks(&redis.url()));
    let guard = here.acquire(Scene::Settle, KEY).await.expect("free");
    let token = holder(&redis.url()).await;
    let held_since = Instant::now();
    while held_since.elapsed() < TTL * 3 + millis(300) {
        assert_eq!(holder(&redis.url()).await, token, "held without a gap");
        sleep(millis(50)).await;
    }
    assert!(there.acquire(Scene::Settle, KEY).await.is_err(), "still held");
    assert!(!guard.lost().is_cancelled());

    let lost = guard.lost().clone();
    drop(guard);
    assert!(released_within(&redis.url(), millis(500)).await);
    let gone_since = Instant::now();
    while gone_since.elapsed() < TTL {
        assert_eq!(holder(&redis.url()).await, None, "a watchdog outlived the unlock");
        sleep(millis(50)).await;
    }
    assert!(!lost.is_cancelled(), "given back is not lost");
}

#[tokio::test]
async fn a_lost_lock_says_so_and_leaves_the_new_owner_alone() {
    let app = TestApp::start().await;
    let locks = locks(&app.redis_url);
    let before = metric(&app, "payonce_lock_lost_total", &[("scene", "SETTLE")]).await;
    let guard = locks.acquire(Scene::Settle, KEY).await.expect("free");
    let _: () = tell_redis(&app.redis_url, &["SET", KEY, "another"]).await;

    tokio::time::timeout(TTL, guard.lost().cancelled()).await.expect("noticed at the next renewal");
    let after = metric(&app, "payonce_lock_lost_total", &[("scene", "SETTLE")]).await;
    assert!(after >= before + 1.0, "{before} → {after}");
    drop(guard);
    sleep(millis(200)).await;
    assert_eq!(holder(&app.redis_url).await.as_deref(), Some("another"));
    app.end().await;
}

#[tokio::test]
async fn a_lock_that_went_with_all_of_redis_is_taken_again_and_given_back() {
    let redis = fresh_redis().await;
    let url = redis.url();
    let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("free");
    let token = holder(&url).await;
    let _: () = tell_redis(&url, &["FLUSHALL"]).await;
    let taken_again = async {
        while holder(&url).await != token {
            sleep(millis(10)).await;
        }
    };
    tokio::time::timeout(TTL, taken_again).await.expect("taken again at the next renewal");
    assert!(locks(&url).acquire(Scene::Settle, KEY).await.is_err(), "it is held as before");
    assert!(!guard.lost().is_cancelled());

    drop(guard);
    assert!(released_within(&url, millis(500)).await);
    sleep(TTL).await;
    assert_eq!(holder(&url).await, None, "what was given back is not taken again");
}

#[tokio::test(flavor = "current_thread")]
async fn a_lock_that_ran_out_is_not_taken_again() {
    let redis = fresh_redis().await;
    let guard = locks(&redis.url()).acquire(Scene::Settle, KEY).await.expect("free");
    std::thread::sleep(TTL + millis(300));
    tokio::time::timeout(TTL, guard.lost().cancelled()).await.expect("others may have had it meanwhile");
    assert_eq!(holder(&redis.url()).await, None);
}

#[tokio::test]
async fn a_lock_that_runs_out_while_redis_is_away_holds_nobody_up() {
    let mut redis = fresh_redis().await;
    let guard = locks(&redis.url()).acquire(Scene::Settle, KEY).await.expect("free");
    redis.kill().await.expect("killed");
    sleep(TTL * 2).await;
    assert!(guard.still_held().is_ok(), "the work goes on with the queue alone");
    redis.restart().await.expect("back");
    sleep(TTL * 2).await;
    assert!(guard.still_held().is_ok(), "as what began meanwhile does");
    assert_eq!(holder(&redis.url()).await, None, "and nobody is kept from the lock");
}

/// The whole runtime stands still, as a process does that is suspended; another one goes on meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn a_pause_longer_than_the_time_to_live_loses_it() {
    let redis = fresh_redis().await;
    let url = redis.url();
    let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("free");
    let mine = holder(&url).await.expect("held");
    let other = {
        let url = url.clone();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                sleep(TTL + millis(150)).await;
                let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("it expired");
                let token = holder(&url).await.expect("held");
                sleep(millis(1500)).await;
                assert_eq!(holder(&url).await.as_ref(), Some(&token), "the sleeper took it away");
                drop(guard);
                token
            })
        })
    };
    std::thread::sleep(TTL + millis(600));

    tokio::time::timeout(TTL, guard.lost().cancelled()).await.expect("it wakes up and sees the loss");
    drop(guard);
    let theirs = tokio::task::spawn_blocking(move || other.join()).await.expect("joined").expect("no panic");
    assert_ne!(mine, theirs);
}

#[tokio::test]
async fn three_tries_a_tenth_of_a_second_apart_then_busy() {
    let app = TestApp::start().await;
    let (here, there) = (locks(&app.redis_url), locks(&app.redis_url));
    let labels = [("scene", "SETTLE"), ("outcome", "busy")];
    let before = metric(&app, "payonce_lock_acquire_total", &labels).await;
    let _held = here.acquire(Scene::Settle, KEY).await.expect("free");
    for _ in 0..3 {
        let asked = Instant::now();
        assert!(there.acquire(Scene::Settle, KEY).await.is_err());
        let waited = asked.elapsed();
        // Two pauses of 50 to 150 ms, and three round trips.
        assert!((millis(100)..millis(800)).contains(&waited), "{waited:?}");
    }
    let after = metric(&app, "payonce_lock_acquire_total", &labels).await;
    assert!(after >= before + 3.0, "{before} → {after}");
    app.end().await;
}

#[tokio::test]
async fn who_waits_hears_of_the_holders_work_before_the_next_try() {
    let redis = fresh_redis().await;
    let held = locks(&redis.url()).acquire(Scene::Webhook, KEY).await.expect("free");
    let patient = LockSettings { pause: Duration::from_secs(20), ..LockSettings::with_ttl(TTL) };
    let (there, asked, is_done) = (locks_with(&redis.url(), patient), Instant::now(), AtomicU32::new(0));
    let look = || async { (is_done.load(Ordering::SeqCst) == 1).then_some("done") };
    let (turn, ()) = tokio::join!(there.acquire_unless(Scene::Webhook, KEY, look), async {
        sleep(millis(100)).await;
        is_done.store(1, Ordering::SeqCst);
    });
    assert!(matches!(turn, Ok(Turn::Settled("done"))), "{turn:?}");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());

    // It neither took the lock nor kept its place in the queue.
    drop(held);
    assert!(released_within(&redis.url(), Duration::from_secs(1)).await);
    let free = there.acquire_unless(Scene::Webhook, KEY, || async { Some("done") }).await;
    assert!(matches!(free, Ok(Turn::Ours(_))), "what is free is taken without a look: {free:?}");
}

#[tokio::test]
async fn it_is_had_within_three_tries_when_the_holder_ends() {
    let redis = fresh_redis().await;
    let (here, there) = (locks(&redis.url()), locks(&redis.url()));
    let held = here.acquire(Scene::Settle, KEY).await.expect("free");
    let waiting =
        tokio::spawn(async move { there.acquire(Scene::Settle, KEY).await.map(|guard| guard.is_degraded()) });
    sleep(millis(40)).await;
    drop(held);
    assert!(!waiting.await.expect("no panic").expect("the next try has it"));
}

#[tokio::test]
async fn who_waited_knows_it_also_when_redis_dies_meanwhile() {
    let mut redis = fresh_redis().await;
    let held = locks(&redis.url()).acquire(Scene::Settle, KEY).await.expect("free");
    let there = locks_with(&redis.url(), LockSettings { pause: millis(1000), ..LockSettings::with_ttl(TTL) });
    let (guard, ()) = tokio::join!(there.acquire(Scene::Settle, KEY), async {
        sleep(millis(100)).await;
        redis.kill().await.expect("killed");
    });
    let guard = guard.expect("the work goes on");
    assert!(guard.is_degraded() && guard.has_waited(), "what was read before may be over");
    drop(held);
}

#[tokio::test]
async fn without_redis_the_process_keeps_its_own_order() {
    let mut redis = fresh_redis().await;
    let locks = Locks::new(
        backend_on(&client(&redis.url(), millis(50))),
        LockSettings::with_ttl(TTL),
        Ids::random(Clock::system()),
    );
    redis.pause().await.expect("paused");
    for state in ["hung", "down"] {
        let asked = Instant::now();
        let guard = locks.acquire(Scene::Settle, KEY).await.expect("the work goes on");
        println!("a lock without Redis ({state}) took {:?}", asked.elapsed());
        assert!(guard.is_degraded() && asked.elapsed() < millis(600), "{state}: {:?}", asked.elapsed());

        let neighbour = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire(Scene::Settle, KEY).await.map(|guard| guard.is_degraded()) }
        });
        sleep(millis(250)).await;
        assert!(!neighbour.is_finished(), "{state}: one at a time in this process");
        drop(guard);
        assert!(neighbour.await.expect("no panic").expect("its turn"), "{state}");
        redis.kill().await.expect("killed");
    }
}

#[tokio::test]
async fn the_queue_of_a_process_is_first_come_first_served() {
    let redis = fresh_redis().await;
    let locks = locks(&redis.url());
    let first = locks.acquire(Scene::Settle, KEY).await.expect("free");
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for index in 0..12 {
        let (locks, served) = (locks.clone(), served.clone());
        tokio::spawn(async move {
            let _guard = locks.acquire(Scene::Settle, KEY).await.expect("its turn");
            served.send(index).expect("listening");
        });
        // Each takes its place before the next comes.
        sleep(millis(5)).await;
    }
    drop((first, served));
    let mut seen = Vec::new();
    while let Some(index) = order.recv().await {
        seen.push(index);
    }
    assert_eq!(seen, (0..12).collect::<Vec<_>>());
}

/// The request went through on the queue alone, but Redis takes its `SET` in all the same when it wakes up.
#[tokio::test]
async fn a_lock_that_redis_grants_too_late_blocks_nobody() {
    let mut redis = fresh_redis().await;
    let ttl = Duration::from_secs(20);
    let hasty = Locks::new(
        backend_on(&client(&redis.url(), millis(50))),
        LockSettings::with_ttl(ttl),
        Ids::random(Clock::system()),
    );
    drop(hasty.acquire(Scene::Settle, "lock:ORDER:demo:warm").await.expect("connected"));
    redis.pause().await.expect("paused");
    drop(hasty.acquire(Scene::Settle, KEY).await.expect("the work goes on"));
    redis.resume().await.expect("resumed");
    assert!(released_within(&redis.url(), Duration::from_secs(3)).await, "nobody has it, and it is held");
    sleep(millis(300)).await;
    assert_eq!(holder(&redis.url()).await, None);
}

#[tokio::test]
async fn a_connection_that_is_cut_does_not_leave_the_lock_behind() {
    let redis = fresh_redis().await;
    let ttl = Duration::from_secs(20);
    let locks = locks_with(&redis.url(), LockSettings::with_ttl(ttl));
    for round in 0..5 {
        let guard = locks.acquire(Scene::Settle, KEY).await.expect("free");
        let _: i64 = tell_redis(&redis.url(), &["CLIENT", "KILL", "TYPE", "normal"]).await;
        drop(guard);
        assert!(released_within(&redis.url(), Duration::from_secs(3)).await, "left behind in round {round}");
    }
}

#[tokio::test]
async fn its_figures_have_the_promised_names() {
    let app = TestApp::start().await;
    app.order_to_pay("M1").await;
    let text = app.http.get(format!("{}/metrics", app.url)).send().await.expect("an answer");
    let text = text.text().await.expect("text");
    let line =
        |name: &str, label: &str| text.lines().any(|line| line.starts_with(name) && line.contains(label));
    assert!(line("payonce_lock_acquire_total{", "outcome=\"acquired\""), "{text}");
    assert!(line("payonce_lock_acquire_total{", "scene=\"GENERATE_PAY_URL\""), "{text}");
    assert!(line("payonce_lock_wait_seconds_bucket{", "le="), "{text}");
    assert!(line("payonce_lock_wait_seconds_count", ""), "{text}");
    assert!(!text.contains("M1"), "no ids in labels");
    app.end().await;
}

/// Grants the third try, and remembers by which word each one asked.
#[derive(Default)]
struct Reluctant(Mutex<Vec<String>>);

#[async_trait]
impl LockBackend for Reluctant {
    async fn try_acquire(&self, _: &str, token: &str, _: Duration) -> Result<bool, BackendUnavailable> {
        let mut asked = self.0.lock().expect("no panic");
        asked.push(token.to_owned());
        Ok(asked.len() == 3)
    }

    async fn renew(&self, _: &str, _: &str, _: Duration) -> Result<bool, BackendUnavailable> {
        Ok(true)
    }

    async fn release(&self, _: &str, _: &str) -> Result<bool, BackendUnavailable> {
        Ok(true)
    }
}

#[tokio::test]
async fn each_try_has_a_word_of_its_own_so_that_a_late_release_takes_nothing_away() {
    let backend = Arc::new(Reluctant::default());
    let locks = Locks::new(backend.clone(), LockSettings::with_ttl(TTL), Ids::random(Clock::system()));
    drop(locks.acquire(Scene::Settle, KEY).await.expect("the third try"));
    let words: std::collections::BTreeSet<_> = backend.0.lock().expect("no panic").iter().cloned().collect();
    assert_eq!(words.len(), 3, "{words:?}");
}
