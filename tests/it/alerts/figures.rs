//! What the alert rules look at says what is so. In a process of its own, because gauges are a process's.

use payonce::reconciliation;
use serde_json::json;
use sqlx::{Executor, PgConnection};
use time::{Duration, OffsetDateTime};

use crate::support::TestApp;
use crate::support::app::metric_at;
use crate::support::service::{Service, Shop};

/// One order of 1990 each.
const HELD_TWICE: f64 = 3_980.0;
const HELD_ONCE: f64 = 1_990.0;

async fn figure(service: &Service, name: &str, labels: &[(&str, &str)]) -> f64 {
    metric_at(&service.http, &service.url, name, labels).await.expect("an answer")
}

/// All that the rules ask, in one order: violations, money, exceptions, stuck orders, dead tasks.
async fn figures(service: &Service) -> [f64; 5] {
    [
        figure(service, "payonce_audit_violations", &[("check", "stock_held_by_reservations")]).await,
        figure(service, "payonce_money_at_risk", &[("currency", "CNY")]).await,
        figure(service, "payonce_exceptions_open", &[]).await,
        figure(service, "payonce_orders_stuck", &[]).await,
        figure(service, "payonce_tasks_dead", &[]).await,
    ]
}

/// A process whose figures have all been read, and whose audit is no older than it.
async fn serve(shop: &Shop) -> Service {
    let since = shop.app.clock.now();
    let service = shop.serve("").await;
    for name in ["payonce_figures_read_at_seconds", "payonce_audited_at_seconds"] {
        let is_read = async || figure(&service, name, &[]).await >= seconds_of(since);
        service.until(name, is_read).await.expect("it lives");
        let until = seconds_of(shop.app.clock.now() + Duration::seconds(1));
        assert!(figure(&service, name, &[]).await <= until, "{name} is no time to come");
    }
    service
}

/// Whole seconds, as the gauges have them.
fn seconds_of(at: OffsetDateTime) -> f64 {
    Duration::seconds(at.unix_timestamp()).as_seconds_f64()
}

/// One thing for each figure, but for what is told to the process itself.
async fn let_all_go_wrong(app: &TestApp) {
    let holder = app.merchant("holder", "hold").await;
    app.late_money_as(&holder, "L1").await;
    app.late_money_as(&holder, "L2").await;
    app.run_until_idle().await;
    app.stock("CUP", 10).await;
    app.order("stuck").await;
    let pause = json!({"reason": "the story wants it"});
    app.admin_post("/admin/lanes/SWEEP/pause", pause).await.expect(200);
    app.sql(
        "UPDATE skus SET lock_stock = 3 WHERE sku = 'CUP';
         UPDATE orders SET expires_at = now() - interval '2 min' WHERE order_no = 'stuck';
         INSERT INTO compensations (kind, action, subject, lane, status, attempts, due_at, created_at, updated_at)
         VALUES ('REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_late', 'SWEEP', 'READY', 0, now() - interval '1 h', now(), now()),
                ('REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_dead', 'REALTIME', 'DEAD', 13, now(), now(), now());
         INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
         VALUES ('ex_dead', 'DEAD_TASK', 'po_dead', 'silent', now(), now())",
    )
    .await;
}

async fn mend_all_but_one(app: &TestApp) {
    app.sql("UPDATE skus SET lock_stock = 0 WHERE sku = 'CUP'").await;
    for open in app.exceptions("status=OPEN").await {
        match (open["order_no"].as_str(), open["kind"].as_str()) {
            (Some("L1"), _) => app.resolve(&open, "REFUND").await.expect(200),
            (_, Some("DEAD_TASK")) => app.resolve(&open, "NONE").await.expect(200),
            _ => continue,
        };
    }
    let resume = json!({"reason": "the story wants it"});
    app.admin_post("/admin/lanes/SWEEP/resume", resume).await.expect(200);
    app.run_until_idle().await;
    // The next process audits at once, and what was found before is an hour old.
    app.sql("UPDATE last_audit SET next_at = now(), audited_at = audited_at - interval '1 h'").await;
}

/// Compares the day before yesterday to its end, and one three days before it; gives the end of the younger one.
async fn compare_two_days(app: &TestApp) -> OffsetDateTime {
    for ago in [5, 2] {
        compare_a_day(app, ago).await;
    }
    let ends_at = sqlx::query_scalar("SELECT max(ends_at) FROM reconciliations WHERE status = 'DONE'");
    ends_at.fetch_one(&mut app.direct_connection().await).await.expect("a day")
}

async fn compare_a_day(app: &TestApp, ago: i64) {
    let day = (app.clock.now().date() - Duration::days(ago)).to_string();
    let body = json!({"channel": "sandbox", "day": day, "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    let id = begun.text_of("reconciliation_id");
    app.eventually("the day is compared", async || {
        reconciliation::run_due(&app.instance.app).await.expect("carried on");
        reconciliation::act_due(&app.instance.app).await.expect("acted");
        app.reconciliation(id).await["status"] == "DONE"
    })
    .await;
}

/// Nobody can close it.
async fn hold_the_stuck_order(app: &TestApp) -> PgConnection {
    let mut owner = app.direct_connection().await;
    let hold = "BEGIN; SELECT 1 FROM orders WHERE order_no = 'stuck' FOR UPDATE";
    owner.execute(hold).await.expect("in hand");
    owner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alarm_shows_what_is_wrong_and_falls_back_when_it_is_mended() {
    let shop = Shop::open().await;
    let app = &shop.app;
    let day_ended_at = compare_two_days(app).await;
    let_all_go_wrong(app).await;
    let mut owner = hold_the_stuck_order(app).await;

    let service = serve(&shop).await;
    assert_eq!(figures(&service).await, [1.0, HELD_TWICE, 3.0, 1.0, 1.0]);
    let late = figure(&service, "payonce_lane_late_seconds", &[("lane", "SWEEP")]).await;
    assert!((3_600.0..3_900.0).contains(&late), "{late}: due an hour ago");
    let of_channel = [("channel", "sandbox")];
    let is_known = async || figure(&service, "payonce_reconciliation_age_seconds", &of_channel).await > 0.0;
    service.until("the day's age is known", is_known).await.expect("it lives");
    let age = figure(&service, "payonce_reconciliation_age_seconds", &of_channel).await;
    let by_now = app.clock.now() - day_ended_at;
    let ages =
        (by_now - Duration::minutes(5)).as_seconds_f64()..=(by_now + Duration::seconds(1)).as_seconds_f64();
    assert!(ages.contains(&age), "{age} is not in {ages:?}");
    assert_eq!(figure(&service, "payonce_reconciliation_days_left_out", &of_channel).await, 2.0);

    owner.execute("ROLLBACK").await.expect("free");
    service.kill().await;
    mend_all_but_one(app).await;
    let service = serve(&shop).await;
    assert_eq!(figures(&service).await, [0.0, HELD_ONCE, 1.0, 0.0, 0.0]);
    assert_eq!(figure(&service, "payonce_lane_late_seconds", &[("lane", "SWEEP")]).await, 0.0);
    shop.settle("what is mended").await;
    service.kill().await;
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_that_are_not_believed_or_say_something_wrong_are_counted() {
    let shop = Shop::open().await;
    let app = &shop.app;
    let service = shop.serve("").await;
    let order = json!({"order_no": "A", "user_id": "u1", "currency": "CNY", "amount": 1990});
    service.post("/orders", &order).await.expect("it lives").expect(201);
    let link = json!({"order_no": "A", "payer_id": "u1", "channel": "sandbox"});
    let link = service.post("/pay/url", &link).await.expect("it lives").expect(200);
    let id = link.text_of("pay_order_id");
    let paid = app.sandbox_pay(id, json!({"amount": 7, "notify": false})).await.expect(200);
    let told = serde_json::to_vec(&app.success("e1", id, paid.text_of("transaction_id"), 7)).expect("json");

    let refused = async || {
        let labels = [("channel", "sandbox"), ("verdict", "BAD_SIGNATURE")];
        figure(&service, "payonce_webhooks_refused_total", &labels).await
    };
    let reported = async || {
        let labels = [("channel", "sandbox"), ("verdict", "AMOUNT_MISMATCH")];
        figure(&service, "payonce_reports_total", &labels).await
    };
    assert_eq!((refused().await, reported().await), (0.0, 0.0));
    let forged = app.sign(b"something else");
    assert_eq!(service.webhook(told.clone(), &forged).await.expect("it lives").status, 400);
    assert_eq!((refused().await, reported().await), (1.0, 0.0));
    let signature = app.sign(&told);
    assert_eq!(service.webhook(told, &signature).await.expect("it lives").status, 400);
    assert_eq!((refused().await, reported().await), (1.0, 1.0));

    shop.settle("it goes back").await;
    service.kill().await;
    shop.end().await;
}
