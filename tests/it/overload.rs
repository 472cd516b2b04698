//! Far more requests than can be worked on: whoever has no place hears so at once, those inside are served as before,
//! channels, operators and health checks notice nothing, and afterwards all is well again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::support::service::{OPERATOR_OF_PROCESS, Service, Shop};
use crate::support::{Reply, SECRET_KEY, seconds};

/// Requests that may be under way.
const PLACES: usize = 24;
/// How many times as many ask.
const TIMES: usize = 12;

/// Customers who ask as fast as they are answered.
#[derive(Default)]
struct Crowd {
    is_over: AtomicBool,
    served: AtomicUsize,
    turned_away: AtomicUsize,
    /// Longest that somebody waited for being turned away, in microseconds.
    slowest_refusal: AtomicUsize,
}

impl Crowd {
    async fn ask(&self, service: &Service, name: &str) {
        let mut count = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            count += 1;
            let order = json!({"order_no": format!("{name}-{count}"), "user_id": "u1", "currency": "CNY", "amount": 5});
            let asked = Instant::now();
            let request = service.http.post(format!("{}/orders", service.url)).bearer_auth(SECRET_KEY);
            let reply = Reply::of(request.json(&order).send().await.expect("an answer")).await;
            if reply.status == 201 {
                self.served.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            assert_eq!(reply.problem(503), "OVERLOADED", "{}", reply.text);
            assert_eq!(reply.header("retry-after"), Some("1"));
            let took = usize::try_from(asked.elapsed().as_micros()).expect("small");
            self.slowest_refusal.fetch_max(took, Ordering::Relaxed);
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            // Much sooner than it was told to.
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// So many customers at once, for so long.
async fn crowd_of(count: usize, service: &Arc<Service>, name: &str, lasts: Duration) -> Arc<Crowd> {
    let crowd = Arc::new(Crowd::default());
    let customers: Vec<_> = (0..count)
        .map(|number| {
            let (crowd, service, name) = (crowd.clone(), service.clone(), format!("{name}{number}"));
            tokio::spawn(async move { crowd.ask(&service, &name).await })
        })
        .collect();
    sleep(lasts).await;
    crowd.is_over.store(true, Ordering::Relaxed);
    for customer in join_all(customers).await {
        customer.expect("no customer was told nonsense");
    }
    crowd
}

/// What must get through meanwhile: callbacks, operators, health checks. Gives the longest wait of any.
async fn others(shop: &Shop, service: &Service, attempts: &[String]) -> Duration {
    let mut slowest = Duration::ZERO;
    for attempt in attempts {
        let body = serde_json::to_vec(&shop.app.success(
            &format!("e-{attempt}"),
            attempt,
            &format!("t-{attempt}"),
            5,
        ));
        let body = body.expect("json");
        let signature = shop.app.sign(&body);
        let since = Instant::now();
        let taken = service.webhook(body, &signature).await.expect("it lives");
        slowest = slowest.max(since.elapsed());
        assert_eq!((taken.status, taken.text.as_str()), (200, "SUCCESS"));
        let alive = service.ask_once(Method::GET, "/livez", "", None).await.expect("it lives");
        assert_eq!(alive.status, 200, "{}", alive.text);
        let operator = OPERATOR_OF_PROCESS;
        let seen =
            service.ask_once(Method::GET, "/admin/exceptions", operator, None).await.expect("it lives");
        assert_eq!(seen.status, 200, "{}", seen.text);
        sleep(Duration::from_millis(50)).await;
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rush_is_turned_away_at_the_door_and_those_inside_are_served() {
    let shop = Shop::open().await;
    let mut command = shop.command("");
    command.env("HTTP_REQUESTS_MAX", PLACES.to_string());
    let service = Arc::new(shop.start(command).await);
    let mut attempts = Vec::new();
    for number in 0..30 {
        let order_no = format!("before-{number}");
        let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 5});
        service.post("/orders", &order).await.expect("it lives").expect(201);
        let link = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
        let link = service.post("/pay/url", &link).await.expect("it lives").expect(200);
        attempts.push(link.text_of("pay_order_id").to_owned());
    }

    let lasts = seconds(3);
    let usual = crowd_of(PLACES, &service, "usual", lasts).await;
    assert_eq!(usual.turned_away.load(Ordering::Relaxed), 0, "there is a place for each");
    let before = service.usage();
    let (rush, slowest) =
        tokio::join!(crowd_of(PLACES * TIMES, &service, "rush", lasts), others(&shop, &service, &attempts));
    let after = service.usage();

    let (served, turned_away) =
        (rush.served.load(Ordering::Relaxed), rush.turned_away.load(Ordering::Relaxed));
    println!(
        "served {} in the usual crowd and {served} in one {TIMES} times as large; {turned_away} turned away, after {:?} at \
         most; others waited {slowest:?} at most; {before:?}, {after:?}",
        usual.served.load(Ordering::Relaxed),
        Duration::from_micros(rush.slowest_refusal.load(Ordering::Relaxed) as u64),
    );
    assert!(turned_away > 0 && served > 0, "{served} served, {turned_away} turned away");
    // A connection each, and nothing that piles up behind them.
    assert!(after.grown_since(&before) < 48 * 1024, "{before:?}, {after:?}");
    let recovered = Instant::now();
    for number in 0..PLACES {
        let order =
            json!({"order_no": format!("after-{number}"), "user_id": "u1", "currency": "CNY", "amount": 5});
        let made = service.ask_once(Method::POST, "/orders", SECRET_KEY, Some(&order)).await;
        made.expect("it lives").expect(201);
    }
    assert!(recovered.elapsed() < seconds(5), "well again after {:?}", recovered.elapsed());
    shop.settle("after the rush").await;
    Arc::into_inner(service).expect("nobody else has it").kill().await;
    // What was told by hand the sandbox's books do not know.
    shop.app.assert_books_balance().await;
    shop.app.end().await;
}
