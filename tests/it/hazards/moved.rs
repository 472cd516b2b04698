//! One name for Redis that leads to another server from some moment on, as with a managed one that fails over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use payonce::infra::lock::Scene;
use payonce::local::{RedisOptions, RedisServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::readiness;
use super::without_redis::main_job_works;
use crate::support::stores::{directory, fresh_name, fresh_redis, tell_redis};
use crate::support::{TestApp, TestOptions};

/// A name, until it is dropped. Who is connected stays where they are when it moves.
struct Name {
    port: u16,
    leads_to: Arc<AtomicU16>,
    accepting: JoinHandle<()>,
}

impl Name {
    async fn of(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let leads_to = Arc::new(AtomicU16::new(port));
        let target = Arc::clone(&leads_to);
        let accepting = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.expect("a client");
                let port = target.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
                    // It ends when either of them does.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port: own, leads_to, accepting }
    }

    fn moves_to(&self, port: u16) {
        self.leads_to.store(port, Ordering::SeqCst);
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn has_locks(app: &TestApp, key: &str) -> bool {
    !app.instance.app.locks.acquire(Scene::Settle, key).await.expect("free").is_degraded()
}

#[tokio::test]
async fn a_master_that_was_demoted_is_told_apart_and_its_successor_found_behind_the_same_name() {
    let old = fresh_redis().await;
    let options = RedisOptions { password: Some(old.password().to_owned()), ..RedisOptions::default() };
    let dir = directory().join("redis").join(fresh_name());
    let new = RedisServer::start_with(&dir, &options).await.expect("its successor");
    let name = Name::of(old.port()).await;
    let url = old.url().replace(&format!(":{}", old.port()), &format!(":{}", name.port));
    let app = TestApp::start_with(TestOptions { redis_url: Some(url), ..TestOptions::default() }).await;
    assert_eq!(readiness(&app).await.expect(200).body["status"], "ready");
    assert!(has_locks(&app, "lock:before").await);

    // As it is demoted, it closes no connection and answers whoever reads.
    let successor = new.port().to_string();
    let _: String = tell_redis(&old.url(), &["REPLICAOF", "127.0.0.1", &successor]).await;
    for _ in 0..3 {
        let state = readiness(&app).await.expect(200).body;
        assert_eq!((&state["status"], &state["redis"]), (&"degraded".into(), &"down".into()), "{state}");
    }
    assert!(!has_locks(&app, "lock:between").await);
    main_job_works(&app, "demoted").await;

    name.moves_to(new.port());
    app.eventually("locks are had from the new master", || has_locks(&app, "lock:after")).await;
    app.eventually("it is ready again", async || readiness(&app).await.body["status"] == "ready").await;
    main_job_works(&app, "moved").await;
    app.end().await;
}
