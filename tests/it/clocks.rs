//! Machines whose clocks are off, and jump. Every instance goes by the database's, so an order lives as long as it was
//! promised, whoever made it and whoever looks at it.

use std::net::SocketAddr;

use payonce::channels::sandbox::signature::{HEADER, Keys};
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use tokio::time::sleep;

use crate::support::app::metric_at;
use crate::support::clocks::{WallClock, clear_after, knows_to_be_ahead};
use crate::support::service::{Service, Shop};
use crate::support::{SANDBOX_SECRET, TestOptions, stores};

const HOUR_SECS: i64 = 3_600;
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);
/// What becomes of a moment on its way through requests on a busy machine.
const CLOSE_BY: Duration = Duration::seconds(20);
/// Half an hour: over by a clock that is an hour ahead, and never by one that is an hour behind.
const LIFE_SECS: i64 = 1_800;

async fn serve(shop: &Shop, clock: &WallClock, port: u16) -> Service {
    let service = shop.start_at(clock.command(shop, ""), port).await;
    clock.assert_goes_by_it(&service).await;
    service
}

/// An order that lives so many seconds; its deadline is where the right clock puts it.
async fn order(shop: &Shop, service: &Service, order_no: &str, life_secs: i64) {
    let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "expires_in": life_secs,
                       "items": [{"sku": "TEA", "quantity": 1, "unit_price": 1990}]});
    let made = service.post("/orders", &order).await.expect("it lives").expect(201);
    let expires_at = OffsetDateTime::parse(made.text_of("expires_at"), &Rfc3339).expect("a moment");
    let off = expires_at - shop.app.clock.now() - Duration::seconds(life_secs);
    assert!(off.abs() < CLOSE_BY, "{order_no} runs out {off} from when it should");
}

/// The status that a callback of this attempt, which the channel dated so many seconds from now, is answered with.
async fn call_back(shop: &Shop, service: &Service, attempt: &str, dated_secs: i64) -> u16 {
    let body = serde_json::to_vec(&shop.app.success(attempt, attempt, attempt, 1990)).expect("json");
    let keys = Keys::new(&[SANDBOX_SECRET.into()]).expect("a secret");
    let signature = keys.sign(&body, shop.app.clock.now() + Duration::seconds(dated_secs));
    service.webhook(body, &signature).await.expect("it lives").status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_whose_clocks_are_an_hour_off_and_jump_go_by_the_databases() {
    let shop = Shop::open().await;
    let (mut one, mut other) = (WallClock::new().await, WallClock::new().await);
    one.set(HOUR_SECS);
    other.set(-HOUR_SECS);
    let instances = [serve(&shop, &one, 8080).await, serve(&shop, &other, 8081).await];
    for (index, service) in instances.iter().enumerate() {
        order(&shop, service, &format!("long-{index}"), LIFE_SECS).await;
    }
    for (index, ahead) in [HOUR_SECS, -HOUR_SECS].into_iter().enumerate() {
        let (service, order_no) = (&instances[index], format!("long-{index}"));
        let link = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
        let link = service.post("/pay/url", &link).await.expect("it lives").expect(200);
        let attempt = link.text_of("pay_order_id");
        assert_eq!(call_back(&shop, service, attempt, ahead).await, 400, "right by its machine only");
        assert!(knows_to_be_ahead(service, ahead).await, "{order_no}");
    }

    // Under whoever goes by them the clocks jump past each other.
    one.set(-HOUR_SECS);
    other.set(HOUR_SECS);
    for (index, service) in instances.iter().enumerate() {
        order(&shop, service, &format!("after-{index}"), LIFE_SECS).await;
        order(&shop, service, &format!("short-{index}"), 1).await;
    }
    for (service, ahead) in instances.iter().zip([-HOUR_SECS, HOUR_SECS]) {
        let is_seen = async || knows_to_be_ahead(service, ahead).await;
        service.until("it has seen the jump", is_seen).await.expect("it lives");
    }
    let short_is_over = async || shop.app.count_where("orders", "close_reason = 'TIMEOUT'").await == 2;
    instances[0].until("those that lived a second have run out", short_is_over).await.expect("it lives");
    assert_eq!(shop.app.count_where("orders", "status = 'PENDING'").await, 4, "and nobody else has");

    for (index, service) in instances.iter().enumerate() {
        let attempts = shop.app.attempts_of(&format!("long-{index}")).await;
        let attempt = attempts[0]["pay_order_id"].as_str().expect("an id");
        assert_eq!(call_back(&shop, service, attempt, 0).await, 200);
    }
    assert_eq!(shop.app.count_where("orders", "status = 'PAID'").await, 2);
    for service in instances {
        let process = service.id();
        service.kill().await;
        clear_after(process);
    }
    // What was told by hand the sandbox's books do not know.
    shop.app.assert_books_balance().await;
    shop.app.end().await;
}

/// How often an instance's duty went well; never where nobody answers.
async fn duty_runs(shop: &Shop, addr: SocketAddr, duty: &str) -> f64 {
    let (url, labels) = (format!("http://{addr}"), [("duty", duty), ("outcome", "ok")]);
    metric_at(&shop.app.http, &url, "payonce_duty_runs_total", &labels).await.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_database_has_told_the_time_nothing_is_judged_or_forgotten() {
    let mut postgres = stores::private_postgres().await;
    let options = TestOptions { database_url: Some(postgres.url()), ..TestOptions::default() };
    let shop = Shop::over(options, Vec::new()).await;
    let service = shop.serve("").await;
    let order = json!({"order_no": "A", "user_id": "u1", "currency": "CNY", "amount": 1990});
    service.post_keyed("/orders", "k", &order).await.expect("it lives").expect(201);
    let link = json!({"order_no": "A", "payer_id": "u1", "channel": "sandbox"});
    let link = service.post("/pay/url", &link).await.expect("it lives").expect(200);
    service.kill().await;
    postgres.kill().await.expect("killed");

    // Every answer that is kept is old by this clock, and every callback.
    let mut clock = WallClock::new().await;
    clock.set(4 * 24 * HOUR_SECS);
    let addr = shop.address_at(8080);
    let comes_back = async {
        // Its duties have begun, and whatever needs a connection waits for one.
        while duty_runs(&shop, addr, "metrics.upkeep").await == 0.0 {
            sleep(LOOK_EVERY).await;
        }
        let body = serde_json::to_vec(&shop.app.success("e", link.text_of("pay_order_id"), "t", 1990))
            .expect("json");
        let told = shop.app.http.post(format!("http://{addr}/webhooks/sandbox"));
        let told = told.header(HEADER, shop.app.sign(&body)).body(body).send();
        let (told, restarted) = tokio::join!(told, postgres.restart());
        restarted.expect("restarted");
        told.expect("an answer").status()
    };
    let mut command = clock.command(&shop, "");
    command.env("DATABASE_ACQUIRE_MS", "8000");
    let (service, told) = tokio::join!(shop.start(command), comes_back);
    clock.assert_goes_by_it(&service).await;
    assert_eq!(told, 200);
    let has_forgotten = async || duty_runs(&shop, addr, "idempotency.forget").await > 0.0;
    service.until("what is old was forgotten", has_forgotten).await.expect("it lives");
    let again = service.post_keyed("/orders", "k", &order).await.expect("it lives").expect(201);
    assert!(again.is_replayed(), "an answer is kept for three days");
    let process = service.id();
    service.kill().await;
    clear_after(process);
    shop.app.assert_books_balance().await;
    shop.app.end().await;
}
