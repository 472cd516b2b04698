//! `kill -9` in a loop under load: clients order, ask for links, pay and close while the service dies at random moments.
//! Afterwards all that was acknowledged is there, and the channel's books and ours are the same.
//!
//! Ten kills by default; `PAYONCE_FULL=1` makes it two hundred, `PAYONCE_KILLS=…` any other number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::service::{Service, Shop, is_full};
use crate::support::{Chance, Reply, SECRET_KEY};

/// Clients at once.
const CLIENTS: u64 = 8;

fn kills() -> usize {
    let wanted = std::env::var("PAYONCE_KILLS").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or(if is_full() { 200 } else { 10 })
}

/// What a client was told, and so may rely on.
#[derive(Clone, Debug, Default)]
struct Told {
    is_made: bool,
    /// The last link: its attempt and its address.
    link: Option<(String, Value)>,
    is_closed: bool,
    is_paid: bool,
}

/// The load: clients who go on whatever becomes of the service.
struct Load {
    url: String,
    http: reqwest::Client,
    told: Mutex<BTreeMap<String, Told>>,
    is_over: AtomicBool,
    answers: AtomicU64,
    losses: AtomicU64,
}

impl Load {
    /// Asks once; nothing when nobody answered.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Option<Reply> {
        let request =
            self.http.request(method, format!("{}{path}", self.url)).bearer_auth(SECRET_KEY).json(body);
        let Ok(response) = request.send().await else {
            self.losses.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(5)).await;
            return None;
        };
        self.answers.fetch_add(1, Ordering::Relaxed);
        let reply = Reply::of(response).await;
        // An answer that was cut off is none.
        (reply.body != Value::Null).then_some(reply)
    }

    fn note(&self, order_no: &str, note: impl FnOnce(&mut Told)) {
        note(self.told.lock().expect("no panic").entry(order_no.to_owned()).or_default());
    }

    /// How many orders were told to be made, linked, closed and paid.
    fn counts(&self) -> [usize; 4] {
        let told = self.told.lock().expect("no panic");
        let count = |is_so: fn(&Told) -> bool| told.values().filter(|told| is_so(told)).count();
        let (made, linked) = (count(|told| told.is_made), count(|told| told.link.is_some()));
        [made, linked, count(|told| told.is_closed), count(|told| told.is_paid)]
    }

    /// One order's life, as its dice fall; any step may be lost, and is not made up for.
    async fn live(&self, shop: &Shop, order_no: &str, dice: u32) {
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        let life = if dice.is_multiple_of(5) { 1 } else { 1_800 };
        let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items,
                           "expires_in": life});
        let made = self.ask(Method::POST, "/orders", &order).await;
        if made.is_some_and(|reply| matches!(reply.status, 200 | 201)) {
            self.note(order_no, |told| told.is_made = true);
        }
        for _ in 0..=dice / 5 % 2 {
            self.ask_for_link(order_no).await;
        }
        match dice / 10 % 4 {
            0 => self.close(order_no).await,
            1 => {
                pay(shop, order_no, dice).await;
                self.close(order_no).await;
            }
            2 => {
                tokio::join!(pay(shop, order_no, dice), self.close(order_no));
            }
            _ => pay(shop, order_no, dice).await,
        }
    }

    async fn ask_for_link(&self, order_no: &str) {
        let ask = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
        let Some(reply) = self.ask(Method::POST, "/pay/url", &ask).await else { return };
        if reply.status == 200 {
            let link = (reply.text_of("pay_order_id").to_owned(), reply.body["pay_url"].clone());
            self.note(order_no, |told| told.link = Some(link));
        }
    }

    async fn close(&self, order_no: &str) {
        let Some(reply) = self.ask(Method::POST, &format!("/orders/{order_no}/close"), &json!({})).await
        else {
            return;
        };
        match (reply.status, reply.body["code"].as_str()) {
            (200, _) => self.note(order_no, |told| told.is_closed = true),
            (409, Some("ORDER_IS_ALREADY_PAID")) => self.note(order_no, |told| told.is_paid = true),
            _ => {}
        }
    }

    /// One client: an order after the other, until the story is over.
    async fn go_on(&self, shop: &Shop, client: u64, seed: u32) {
        let mut dice = seed;
        for index in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.live(shop, &format!("K-{client}-{index}"), dice >> 8).await;
        }
    }
}

/// Pays the first attempt that the channel has of an order, sometimes too late or too much.
async fn pay(shop: &Shop, order_no: &str, dice: u32) {
    let attempt: Option<String> = sqlx::query_scalar(
        "SELECT pay_order_id FROM pay_orders JOIN sandbox.trades USING (pay_order_id) WHERE order_no = $1 LIMIT 1",
    )
    .bind(order_no)
    .fetch_optional(shop.app.instance.app.db.pool())
    .await
    .expect("a look");
    let Some(id) = attempt else { return };
    let mut press = json!({"force": (dice / 40).is_multiple_of(3)});
    if (dice / 120).is_multiple_of(10) {
        press["amount"] = json!(7);
    }
    shop.app.sandbox_pay(&id, press).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_under_load_the_service_keeps_what_it_acknowledged() {
    let (mut chance, kills, started) = (Chance::new(), kills(), Instant::now());
    let shop = Arc::new(Shop::open().await);
    let mut service = shop.serve("").await;
    let load = Arc::new(Load {
        url: service.url.clone(),
        http: shop.app.http.clone(),
        told: Mutex::default(),
        is_over: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        losses: AtomicU64::new(0),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (shop, load, seed) = (shop.clone(), load.clone(), chance.number());
            tokio::spawn(async move { load.go_on(&shop, client, seed).await })
        })
        .collect();

    let mut killed = 0;
    // A slow machine may need more for one of each.
    while killed < kills || !is_enough(load.counts()) && killed < 3 * kills {
        sleep(chance.pause(1_200_000)).await;
        service.kill().await;
        service = shop.serve("").await;
        killed += 1;
    }
    load.is_over.store(true, Ordering::Relaxed);
    for client in join_all(clients).await {
        client.expect("no client panicked");
    }
    // A channel that met a dead service again and again takes its time; here it repeats itself at once.
    shop.app
        .sql("UPDATE sandbox.deliveries SET due_at = now() WHERE status = 'PENDING' AND attempts > 0")
        .await;
    let drained = shop.settle("after the last kill").await;
    assert_acknowledged_is_there(&shop, &service, &load).await;
    println!(
        "{killed} kills in {:?}: {} answers, {} lost; drained {drained:?} after the last",
        started.elapsed(),
        load.answers.load(Ordering::Relaxed),
        load.losses.load(Ordering::Relaxed)
    );
    service.kill().await;
    Arc::into_inner(shop).expect("nobody else has it").end().await;
}

/// Whether so many orders that were made, linked, closed and paid are a load.
fn is_enough([made, linked, closed, paid]: [usize; 4]) -> bool {
    made >= kills() && linked >= kills() / 2 && closed > 0 && paid > 0
}

async fn assert_acknowledged_is_there(shop: &Shop, service: &Service, load: &Load) {
    let all = load.told.lock().expect("no panic").clone();
    let [made, linked, closed, paid] = load.counts();
    println!(
        "{} orders were spoken of: {made} made, {linked} linked, {closed} closed, {paid} paid",
        all.len()
    );
    assert!(is_enough([made, linked, closed, paid]), "there was a load");
    assert!(load.losses.load(Ordering::Relaxed) > 0, "somebody was cut off");
    for (order_no, told) in all {
        let found = service.ask(Method::GET, &format!("/orders/{order_no}"), SECRET_KEY, None).await;
        let order = found.expect("it lives").expect(200).body;
        if let Some((id, pay_url)) = &told.link {
            let attempts = order["pay_orders"].as_array().expect("attempts");
            assert!(attempts.iter().any(|attempt| attempt["pay_order_id"] == *id), "{told:?}: {order}");
            let attempt = service.ask(Method::GET, &format!("/pay/{id}"), SECRET_KEY, None).await;
            assert_eq!(attempt.expect("it lives").expect(200).body["pay_url"], *pay_url, "{order}");
        }
        let status = order["status"].as_str().expect("a status");
        assert!(!told.is_closed || status == "CLOSED", "{told:?}: {order}");
        assert!(!told.is_paid || status == "PAID", "{told:?}: {order}");
    }
    let pending = shop.app.count_where("orders", "status = 'PENDING'").await;
    let held = shop.app.stock_of("TEA").await.1;
    assert_eq!(held, pending, "stock is held for open orders only");
}
