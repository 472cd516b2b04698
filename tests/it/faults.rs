//! The sandbox's faults, each used by a story: those that have no story elsewhere are told here.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::channels::sandbox::{AdapterSettings, FaultKind, FaultOp, SandboxChannel};
use payonce::channels::{CallError, Channel, PayoutCall, PayoutState};
use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Db, DbError};
use payonce::money::Money;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::support::app::SANDBOX_SECRET;
use crate::support::{TestApp, minutes, seconds, stores};
use crate::tidy::source::story;

/// Where each fault of each operation is told: the file and the test.
const STORIES: [(FaultOp, FaultKind, &str); 30] = [
    (
        FaultOp::Create,
        FaultKind::Delay,
        "pay_url_silence::closing_waits_for_a_link_that_is_being_made_in_the_same_process",
    ),
    (
        FaultOp::Create,
        FaultKind::TimeoutBefore,
        "pay_url_silence::after_a_silence_the_same_request_gets_the_link_with_the_same_number",
    ),
    (
        FaultOp::Create,
        FaultKind::TimeoutAfter,
        "pay_url_silence::after_a_silence_the_same_request_gets_the_link_with_the_same_number",
    ),
    (
        FaultOp::Create,
        FaultKind::Refuse,
        "pay_url::a_refusal_passes_the_channels_words_on_and_the_next_try_is_a_new_attempt",
    ),
    (
        FaultOp::Create,
        FaultKind::Reorder,
        "faults::a_callback_that_comes_before_our_commit_pays_the_order_once",
    ),
    (FaultOp::Query, FaultKind::Delay, "faults::a_slow_query_still_finds_the_money"),
    (
        FaultOp::Query,
        FaultKind::TimeoutBefore,
        "faults::a_query_without_an_answer_says_nothing_about_the_money",
    ),
    (
        FaultOp::Query,
        FaultKind::TimeoutAfter,
        "faults::a_query_without_an_answer_says_nothing_about_the_money",
    ),
    (FaultOp::Query, FaultKind::Refuse, "faults::a_query_without_an_answer_says_nothing_about_the_money"),
    (FaultOp::Query, FaultKind::WrongAmount, "faults::a_query_that_names_other_money_pays_nothing"),
    (FaultOp::Query, FaultKind::WrongCurrency, "faults::a_query_that_names_other_money_pays_nothing"),
    (
        FaultOp::Close,
        FaultKind::Delay,
        "races::a_wrong_payment_that_is_told_while_its_order_is_being_closed_is_counted_once",
    ),
    (
        FaultOp::Close,
        FaultKind::TimeoutBefore,
        "orders::an_order_stays_open_while_its_channel_is_silent_and_a_task_ends_the_attempt",
    ),
    (
        FaultOp::Close,
        FaultKind::TimeoutAfter,
        "orders::an_order_stays_open_while_its_channel_is_silent_and_a_task_ends_the_attempt",
    ),
    (
        FaultOp::Close,
        FaultKind::Refuse,
        "orders::an_order_stays_open_while_its_channel_is_silent_and_a_task_ends_the_attempt",
    ),
    (
        FaultOp::Close,
        FaultKind::PayAfterClose,
        "orders::a_channel_that_closes_and_takes_the_money_all_the_same_gives_it_back",
    ),
    (FaultOp::Refund, FaultKind::Delay, "faults::a_refund_that_takes_longer_than_we_wait_is_made_once"),
    (
        FaultOp::Refund,
        FaultKind::TimeoutBefore,
        "stray_money::a_refund_with_an_unknown_result_is_asked_about_and_made_once",
    ),
    (
        FaultOp::Refund,
        FaultKind::TimeoutAfter,
        "stray_money::a_refund_with_an_unknown_result_is_asked_about_and_made_once",
    ),
    (
        FaultOp::Refund,
        FaultKind::Refuse,
        "stray_money::a_refund_refused_for_good_waits_for_a_person_who_tries_again_or_keeps_the_money",
    ),
    (FaultOp::Payout, FaultKind::Delay, "faults::a_payout_is_made_once_whatever_becomes_of_the_answer"),
    (
        FaultOp::Payout,
        FaultKind::TimeoutBefore,
        "faults::a_payout_is_made_once_whatever_becomes_of_the_answer",
    ),
    (
        FaultOp::Payout,
        FaultKind::TimeoutAfter,
        "faults::a_payout_is_made_once_whatever_becomes_of_the_answer",
    ),
    (FaultOp::Payout, FaultKind::Refuse, "faults::a_payout_is_made_once_whatever_becomes_of_the_answer"),
    (FaultOp::Webhook, FaultKind::Delay, "webhooks::lost_repeated_and_reordered_callbacks_end_alike"),
    (FaultOp::Webhook, FaultKind::Drop, "webhooks::lost_repeated_and_reordered_callbacks_end_alike"),
    (FaultOp::Webhook, FaultKind::Repeat, "webhooks::lost_repeated_and_reordered_callbacks_end_alike"),
    (FaultOp::Webhook, FaultKind::Reorder, "webhooks::lost_repeated_and_reordered_callbacks_end_alike"),
    (
        FaultOp::Webhook,
        FaultKind::WrongAmount,
        "stray_money::lies_about_the_amount_are_believed_but_never_refunded_beyond_what_was_taken",
    ),
    (
        FaultOp::Webhook,
        FaultKind::WrongCurrency,
        "stray_money::lies_about_the_amount_are_believed_but_never_refunded_beyond_what_was_taken",
    ),
];

#[test]
fn every_fault_has_a_story() {
    let pairs = FaultOp::ALL.iter().flat_map(|op| FaultKind::ALL.iter().map(move |kind| (*op, *kind)));
    for (op, kind) in pairs.filter(|(op, kind)| kind.fits(*op)) {
        let told = STORIES.iter().find(|(told_op, told_kind, _)| (*told_op, *told_kind) == (op, kind));
        let (_, _, name) =
            told.unwrap_or_else(|| panic!("{kind} of {op} is in no story: tell one, and name it here"));
        let code = story(name).unwrap_or_else(|| panic!("{name} is no test"));
        for word in [format!("FaultOp::{op:?}"), format!("FaultKind::{kind:?}")] {
            assert!(code.contains(&word), "{name} does not use {word}");
        }
    }
    assert!(STORIES.iter().all(|(op, kind, _)| kind.fits(*op)), "a story of a fault that makes no sense");
}

#[tokio::test]
async fn a_callback_that_comes_before_our_commit_pays_the_order_once() {
    let app = TestApp::start().await;
    app.order("F1").await;
    app.fault(FaultOp::Create, FaultKind::Reorder, 1, Some(900)).await;
    assert_eq!(app.pay_url("F1").await.problem(409), "ORDER_IS_ALREADY_PAID");
    let order = app.find_order("F1").await;
    let attempt = &order["pay_orders"][0];
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &attempt["pay_order_id"]));
    let history = app.count_where("order_history", "to_status = 'PAYING'").await;
    assert_eq!(history, 0, "the callback came before the link was written down");
    app.run_until_idle().await;
    assert_eq!((app.count("stray_payments").await, app.sandbox_books().await), (0, (1990, 0)));
    app.end().await;
}

/// An order whose link the channel made without telling us, and which was paid without telling us.
async fn paid_in_silence(app: &TestApp, order_no: &str) -> String {
    app.order(order_no).await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    assert_eq!(app.pay_url(order_no).await.problem(503), "CHANNEL_UNAVAILABLE");
    let id = app.attempts_of(order_no).await.remove(0)["pay_order_id"].as_str().expect("an id").to_owned();
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    id
}

#[tokio::test]
async fn a_slow_query_still_finds_the_money() {
    let app = TestApp::start().await;
    for (order_no, ms, answer) in [("F2", 500, "ORDER_IS_ALREADY_PAID"), ("F3", 1_500, "CHANNEL_UNAVAILABLE")]
    {
        let id = paid_in_silence(&app, order_no).await;
        app.fault(FaultOp::Query, FaultKind::Delay, 1, Some(ms)).await;
        let slow = app.pay_url(order_no).await;
        assert_eq!(slow.body["code"], answer, "{}", slow.text);
        assert_eq!(app.pay_url(order_no).await.problem(409), "ORDER_IS_ALREADY_PAID");
        assert_eq!(app.find_order(order_no).await["paid_by"], json!(id));
    }
    app.run_until_idle().await;
    assert_eq!((app.count("stray_payments").await, app.sandbox_books().await), (0, (2 * 1990, 0)));
    app.end().await;
}

#[tokio::test]
async fn a_query_without_an_answer_says_nothing_about_the_money() {
    let app = TestApp::start().await;
    for (order_no, fault) in
        [("F4", FaultKind::TimeoutBefore), ("F5", FaultKind::TimeoutAfter), ("F6", FaultKind::Refuse)]
    {
        let id = paid_in_silence(&app, order_no).await;
        app.fault(FaultOp::Query, fault, 1, Some(1_200)).await;
        // The channel refuses to make the link of a trade that is paid: why, only the query tells.
        assert_eq!(app.pay_url(order_no).await.problem(503), "CHANNEL_UNAVAILABLE", "{fault}");
        assert_eq!(app.attempt_statuses(order_no).await, ["INIT"], "{fault}: nothing moved");
        app.clock.advance(seconds(5));
        app.run_until_idle().await;
        assert_eq!(app.find_order(order_no).await["paid_by"], json!(id), "{fault}");
    }
    assert_eq!((app.count("stray_payments").await, app.sandbox_books().await), (0, (3 * 1990, 0)));
    app.end().await;
}

#[tokio::test]
async fn a_query_that_names_other_money_pays_nothing() {
    let app = TestApp::start().await;
    for (order_no, lie, told) in [
        ("F7", FaultKind::WrongAmount, json!([1991, "CNY"])),
        ("F8", FaultKind::WrongCurrency, json!([1990, "USD"])),
    ] {
        let first = paid_in_silence(&app, order_no).await;
        app.fault(FaultOp::Query, lie, 1, None).await;
        let link = app.pay_url(order_no).await.expect(200);
        assert_ne!(link.text_of("pay_order_id"), first, "the wrong payment ended its attempt");
        app.run_until_idle().await;
        let order = app.find_order(order_no).await;
        let stray = &order["stray_payments"][0];
        assert_eq!((&order["status"], &stray["status"]), (&json!("PENDING"), &json!("HELD")), "{order}");
        assert_eq!(json!([stray["amount"], stray["currency"]]), told);
    }
    let kinds: Vec<_> = app.exceptions("status=OPEN").await.iter().map(|e| e["kind"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "AMOUNT_MISMATCH").count(), 2, "{kinds:?}");
    assert_eq!(app.sandbox_books().await, (2 * 1990, 0), "nothing was refunded that was never taken");
    app.end().await;
}

#[tokio::test]
async fn a_query_that_names_another_order_s_trade_ends_its_attempt_and_is_shown_to_a_person() {
    let app = TestApp::start().await;
    let other = app.order_to_pay("F20").await;
    let id = paid_in_silence(&app, "F21").await;
    // The channel calls about another order first.
    let of_channel = "SELECT transaction_id FROM sandbox.payments";
    let trade: String =
        sqlx::query_scalar(of_channel).fetch_one(&mut app.direct_connection().await).await.expect("a trade");
    app.deliver(&app.success("e1", &other, &trade, 1990)).await;
    assert_eq!((app.status_of("F20").await.as_str(), app.exceptions("").await.len()), ("PAID", 0));

    assert_ne!(app.pay_url("F21").await.expect(200).text_of("pay_order_id"), id, "its attempt has ended");
    let told = app.open_exception().await;
    assert_eq!((&told["kind"], &told["order_no"]), (&json!("CONTRADICTION"), &json!("F21")));
    assert_eq!(told["subject"], format!("sandbox/{trade}"));
    let timeline = app.admin_get("/admin/orders/F21/timeline").await.expect(200).body["data"].clone();
    let is_told = |entry: &Value| entry["kind"] == "EXCEPTION" && entry["event"] == "CONTRADICTION";
    assert!(timeline.as_array().expect("entries").iter().any(is_told), "{timeline:#}");
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_takes_longer_than_we_wait_is_made_once() {
    let app = TestApp::start().await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(1_300)).await;
    let id = app.late_money("F9").await;
    app.run_until_idle().await;
    app.eventually("the channel has made it", async || app.sandbox_books().await == (1990, 1990)).await;
    for _ in 0..3 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    assert_eq!(app.find_order("F9").await["stray_payments"][0]["status"], "REFUNDED");
    assert_eq!(app.sandbox_trade(&id).await["refunds"].as_array().expect("refunds").len(), 1);
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 1);
    app.end().await;
}

/// The sandbox as another instance has it: every call goes over HTTP, and is waited for so long.
fn remote_channel(app: &TestApp, deadline: Duration) -> SandboxChannel {
    let settings = AdapterSettings {
        secrets: vec![SANDBOX_SECRET.into()],
        notify_url: format!("{}/webhooks/sandbox", app.url),
        deadline,
        http: app.http.clone(),
        clock: app.clock.clone(),
    };
    SandboxChannel::remote(&app.url, settings).expect("a channel")
}

#[tokio::test]
async fn a_payout_is_made_once_whatever_becomes_of_the_answer() {
    let app = TestApp::start().await;
    let (hasty, patient) = (remote_channel(&app, seconds(1)), remote_channel(&app, seconds(30)));
    for (fault, is_made) in [
        (FaultKind::Delay, true),
        (FaultKind::TimeoutBefore, false),
        (FaultKind::TimeoutAfter, true),
        (FaultKind::Refuse, false),
    ] {
        app.fault(FaultOp::Payout, fault, 1, Some(1_500)).await;
        let money =
            Money { amount: 1990.try_into().expect("an amount"), currency: "CNY".parse().expect("one") };
        let call = PayoutCall { payout_id: format!("pt_{fault}"), money, account: "a bank account".into() };
        let channel = if fault == FaultKind::Refuse { &patient } else { &hasty };
        let answer = channel.payout(&call).await;
        assert_eq!(matches!(answer, Err(CallError::Refused(_))), fault == FaultKind::Refuse, "{answer:?}");
        assert!(answer.is_err(), "{fault}: {answer:?}");
        if is_made {
            let made = format!("payout_id = '{}'", call.payout_id);
            app.eventually("it is made", async || app.count_where("sandbox.payouts", &made).await == 1).await;
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let known = patient.query_payout(&call).await.expect("asking always works");
        assert_eq!(known != PayoutState::Unseen, is_made, "{fault}: {known:?}");

        // The same number again: made now at the latest, and made once.
        let again = patient.payout(&call).await.expect("made");
        assert!(matches!(again, PayoutState::Succeeded { .. }), "{again:?}");
    }
    assert_eq!(app.count("sandbox.payouts").await, 4);
    app.end().await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_tried_again_and_is_well_after_it() {
    let app = TestApp::start().await;
    app.order("F1").await;
    let mut owner = app.direct_connection().await;
    // As after a failover: the old primary is read-only to whoever still knows it.
    let demote = "DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid(); END $$";
    owner.execute(demote).await.expect("demoted");
    let order = json!({"order_no": "F2", "user_id": "u1", "currency": "CNY", "amount": 1990});
    let refused = app.post("/orders", order.clone()).await;
    assert_eq!(refused.problem(503), "DATABASE_UNAVAILABLE");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(app.status_of("F1").await, "PENDING", "what only reads is answered");

    // More of them than anybody tries one after the other.
    let db = &app.instance.app.db;
    let misleading: Vec<_> = join_all((0..8).map(|_| db.conn())).await;
    assert!(misleading.iter().all(Result::is_ok), "{misleading:?}");
    drop(misleading);

    let promote = "DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$";
    owner.execute(promote).await.expect("promoted");
    let order = app.post("/orders", order).await;
    assert_eq!(order.status, 201, "connections to the old primary are not used again: {}", order.text);
    app.end().await;
}

#[tokio::test]
async fn a_standby_that_has_the_name_of_its_primary_is_asked_nothing_until_it_is_promoted() {
    let mut postgres = stores::private_postgres().await;
    let acquire_deadline = Duration::from_secs(1);
    let config = DatabaseConfig { acquire_deadline, ..stores::database_config(&postgres.url()) };
    let db = Db::new(&config, Ids::random(Clock::system())).expect("a pool");
    assert!(db.answers().await);
    stores::make_standby(&mut postgres).await;
    let mut outside = PgConnection::connect(&postgres.socket_url()).await.expect("connect");
    let read = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM orders").fetch_one(&mut outside).await;
    assert_eq!(read.expect("it answers whoever asks"), 0);
    assert!(!db.answers().await, "the connection from before is gone");
    let refused = db.conn().await.map(drop).expect_err("refused");
    let why = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
    assert!(matches!(refused, DbError::Unavailable(_)) && why.contains("standby"), "{refused:?}");

    outside.execute("SELECT pg_promote()").await.expect("promoted");
    assert!(db.answers().await);
    db.close().await;
}

#[tokio::test]
async fn a_server_that_lets_nobody_in_is_waited_for_like_one_that_is_away() {
    let app = TestApp::start().await;
    app.order("F1").await;
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut app.direct_connection().await)
        .await
        .expect("a name");
    // From another database: it may be forbidden to come into that one, and not whoever is in it.
    let url = stores::shared().await.postgres.socket_url();
    let mut beside = PgConnection::connect(&url).await.expect("connect");
    let close = format!(
        "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    sqlx::raw_sql(AssertSqlSafe(close)).execute(&mut beside).await.expect("closed");
    let order = json!({"order_no": "F2", "user_id": "u1", "currency": "CNY", "amount": 1990});
    let sku = json!({"merchant_id": "demo", "sku": "TEA", "stock": 1});
    // What shares a connection with others, and what takes one of its own.
    for refused in [app.post("/orders", order.clone()).await, app.admin_post("/admin/skus", sku).await] {
        assert_eq!(
            refused.problem(503),
            "DATABASE_UNAVAILABLE",
            "nothing was tried, and it may be tried again"
        );
    }

    let open = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
    sqlx::raw_sql(AssertSqlSafe(open)).execute(&mut beside).await.expect("open");
    app.post("/orders", order).await.expect(201);
    app.end().await;
}
