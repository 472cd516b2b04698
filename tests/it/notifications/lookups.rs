//! Names of endpoints: looked up once for all who ask, and none waits for the silence of another.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use payonce::infra::outside::{Lookup, SharedLookup};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Name servers, of which some keep silent: those of names that begin so.
#[derive(Clone)]
struct Servers {
    silent: watch::Sender<Vec<&'static str>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Servers {
    fn silent(silent: &[&'static str]) -> Self {
        Self { silent: watch::Sender::new(silent.to_vec()), asked: Arc::default() }
    }

    fn asked(&self, name: &str) -> usize {
        self.asked.lock().expect("no panic").get(name).copied().unwrap_or(0)
    }
}

impl Lookup for Servers {
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        *self.asked.lock().expect("no panic").entry(name.clone()).or_default() += 1;
        let mut silent = self.silent.subscribe();
        let answer = async move {
            let speaks = |silent: &Vec<&str>| !silent.iter().any(|begin| name.starts_with(begin));
            silent.wait_for(speaks).await.map_err(io::Error::other)?;
            Ok(vec!["192.0.2.7".parse().expect("an address")])
        };
        answer.boxed()
    }
}

/// Has this many names looked up by askers who leave after a while, as those who connect do.
fn ask_for_many(
    lookup: &SharedLookup<Servers>,
    begin: &str,
    count: usize,
) -> Vec<tokio::task::JoinHandle<bool>> {
    let ask = |number: usize| {
        let looking = lookup.look(format!("{begin}-{number}.example"));
        tokio::spawn(async move { matches!(timeout(Duration::from_millis(100), looking).await, Ok(Err(_))) })
    };
    (0..count).map(ask).collect()
}

async fn answers(lookup: &SharedLookup<Servers>, name: &str) -> bool {
    let found = timeout(Duration::from_millis(500), lookup.look(name.to_owned())).await;
    found.is_ok_and(|found| found.is_ok_and(|addresses| addresses.len() == 1))
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_all_who_ask_and_anew_for_whoever_asks_later() {
    let servers = Servers::silent(&["shop"]);
    let lookup = SharedLookup::new(servers.clone());
    let early = lookup.look("shop.example".to_owned());
    drop(timeout(Duration::from_millis(10), early).await);
    let many = join_all((0..500).map(|_| lookup.look("shop.example".to_owned())));
    let speak = async {
        sleep(Duration::from_millis(100)).await;
        servers.silent.send_replace(Vec::new());
    };
    let (many, ()) = tokio::join!(many, speak);
    assert!(many.iter().all(|found| found.as_ref().is_ok_and(|addresses| addresses.len() == 1)));
    assert_eq!(servers.asked("shop.example"), 1);
    assert!(answers(&lookup, "shop.example").await);
    assert_eq!(servers.asked("shop.example"), 2, "no answer is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_under_a_silent_server_take_no_place_of_names_that_answer() {
    let servers = Servers::silent(&["mute", "lost"]);
    let lookup = SharedLookup::new(servers.clone());
    assert!(answers(&lookup, "shop.example").await);
    let mut asking = ask_for_many(&lookup, "mute", 100);
    asking.extend(ask_for_many(&lookup, "lost", 1));
    join_all(asking).await;
    assert!(answers(&lookup, "shop.example").await, "it answered before");
    // Each of them is known to be silent a while after it was asked.
    sleep(Duration::from_millis(4_500)).await;
    assert!(answers(&lookup, "new.example").await, "nothing is known of it");

    servers.silent.send_replace(Vec::new());
    sleep(Duration::from_millis(100)).await;
    assert!(answers(&lookup, "lost-0.example").await);
    servers.silent.send_replace(vec!["mute", "other"]);
    // What is known to be silent takes no place of what is not known, as long as it is looked up.
    join_all(ask_for_many(&lookup, "mute", 100)).await;
    assert!(answers(&lookup, "newer.example").await, "nothing is known of it");
    join_all(ask_for_many(&lookup, "other", 100)).await;
    assert!(answers(&lookup, "lost-0.example").await, "it answers again");
    assert!(answers(&lookup, "shop.example").await);
}

#[tokio::test]
async fn names_without_number_do_not_wait_without_end() {
    let servers = Servers::silent(&["mute"]);
    let lookup = SharedLookup::new(servers.clone());
    assert!(answers(&lookup, "shop.example").await);
    let asked = join_all(ask_for_many(&lookup, "mute", 3_000)).await;
    let refused = asked.into_iter().filter(|asked| *asked.as_ref().expect("no panic")).count();
    assert!((1_500..2_000).contains(&refused), "{refused} were refused at once");
    assert!(answers(&lookup, "shop.example").await);
    servers.silent.send_replace(Vec::new());
    sleep(Duration::from_millis(200)).await;
    assert!(answers(&lookup, "mute-2999.example").await, "there is room again");
}
