//! Operations: what operators see across everything, what they can have done again, and a log that only grows.

use std::collections::BTreeSet;
use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::commands::{environment, errors, fresh_dir, json_of, run};
use crate::support::{Cluster, OPERATOR, Reply, SECRET_KEY, TestApp, TestOptions, minutes};

fn data(reply: &Reply) -> Vec<Value> {
    reply.body["data"].as_array().unwrap_or_else(|| panic!("no page: {}", reply.text)).clone()
}

/// Which (kind, event) a timeline has, in its order.
fn steps(entries: &[Value]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (entry["kind"].as_str().expect("a kind"), entry["event"].as_str().expect("an event")))
        .collect()
}

#[tokio::test]
async fn a_timeline_tells_of_a_task_before_and_after_it_was_tried() {
    let app = TestApp::start().await;
    app.order("T3").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 2, Some(1_500)).await;
    assert_eq!(app.pay_url("T3").await.problem(503), "CHANNEL_UNAVAILABLE");
    let tasks = async |app: &TestApp| -> Vec<(String, i64)> {
        let entries = data(&app.admin_get("/admin/orders/T3/timeline").await.expect(200));
        let tasks = entries.iter().filter(|entry| entry["kind"] == "TASK" && entry["event"] == "MOVED");
        let shown = |task: &Value| {
            (task["status"].as_str().expect("a word").to_owned(), task["details"]["attempts"].as_i64())
        };
        tasks.map(shown).map(|(status, attempts)| (status, attempts.expect("a number"))).collect()
    };
    assert_eq!(data(&app.admin_get("/admin/orders/T3/timeline").await.expect(200)).len(), 3);
    assert_eq!(tasks(&app).await, [], "nobody tried it");
    app.clock.advance(Duration::from_secs(2));
    app.run_until_idle().await;
    assert_eq!(tasks(&app).await, [("READY".to_owned(), 1)]);
    app.end().await;
}

#[tokio::test]
async fn a_timeline_tells_everything_that_touched_an_order_in_order() {
    let app = TestApp::start().await;
    let key = app.merchant("keeper", "hold").await;
    app.order("T1").await; // The demo merchant's order of the same number.
    app.late_money_as(&key, "T1").await;
    app.run_until_idle().await;
    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.clock.advance(Duration::from_secs(2));
    app.run_until_idle().await;

    assert_eq!(app.admin_get("/admin/orders/T1/timeline").await.problem(409), "AMBIGUOUS_NUMBER");
    assert_eq!(app.admin_get("/admin/orders/NONE/timeline").await.problem(404), "ORDER_NOT_FOUND");
    let unknown = app.admin_get("/admin/orders/T1/timeline?merchant_id=nobody").await;
    assert_eq!(unknown.problem(404), "ORDER_NOT_FOUND");

    let page = app.admin_get("/admin/orders/T1/timeline?merchant_id=keeper").await.expect(200);
    assert_eq!(page.body["has_more"], false);
    let entries = data(&page);
    let times: Vec<&str> = entries.iter().map(|entry| entry["at"].as_str().expect("a time")).collect();
    let instants: Vec<_> = times
        .iter()
        .map(|at| {
            time::OffsetDateTime::parse(at, &time::format_description::well_known::Rfc3339).expect("a time")
        })
        .collect();
    assert!(instants.is_sorted(), "{times:?}");
    let steps = steps(&entries);
    let kinds: BTreeSet<&str> = steps.iter().map(|(kind, _)| *kind).collect();
    let all = [
        "ADMIN",
        "ATTEMPT",
        "BOOKING",
        "CALLBACK",
        "EVENT",
        "EXCEPTION",
        "ORDER",
        "REFUND",
        "STRAY_PAYMENT",
        "TASK",
    ];
    assert_eq!(kinds, BTreeSet::from(all), "{steps:?}");
    let place = |kind: &str, event: &str| {
        let found = steps.iter().position(|step| *step == (kind, event));
        found.unwrap_or_else(|| panic!("no {kind} {event} in {steps:?}"))
    };
    let story = [
        place("CALLBACK", "RECEIVED"),
        place("STRAY_PAYMENT", "RECEIVED"),
        place("BOOKING", "STRAY_PAYMENT"),
        place("EXCEPTION", "STRAY_MONEY"),
        place("ADMIN", "exceptions.resolve"),
        place("STRAY_PAYMENT", "REFUND_ASKED"),
        place("REFUND", "ASKED"),
        place("REFUND", "REQUESTED"),
        place("REFUND", "SUCCEEDED"),
        place("STRAY_PAYMENT", "REFUND_SUCCEEDED"),
        place("BOOKING", "REFUND"),
    ];
    assert!(story.is_sorted(), "the cause before what it brought about: {steps:?}");
    let admin = &entries[place("ADMIN", "exceptions.resolve")];
    assert_eq!(admin["details"]["reason"], "the story wants it");
    assert_eq!(
        data(&app.admin_get("/admin/orders/T1/timeline?merchant_id=demo").await).len(),
        1,
        "not mixed"
    );
    app.end().await;
}

async fn inbox(app: &TestApp, filter: &str) -> Vec<Value> {
    data(&app.admin_get(&format!("/admin/webhooks?limit=100&{filter}")).await.expect(200))
}

async fn replay(app: &TestApp, id: &str, body: Value) -> Reply {
    app.admin_post(&format!("/admin/webhooks/{id}/replay"), body).await
}

fn id_of(webhook: &Value) -> &str {
    webhook["webhook_id"].as_str().expect("an id")
}

#[tokio::test]
async fn replays_of_an_applied_callback_change_nothing() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("R1").await;
    // An id that cannot stand in a URL as it is.
    app.deliver(&app.success("evt/1 \u{fc}?", &pay_order, "txn_1", 1990)).await;
    let kept = inbox(&app, "order_no=R1").await;
    assert_eq!((kept.len(), &kept[0]["verdict"]), (1, &json!("APPLIED")), "{kept:?}");
    let id = id_of(&kept[0]);
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-~:".contains(&byte)), "{id}");

    let mut before = app.row_counts().await;
    let dry = replay(&app, id, json!({"dry_run": true})).await.expect(200).body;
    assert_eq!((&dry["verdict"], &dry["remedy"]), (&json!("REPEATED"), &json!("NOTHING")));
    assert_eq!((&dry["changes"], &dry["dry_run"]), (&json!(false), &json!(true)));
    assert_eq!(app.row_counts().await, before, "a dry run writes nothing, not even to the log");

    assert_eq!(replay(&app, id, json!({})).await.problem(422), "VALIDATION_FAILED");
    assert_eq!(replay(&app, "sandbox:none", json!({"reason": "?"})).await.problem(404), "NOT_FOUND");
    for _ in 0..3 {
        let done = replay(&app, id, json!({"reason": "to be sure"})).await.expect(200).body;
        assert_eq!((&done["remedy"], &done["webhook"]), (&json!("NOTHING"), &kept[0]));
    }
    *before.get_mut("admin_log").expect("a table") += 3;
    assert_eq!(app.row_counts().await, before);
    assert_eq!(app.status_of("R1").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_callback_that_was_left_aside_is_carried_out_once_by_its_replay() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("R2").await;
    let body = app.success("evt_2", &pay_order, "txn_2", 1990).to_string().replace('\'', "''");
    // As it is kept when it speaks for another account than the one that was configured then.
    app.sql(&format!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', 'evt_2', '{pay_order}', 'WRONG_ACCOUNT', convert_to('{body}', 'UTF8'), now(), now())"
    ))
    .await;
    let aside = inbox(&app, "verdict=WRONG_ACCOUNT").await;
    let id = id_of(&aside[0]);

    let before = app.row_counts().await;
    let dry = replay(&app, id, json!({"dry_run": true})).await.expect(200).body;
    assert_eq!((&dry["verdict"], &dry["remedy"]), (&json!("APPLIED"), &json!("PAY_THE_ORDER")));
    assert_eq!((&dry["changes"], &dry["earlier_verdict"]), (&json!(true), &json!("WRONG_ACCOUNT")));
    assert_eq!((app.row_counts().await, app.status_of("R2").await.as_str()), (before, "PENDING"));

    let many = (0..12).map(|_| replay(&app, id, json!({"reason": "the account is right now"})));
    let replies = futures_util::future::join_all(many).await;
    let paid = replies.iter().filter(|reply| reply.body["remedy"] == "PAY_THE_ORDER").count();
    assert!(
        replies.iter().all(|reply| reply.status == 200),
        "{:?}",
        replies.iter().map(|r| &r.text).collect::<Vec<_>>()
    );
    assert_eq!(paid, 1, "one of them paid the order");
    app.run_until_idle().await;
    let order = app.find_order("R2").await;
    assert_eq!(
        (&order["status"], order["stray_payments"].as_array().map(Vec::len)),
        (&json!("PAID"), Some(0))
    );
    assert_eq!(inbox(&app, "order_no=R2").await[0]["verdict"], "APPLIED");
    let timeline = data(&app.admin_get("/admin/orders/R2/timeline").await.expect(200));
    assert!(steps(&timeline).contains(&("CALLBACK", "JUDGED")), "{timeline:#?}");
    app.end().await;
}

#[tokio::test]
async fn the_inbox_is_paged_by_key_and_filtered() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("I1").await;
    for event in 0..5 {
        app.deliver(&app.ended(&format!("e{event}"), "po_of_nobody", "CLOSED")).await;
        app.clock.advance(minutes(20 * event));
    }
    app.deliver(&app.success("paid", &pay_order, "txn_1", 1990)).await;
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = app.admin_get(&format!("/admin/webhooks?limit=2{after}")).await.expect(200);
        let rows = data(&page);
        seen.extend(rows.iter().map(|row| row["event_id"].as_str().expect("an id").to_owned()));
        after = format!("&starting_after={}", id_of(rows.last().expect("a row")));
        if page.body["has_more"] == false {
            break;
        }
        assert_eq!(rows.len(), 2);
    }
    assert_eq!(seen, ["paid", "e4", "e3", "e2", "e1", "e0"], "newest first, none twice, none left out");
    assert_eq!(inbox(&app, "verdict=APPLIED").await.len(), 1);
    assert_eq!(inbox(&app, "verdict=RECORDED&channel=sandbox").await.len(), 5);
    assert_eq!(inbox(&app, "channel=other").await.len(), 0);
    for (query, status) in [
        ("starting_after=sandbox:gone", 422),
        ("verdict=FINE", 422),
        ("surprise=1", 422),
        ("order_no=NONE", 404),
        ("merchant_id=demo", 422),
    ] {
        app.admin_get(&format!("/admin/webhooks?{query}")).await.problem(status);
    }
    app.end().await;
}

#[tokio::test]
async fn the_delay_queue_stands_beside_the_database_also_without_redis() {
    let mut app = TestApp::start().await;
    app.run_until_idle().await;
    for (order_no, lives) in [("Q2", 900), ("Q1", 600), ("Q3", 1200)] {
        let body = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1, "expires_in": lives});
        app.order_with(body).await;
    }
    app.eventually("three timers", || async {
        app.admin_get("/admin/delay-queue").await.expect(200).body["size"] == 3
    })
    .await;
    let queue = app.admin_get("/admin/delay-queue?limit=2").await.expect(200).body;
    let next: Vec<_> =
        queue["next"].as_array().expect("a list").iter().map(|timer| &timer["order_no"]).collect();
    assert_eq!(next, ["Q1", "Q2"]);
    assert_eq!(
        (&queue["backend"], &queue["health"], &queue["is_intact"]),
        (&json!("redis"), &json!("up"), &json!(true))
    );
    assert_eq!(
        (&queue["due"], &queue["leased"], &queue["pending_orders"]),
        (&json!(0), &json!(0), &json!(3))
    );
    app.clock.advance(minutes(11));
    let queue = app.admin_get("/admin/delay-queue").await.expect(200).body;
    assert_eq!((&queue["due"], &queue["pending_orders_due"]), (&json!(1), &json!(1)));

    app.redis.as_mut().expect("its own").stop().await.expect("stopped");
    let queue = app.admin_get("/admin/delay-queue").await.expect(200).body;
    assert_eq!(
        (&queue["health"], &queue["size"], &queue["pending_orders"]),
        (&json!("down"), &json!(0), &json!(3))
    );
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    assert_eq!(overview["degraded"], json!(["redis"]));
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn the_overview_counts_what_is_unfinished_and_the_money_at_risk() {
    let app = TestApp::start().await;
    let key = app.merchant("keeper", "hold").await;
    app.order("O1").await;
    app.late_money_as(&key, "O2").await;
    app.run_until_idle().await;
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    let count = |list: &str, thing: &str, status: &str| {
        let rows = overview[list].as_array().expect("a list");
        let row = rows.iter().find(|row| row["thing"] == thing && row["status"] == status);
        row.map_or(0, |row| row["count"].as_i64().expect("a count"))
    };
    assert_eq!(count("unfinished", "order", "PENDING"), 1, "{overview:#}");
    assert_eq!(count("unfinished", "stray_payment", "HELD"), 1);
    assert_eq!(count("unfinished", "exception", "OPEN"), 1);
    assert_eq!(
        (count("orders_of_a_day", "order", "PENDING"), count("orders_of_a_day", "order", "CLOSED")),
        (1, 1)
    );
    assert_eq!(overview["money_at_risk"], json!([{"currency": "CNY", "amount": 1990}]));
    assert_eq!(overview["degraded"], json!([]), "the service runs as its own role");

    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    let tasks = data(&app.admin_get("/admin/compensations?status=READY").await.expect(200));
    assert!(tasks.iter().any(|task| task["action"] == "DRIVE_REFUND"), "{tasks:?}");
    app.run_until_idle().await;
    let done = data(&app.admin_get("/admin/compensations?status=DONE&limit=1").await.expect(200));
    assert_eq!(done.len(), 1);
    app.end().await;
}

#[tokio::test]
async fn a_rotated_key_works_until_its_end_on_every_instance_and_not_a_moment_longer() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let first = cluster.first();
    first.order("K1").await;
    let statuses = |key: &str| {
        let key = key.to_owned();
        let cluster = &cluster;
        async move {
            let of = |index: usize| {
                let key = key.clone();
                async move { cluster.turn(index).call(Method::GET, "/orders/K1", &key, None).await.status }
            };
            [of(0).await, of(1).await]
        }
    };
    assert_eq!(statuses(SECRET_KEY).await, [200, 200], "before; both instances remember the key now");
    let body = json!({"kind": "SECRET", "overlap_seconds": 600, "reason": "the yearly rotation"});
    let rotated = first.admin_post("/admin/merchants/demo/keys", body).await.expect(201);
    assert!(rotated.body["publishable_key"].is_null(), "only the kind that was asked for: {}", rotated.text);
    let new = rotated.text_of("secret_key");
    assert_eq!((statuses(SECRET_KEY).await, statuses(new).await), ([200, 200], [200, 200]), "during");

    // What the other instance remembers of the key is five seconds old at most, by the machine's own clock.
    tokio::time::sleep(Duration::from_millis(5050)).await;
    assert_eq!(statuses(SECRET_KEY).await, [200, 200]);
    first.clock.advance(Duration::from_secs(580));
    assert_eq!(statuses(SECRET_KEY).await, [200, 200], "shortly before the end");
    first.clock.advance(Duration::from_secs(20));
    assert_eq!((statuses(SECRET_KEY).await, statuses(new).await), ([401, 401], [200, 200]), "after");

    let log = data(&first.admin_get("/admin/admin-log?limit=1").await.expect(200));
    assert_eq!(
        (&log[0]["action"], &log[0]["reason"]),
        (&json!("merchants.rotate_keys"), &json!("the yearly rotation"))
    );
    let nobody = json!({"reason": "x"});
    assert_eq!(first.admin_post("/admin/merchants/nobody/keys", nobody).await.problem(404), "NOT_FOUND");
    let after = data(&first.admin_get("/admin/admin-log").await.expect(200));
    assert_eq!(after.len(), 1, "what was not done is not in the log: {after:?}");
    cluster.end().await;
}

#[tokio::test]
async fn nobody_changes_the_admin_log_not_even_its_owner() {
    let app = TestApp::start().await;
    app.stock("TEA", 5).await;
    assert_eq!(app.count_where("admin_log", "action = 'skus.set'").await, 1);
    let mut owner = app.direct_connection().await;
    for statement in ["UPDATE admin_log SET actor = 'nobody'", "DELETE FROM admin_log", "TRUNCATE admin_log"]
    {
        let refused =
            app.instance.app.db.pool().execute(statement).await.expect_err("the service's own role");
        assert!(refused.to_string().contains("permission denied"), "{statement}: {refused}");
        let refused = owner.execute(statement).await.expect_err("the owner");
        assert!(refused.to_string().contains("only ever added"), "{statement}: {refused}");
    }
    for statement in [
        "DELETE FROM order_history",
        "DELETE FROM refund_history",
        "UPDATE stray_history SET event = ''",
        "TRUNCATE settlement_history",
        "UPDATE outbox SET payload = '{}'",
        "DELETE FROM orders",
        "TRUNCATE webhook_inbox",
        "DROP TABLE admin_log",
        "UPDATE trades SET stray_id = ''",
    ] {
        app.instance.app.db.pool().execute(statement).await.expect_err(statement);
    }
    assert_eq!(app.count("admin_log").await, 1);
    app.end().await;
}

#[tokio::test]
async fn no_table_is_without_its_rights_also_one_of_a_later_migration() {
    let app = TestApp::start().await;
    let user: String = sqlx::query_scalar("SELECT current_user::text")
        .fetch_one(app.instance.app.db.pool())
        .await
        .expect("a name");
    assert_eq!(user, "payonce_service");
    app.sql("CREATE TABLE of_a_later_migration (id bigint PRIMARY KEY)").await;
    let wrong = "SELECT table_name FROM service_rights WHERE wanted <> granted";
    let left: Vec<String> =
        sqlx::query_scalar(wrong).fetch_all(app.instance.app.db.pool()).await.expect("a list");
    assert_eq!(left, ["public.of_a_later_migration"], "every table of ours has exactly its rights");
    let known: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema'))
              - (SELECT count(*) FROM service_rights JOIN pg_tables ON table_name = format('%I.%I', schemaname, tablename))",
    )
    .fetch_one(app.instance.app.db.pool())
    .await
    .expect("a count");
    assert_eq!(known, 0, "no table is forgotten");
    let log: Vec<String> = sqlx::query_scalar(
        "SELECT unnest(granted) FROM service_rights WHERE table_name = 'public.admin_log'",
    )
    .fetch_all(app.instance.app.db.pool())
    .await
    .expect("rights");
    assert_eq!(log, ["INSERT", "SELECT"]);

    let migrated = run(&["migrate"], &environment(&app.database_url, &app.redis_url)).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", errors(&migrated));
    app.instance.app.db.pool().execute("INSERT INTO of_a_later_migration VALUES (1)").await.expect("a row");
    app.end().await;
}

#[tokio::test]
async fn commands_do_what_the_routes_do_with_names_roles_and_reasons() {
    let app = TestApp::start().await;
    let mut environment = environment(&app.database_url, &app.redis_url);
    let made = run(
        &[
            "admin",
            "create-merchant",
            "--merchant-id",
            "m1",
            "--name",
            "First",
            "--as",
            "anna",
            "--reason",
            "a new shop",
            "-o",
            "json",
        ],
        &environment,
    )
    .await;
    assert_eq!(made.status.code(), Some(0), "{}", errors(&made));
    let key = json_of(&made)["secret_key"].as_str().expect("a key").to_owned();
    app.order_to_pay_as(&key, "C1").await;
    let table = run(&["admin", "timeline", "C1"], &environment).await;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("KIND") && table.contains("ATTEMPT") && table.contains("PAYING"), "{table}");
    let again =
        run(&["admin", "create-merchant", "--merchant-id", "m1", "--name", "First"], &environment).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(errors(&again).contains("MERCHANT_EXISTS"), "{}", errors(&again));
    let kept =
        run(&["admin", "orders", "--status", "PENDING", "--limit", "1", "-o", "json"], &environment).await;
    assert_eq!(json_of(&kept)["data"][0]["order_no"], "C1");
    let audit = run(&["admin", "audit", "-o", "json"], &environment).await;
    assert_eq!((audit.status.code(), &json_of(&audit)["ok"]), (Some(0), &json!(true)), "{}", errors(&audit));

    // At a running instance, with a token.
    let url = ["--url", app.url.as_str()];
    let nameless = run(&[&["admin", "overview"], &url[..]].concat(), &environment).await;
    assert!(errors(&nameless).contains("PAYONCE_ADMIN_TOKEN"), "{}", errors(&nameless));
    let file = fresh_dir().join("token");
    std::fs::write(&file, format!("{OPERATOR}\n")).expect("written");
    environment.push(("PAYONCE_ADMIN_TOKEN_FILE", file.display().to_string()));
    let rotate =
        ["admin", "rotate-keys", "m1", "--kind", "SECRET", "--overlap-seconds", "0", "--reason", "it leaked"];
    let rotated = run(&[&rotate, &url[..]].concat(), &environment).await;
    assert_eq!(rotated.status.code(), Some(0), "{}", errors(&rotated));
    environment.retain(|(name, _)| *name != "PAYONCE_ADMIN_TOKEN_FILE");
    environment.push(("PAYONCE_ADMIN_TOKEN", "not-a-token".to_owned()));
    let refused = run(&[&rotate, &url[..]].concat(), &environment).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("UNAUTHENTICATED"), "{}", errors(&refused));

    let log = data(&app.admin_get("/admin/admin-log").await.expect(200));
    let told: Vec<_> =
        log.iter().map(|entry| (&entry["actor"], &entry["action"], &entry["reason"])).collect();
    assert_eq!(
        told,
        [
            (&json!("operator"), &json!("merchants.rotate_keys"), &json!("it leaked")),
            (&json!("anna"), &json!("merchants.create"), &json!("a new shop"))
        ]
    );
    let by_anna = run(&["admin", "log", "--actor", "anna", "-o", "json"], &environment[..6]).await;
    assert_eq!(json_of(&by_anna)["data"].as_array().map(Vec::len), Some(1));
    app.end().await;
}
