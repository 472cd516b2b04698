//! Races that are open, or were, in well-known systems: where each is told here. Those that need what is not built
//! yet name the feature that brings them. Below the table are the stories that have no better place.

use std::time::Duration;

use futures_util::future::select_all;
use payonce::channels::Channel;
use payonce::channels::sandbox::{AdapterSettings, FaultKind, FaultOp, SandboxChannel, signature};
use payonce::config::{Config, Env, Strictness};
use serde_json::{Value, json};
use sqlx::Connection;

use crate::support::{TestApp, TestOptions, hang_up_once, minutes, seconds, until_waiting};
use crate::tidy::source::story;

/// A race, where it was seen, its stories, and the route of the feature that it still waits for.
type Race = (&'static str, &'static str, &'static [&'static str], Option<&'static str>);

const RACES: [Race; 21] = [
    (
        "two concurrent refunds of 60 on a payment of 100 both succeed",
        "Hyperswitch #13182",
        &[
            "exceptions::two_operators_who_decide_at_once_decide_once",
            "refunds::of_two_refunds_of_sixty_percent_at_once_one_is_made",
        ],
        None,
    ),
    (
        "credit is settled twice",
        "Lago #3618",
        &[
            "settlements::five_hundred_requests_at_once_on_one_order_are_one_settlement",
            "settlements::many_orders_are_settled_once_each_however_many_ask_without_any_lock",
        ],
        None,
    ),
    (
        "a refund is run by the webhook and again by the API's answer",
        "WooCommerce-Stripe #2724",
        &[
            "races::a_refund_run_by_the_callback_and_by_the_answer_is_run_once",
            "races::a_refund_whose_callback_overtakes_the_answer_is_run_once",
        ],
        None,
    ),
    (
        "captured twice when return and webhook meet",
        "Medusa #13301",
        &["races::the_return_the_callback_and_the_timer_pay_an_order_once"],
        None,
    ),
    (
        "holds are ignored when the balance is checked",
        "Blnk #181",
        &[
            "stock::two_hundred_buyers_of_a_hundred_things_get_exactly_a_hundred",
            "usage_at_once::a_hundred_clients_spend_one_balance_to_the_last_cent_and_no_further",
        ],
        None,
    ),
    (
        "a rejected hold is committed later",
        "Blnk #182",
        &[
            "stock::when_one_of_many_things_is_lacking_none_is_held",
            "usage::a_release_and_an_expiry_free_all_of_it",
        ],
        None,
    ),
    (
        "a quota is overdrawn by check-then-act",
        "new-api #6609",
        &[
            "stock::two_hundred_buyers_of_a_hundred_things_get_exactly_a_hundred",
            "usage_at_once::a_quota_is_not_overdrawn_however_many_ask_at_once",
        ],
        None,
    ),
    (
        "an empty webhook secret is accepted",
        "Stripe SDKs",
        &["known_races::an_empty_webhook_secret_is_not_accepted"],
        None,
    ),
    (
        "a signature with a timestamp in the future is accepted",
        "Stripe SDKs",
        &["webhooks::what_is_not_signed_is_not_believed_and_leaves_no_trace"],
        None,
    ),
    (
        "the merchant is told of success for a closed order, and the refund is refused",
        "Jeepay",
        &["races::a_merchant_is_not_told_success_for_a_closed_order"],
        None,
    ),
    (
        "a time-out is taken for a failure, then paid twice",
        "Kill Bill #1015",
        &["races::a_time_out_is_not_taken_for_a_failure_and_paid_twice"],
        None,
    ),
    (
        "a new idempotency key on an ambiguous retry",
        "Medusa #16292",
        &["known_races::an_ambiguous_retry_does_not_get_a_new_idempotency_key"],
        None,
    ),
    (
        "de-duplication is marked before the effect, so a crash means never",
        "OpenMeter #5118",
        &["races::deduplication_is_not_marked_before_the_effect"],
        None,
    ),
    (
        "a renewal never renews, or outlives the unlock",
        "Redisson #5698, #7272",
        &["lock::the_watchdog_keeps_a_long_hold_and_ends_with_it"],
        None,
    ),
    (
        "a callback before its row exists is acknowledged and lost",
        "statamic-cargo #190",
        &[
            "races::a_callback_before_its_row_exists_is_not_lost",
            "faults::a_callback_that_comes_before_our_commit_pays_the_order_once",
        ],
        None,
    ),
    (
        "paid orders are cancelled as unpaid because the timer never asked the channel",
        "WooCommerce-Stripe #5759",
        &["races::paid_orders_are_not_cancelled_as_unpaid_because_the_timer_asks_the_channel"],
        None,
    ),
    (
        "charged, then out of stock",
        "Saleor #14733",
        &["races::charged_then_out_of_stock_cannot_happen"],
        None,
    ),
    (
        "holds leak when the client disconnects",
        "new-api #4429",
        &[
            "known_races::a_hold_on_stock_does_not_leak_when_the_client_disconnects",
            "usage_at_once::a_client_that_hangs_up_leaves_no_hold_behind",
        ],
        None,
    ),
    (
        "an explicit zero is taken for missing",
        "LiteLLM #37992",
        &["known_races::an_explicit_zero_is_not_taken_for_missing", "usage::zero_is_zero_and_nothing_is_not"],
        None,
    ),
    (
        "paging skips rows while they leave the set",
        "Jeepay's reissue job",
        &["known_races::a_sweep_of_more_than_a_batch_skips_nobody"],
        None,
    ),
    (
        "paging skips rows while they leave the set, seen by a person",
        "Jeepay's reissue job",
        &["known_races::paging_by_status_skips_nothing_while_rows_leave_the_set"],
        None,
    ),
];

#[test]
fn every_race_has_a_story_or_a_feature_that_it_waits_for() {
    let document = payonce::http::document();
    let routes = document["paths"].as_object().expect("routes");
    for (race, seen_in, stories, waits_for) in RACES {
        assert!(!stories.is_empty() || waits_for.is_some(), "{race} ({seen_in}): tell it");
        for name in stories {
            assert!(story(name).is_some(), "{race} ({seen_in}): {name} is no test");
        }
        let is_built = waits_for.is_some_and(|route| routes.contains_key(route));
        assert!(
            !is_built,
            "{race} ({seen_in}): {waits_for:?} is there, so tell the race and name its story here"
        );
    }
}

#[tokio::test]
async fn an_empty_webhook_secret_is_not_accepted() {
    let long = "a-secret-of-more-than-24-bytes";
    let mut env = Env::of(
        Strictness::Strict,
        [
            ("DATABASE_URL", "postgres://u:p@127.0.0.1/x".to_owned()),
            ("REDIS_URL", "redis://127.0.0.1".to_owned()),
            ("ADMIN_TOKENS", format!("operator:{long}")),
            ("ENCRYPTION_KEY", long.to_owned()),
        ],
    );
    for (secret, wrong) in [("", Some("SANDBOX_SECRET")), (long, None)] {
        env.set("SANDBOX_SECRET", secret);
        assert_eq!(Config::read(&env).err().map(|error| error.name), wrong);
    }
    assert!(signature::Keys::new(&["".into()]).is_err());
    assert!(signature::Keys::new(&[]).is_err());
    assert!(signature::Keys::new(&["a secret".into(), "".into()]).is_err());

    let app = TestApp::start().await;
    let settings = AdapterSettings {
        secrets: vec!["".into()],
        notify_url: String::new(),
        deadline: Duration::from_secs(1),
        http: app.http.clone(),
        clock: app.clock.clone(),
    };
    assert!(SandboxChannel::remote(&app.url, settings).map(|channel| channel.name()).is_err());
    app.end().await;
}

#[tokio::test]
async fn an_ambiguous_retry_does_not_get_a_new_idempotency_key() {
    let app = TestApp::start().await;
    app.order("K1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    app.pay_url("K1").await.expect(503);
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 2, Some(1_200)).await;
    // Asked again by the buyer, then by the task.
    app.pay_url("K1").await.expect(503);
    app.clock.advance(seconds(90));
    app.run_until_idle().await;
    let link = app.pay_url("K1").await.expect(200);
    assert_eq!(app.count("sandbox.trades").await, 1, "one number for one attempt");

    app.close("K1").await.expect(200);
    app.fault(FaultOp::Refund, FaultKind::TimeoutAfter, 3, Some(1_200)).await;
    app.sandbox_pay(link.text_of("pay_order_id"), json!({"force": true})).await.expect(200);
    for _ in 0..4 {
        app.clock.advance(minutes(2));
        app.run_until_idle().await;
    }
    assert_eq!((app.count("refunds").await, app.count("sandbox.refunds").await), (1, 1));
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

fn order_of_tea(order_no: &str) -> Value {
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items, "expires_in": 60})
}

#[tokio::test]
async fn a_hold_on_stock_does_not_leak_when_the_client_disconnects() {
    let app = TestApp::start().await;
    app.stock("TEA", 5).await;
    let mut other = app.direct_connection().await;
    let mut lock = other.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM skus FOR UPDATE").execute(&mut *lock).await.expect("the lock");
    let asking = ["K2", "K3", "K4"].map(|order_no| Box::pin(app.post("/orders", order_of_tea(order_no))));
    hang_up_once(until_waiting(&app, 3), select_all(asking)).await;
    lock.rollback().await.expect("the end of the lock");
    app.eventually("the work goes on without them", async || app.stock_of("TEA").await == (5, 3)).await;

    // Nobody pays, nobody comes back.
    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    app.end().await;
}

#[tokio::test]
async fn an_explicit_zero_is_not_taken_for_missing() {
    let app = TestApp::start().await;
    let order = |field: &str| {
        let mut order = json!({"order_no": "K5", "user_id": "u1", "currency": "CNY", "amount": 1990});
        order[field] = json!(0);
        order
    };
    for field in ["amount", "expires_in"] {
        assert_eq!(app.post("/orders", order(field)).await.problem(422), "VALIDATION_FAILED", "{field}");
    }
    let mut items = order_of_tea("K5");
    items["amount"] = json!(0);
    assert_eq!(app.post("/orders", items).await.problem(422), "VALIDATION_FAILED");
    app.stock("TEA", 0).await;
    assert_eq!(app.post("/orders", order_of_tea("K5")).await.problem(409), "OUT_OF_STOCK");
    let ask =
        json!({"order_no": "K5", "payer_id": "u1", "channel": "sandbox", "amount": 0, "currency": "CNY"});
    assert_eq!(app.post("/pay/url", ask).await.problem(422), "VALIDATION_FAILED");
    assert_eq!(app.count("orders").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_sweep_of_more_than_a_batch_skips_nobody() {
    // More than the sweep takes at once; each that it closes leaves the set that it reads.
    const ORDERS: i64 = 1_100;
    let redis_url = Some("redis://127.0.0.1:1/".to_owned());
    let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
    app.sql(&format!(
        "WITH number AS (SELECT 'K6-' || i AS order_no, now() - interval '1 h' AS at FROM generate_series(1, {ORDERS}) i),
         history AS (INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
                     SELECT 'demo', order_no, 1, 'PENDING', 'CREATED', at FROM number)
         INSERT INTO orders (merchant_id, order_no, user_id, kind, amount, currency, expires_at, created_at, updated_at)
         SELECT 'demo', order_no, 'u1', 'SALE', 1990, 'CNY', at + interval '1 min', at, at FROM number"
    ))
    .await;
    app.run_until_idle().await;
    assert_eq!(app.count_where("orders", "status = 'CLOSED'").await, ORDERS);
    assert_eq!(app.count_where("outbox", "event = 'order.closed'").await, ORDERS, "each once");
    app.end().await;
}

#[tokio::test]
async fn paging_by_status_skips_nothing_while_rows_leave_the_set() {
    let app = TestApp::start().await;
    for index in 10..40 {
        app.order(&format!("K7-{index}")).await;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page =
            app.admin_get(&format!("/admin/orders?status=PENDING&limit=4{after}")).await.expect(200).body;
        for order in page["data"].as_array().expect("a page") {
            let order_no = order["order_no"].as_str().expect("a number");
            // What was read leaves the set before the next page is asked for.
            app.close(order_no).await.expect(200);
            seen.push(order_no.to_owned());
            after = format!("&starting_after=demo:{order_no}");
        }
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(seen.len(), 30, "{seen:?}");
    assert_eq!(app.count_where("orders", "status = 'PENDING'").await, 0);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_somebody_else_is_keeping_makes_no_other_wait() {
    let app = TestApp::start().await;
    let mut conn = app.direct_connection().await;
    let mut holding = conn.begin().await.expect("a transaction");
    let keep = "INSERT INTO webhook_inbox (channel, event_id, verdict, body, received_at, updated_at)
                VALUES ('sandbox', 'held', 'RECORDED', '', now(), now())";
    sqlx::query(keep).execute(&mut *holding).await.expect("kept");
    let told = |event_id: String| {
        let app = &app;
        async move {
            let started = std::time::Instant::now();
            app.deliver(&json!({"event_id": event_id, "kind": "DISPUTE"})).await;
            started.elapsed()
        }
    };
    let first = async {
        let held = told("held".to_owned()).await;
        assert!(held > Duration::from_millis(700), "it waits for whoever keeps it: {held:?}");
    };
    let others = async {
        // Behind it in the same lane.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let longest = futures_util::future::join_all((0..10).map(|number| told(format!("e{number}")))).await;
        let longest = longest.into_iter().max().expect("ten");
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        holding.commit().await.expect("let go");
        longest
    };
    let ((), longest) = tokio::join!(first, others);
    assert!(longest < Duration::from_millis(800), "{longest:?}");
    assert_eq!(app.count_where("webhook_inbox", "event_id LIKE 'e%' OR event_id = 'held'").await, 11);
    app.end().await;
}
