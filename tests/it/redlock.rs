//! The lock on a quorum of independent nodes: the majority grants it, a minority that fails is not noticed, and
//! without a majority the work goes on as without Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use payonce::config::RedisConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::lock::{LockSettings, Locks, Scene, backend_on};
use payonce::infra::redis::Redis;
use payonce::local::RedisServer;
use tokio::time::sleep;

use crate::support::servers::quorum_of;
use crate::support::stores::tell_redis;
use crate::support::{Cluster, TestApp, TestOptions, double_grant};

const KEY: &str = "lock:ORDER:demo:Q1";
const TTL: Duration = Duration::from_millis(900);

fn locks_with(url: &str, settings: LockSettings) -> Locks {
    let servers = url.parse().expect("servers");
    let config = RedisConfig { servers, answer_deadline: Duration::from_millis(1000), lock_ttl: TTL };
    Locks::new(backend_on(&Redis::new(&config).expect("clients")), settings, Ids::random(Clock::system()))
}

fn locks(url: &str) -> Locks {
    locks_with(url, LockSettings::with_ttl(TTL))
}

async fn holders(nodes: &[RedisServer]) -> usize {
    let mut count = 0;
    for node in nodes {
        count += usize::from(tell_redis::<Option<String>>(&node.url(), &["GET", KEY]).await.is_some());
    }
    count
}

/// Nodes hear of a lock, and of its end, beside the work.
async fn until_held_by(count: usize, nodes: &[RedisServer]) {
    for _ in 0..100 {
        if holders(nodes).await == count {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{} nodes hold it, not {count}", holders(nodes).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_nodes_let_one_in_at_a_time() {
    let (mut nodes, url) = quorum_of(5).await;
    for mut dead in nodes.split_off(3) {
        dead.kill().await.expect("killed");
    }
    let pause = Duration::from_millis(5);
    let patient = LockSettings {
        tries: 10_000,
        pause,
        queue_deadline: Duration::from_secs(60),
        ..LockSettings::with_ttl(Duration::from_secs(30))
    };
    let instances = [locks_with(&url, patient), locks_with(&url, patient)];
    let (inside, turns) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let visits = (0..40).map(|index| {
        let (locks, inside, turns) = (&instances[index % 2], &inside, &turns);
        async move {
            let guard = locks.acquire(Scene::Settle, KEY).await.expect("its turn");
            assert!(!guard.is_degraded());
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
            sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            turns.fetch_add(1, Ordering::SeqCst);
        }
    });
    futures_util::future::join_all(visits).await;
    assert_eq!(turns.load(Ordering::SeqCst), 40);
}

#[tokio::test]
async fn two_of_five_nodes_degrade_and_leave_nothing_behind() {
    let (mut nodes, url) = quorum_of(5).await;
    for mut dead in nodes.split_off(2) {
        dead.kill().await.expect("killed");
    }
    let locks = locks(&url);
    for _ in 0..5 {
        let guard = locks.acquire(Scene::Settle, KEY).await.expect("never refused");
        assert!(guard.is_degraded());
    }
    until_held_by(0, &nodes).await;
}

#[tokio::test]
async fn it_is_held_and_given_back_everywhere() {
    let (nodes, url) = quorum_of(5).await;
    let (here, there) = (locks(&url), locks(&url));
    let guard = here.acquire(Scene::Settle, KEY).await.expect("free");
    until_held_by(5, &nodes).await;
    assert!(there.acquire(Scene::Settle, KEY).await.is_err(), "it is held");
    until_held_by(5, &nodes).await;
    drop(guard);
    until_held_by(0, &nodes).await;
    assert!(!there.acquire(Scene::Settle, KEY).await.expect("free").is_degraded());
}

#[tokio::test]
async fn the_watchdog_needs_the_majority_and_keeps_nothing_without_it() {
    let (mut nodes, url) = quorum_of(5).await;
    let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("free");
    until_held_by(5, &nodes).await;
    for mut dead in nodes.split_off(3) {
        dead.kill().await.expect("killed");
    }
    sleep(TTL * 2).await;
    assert_eq!(holders(&nodes).await, 3, "kept by the majority");
    assert!(!guard.lost().is_cancelled());

    nodes.pop().expect("a third node").kill().await.expect("killed");
    sleep(TTL * 3).await;
    assert!(guard.still_held().is_ok(), "without a majority everybody goes on without a lock");
    assert_eq!(holders(&nodes).await, 0, "it is kept nowhere");
}

#[tokio::test]
async fn a_lock_that_the_majority_gave_to_another_is_lost() {
    let (nodes, url) = quorum_of(3).await;
    let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("free");
    until_held_by(3, &nodes).await;
    for node in &nodes[..2] {
        let _: () = tell_redis(&node.url(), &["SET", KEY, "another"]).await;
    }
    tokio::time::timeout(TTL, guard.lost().cancelled()).await.expect("noticed at the next renewal");
    drop(guard);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(holders(&nodes).await, 2, "the new owner keeps it");
}

#[tokio::test]
async fn a_lock_that_the_majority_has_forgotten_is_taken_again() {
    let (nodes, url) = quorum_of(3).await;
    let guard = locks(&url).acquire(Scene::Settle, KEY).await.expect("free");
    until_held_by(3, &nodes).await;
    for node in &nodes[..2] {
        let _: () = tell_redis(&node.url(), &["FLUSHALL"]).await;
    }
    until_held_by(3, &nodes).await;
    assert!(locks(&url).acquire(Scene::Settle, KEY).await.is_err(), "it is held as before");
    assert!(!guard.lost().is_cancelled());
    drop(guard);
    until_held_by(0, &nodes).await;
}

#[tokio::test]
async fn a_node_that_is_silent_does_not_slow_anybody_down() {
    let (mut nodes, url) = quorum_of(3).await;
    let locks = locks(&url);
    drop(locks.acquire(Scene::Settle, KEY).await.expect("free"));
    until_held_by(0, &nodes).await;
    nodes[0].pause().await.expect("paused");
    let mut waits = Vec::new();
    for index in 0..40 {
        let asked = Instant::now();
        let guard = locks.acquire(Scene::Settle, &format!("{KEY}-{index}")).await.expect("free");
        waits.push(asked.elapsed());
        assert!(!guard.is_degraded());
    }
    waits.sort_unstable();
    println!("one node of three is silent: median {:?}, longest {:?}", waits[20], waits[39]);
    // Its answer would have been waited for a whole second.
    assert!(waits[39] < Duration::from_millis(700), "{waits:?}");
    nodes[0].resume().await.expect("resumed");
}

/// Granted by the majority, and by then there is nothing left of it.
#[tokio::test]
async fn grants_that_come_too_late_are_given_back_and_the_work_goes_on_without() {
    const SHORT: Duration = Duration::from_millis(300);
    let (mut nodes, url) = quorum_of(3).await;
    let locks = locks_with(&url, LockSettings::with_ttl(SHORT));
    // Everybody is known before: a node that hangs while it is greeted is never asked.
    assert!(!locks.acquire(Scene::Settle, KEY).await.expect("free").is_degraded());
    until_held_by(0, &nodes).await;
    for hung in &mut nodes[1..] {
        hung.pause().await.expect("paused");
    }
    let asked = Instant::now();
    let resumed = async {
        sleep(SHORT + Duration::from_millis(100)).await;
        for hung in &mut nodes[1..] {
            hung.resume().await.expect("resumed");
        }
    };
    let (guard, ()) = tokio::join!(locks.acquire(Scene::Settle, KEY), resumed);
    let guard = guard.expect("never refused");
    println!("an answer after {:?}", asked.elapsed());
    assert!(guard.is_degraded(), "it was granted and had run out");
    until_held_by(0, &nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_forget_a_lock_and_grant_it_again_have_no_double_effect() {
    let (nodes, url) = quorum_of(3).await;
    let options = TestOptions { redis_url: Some(url), vars: double_grant::vars(), ..TestOptions::default() };
    let cluster = Cluster::start(2, options).await;
    let mut clock_jumps = false;
    double_grant::has_one_effect(cluster.first(), cluster.turn(1), async || {
        if clock_jumps {
            // A clock that jumps ahead ends what was granted at once, on as many nodes as make a majority.
            for (node, order_no) in nodes.iter().zip(["D2", "D2"]) {
                let key = format!("lock:ORDER:demo:{order_no}");
                let _: i64 = tell_redis(&node.url(), &["PEXPIRE", &key, "1"]).await;
            }
        } else {
            for node in &nodes[1..] {
                let _: () = tell_redis(&node.url(), &["FLUSHALL"]).await;
            }
            clock_jumps = true;
        }
    })
    .await;
    cluster.end().await;
}

#[tokio::test]
async fn readiness_shows_each_node_and_timers_go_to_the_first_that_answers() {
    let (mut nodes, url) = quorum_of(3).await;
    let app = TestApp::start_with(TestOptions { redis_url: Some(url), ..TestOptions::default() }).await;
    let readiness = async || app.get("/readyz").await.expect(200).body;
    assert_eq!(readiness().await["status"], "ready");

    nodes[0].kill().await.expect("killed");
    let body = readiness().await;
    let states: Vec<_> = (0..3).map(|index| body["redis_nodes"][index]["state"].clone()).collect();
    assert_eq!((&body["status"], states), (&"ready".into(), vec!["down".into(), "up".into(), "up".into()]));
    app.order("Q2").await;
    app.eventually("its timer is on the second node", async || {
        tell_redis::<i64>(&nodes[1].url(), &["ZCARD", "delay:order_timeout"]).await == 1
    })
    .await;

    nodes[1].kill().await.expect("killed");
    assert_eq!(readiness().await["status"], "degraded");
    app.order_to_pay("Q3").await;
    app.clock.advance(Duration::from_secs(1805));
    app.run_until_idle().await;
    assert_eq!(app.count_where("orders", "status = 'CLOSED'").await, 2);
    app.end().await;
}
