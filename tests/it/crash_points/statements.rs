//! Stories of statements that are compared, and whose process dies.

use payonce::infra::clock::Clock;
use reqwest::Method;
use serde_json::json;
use time::Date;

use super::money::Money;
use crate::support::TestApp;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service};
use crate::support::statements::sandbox_csv;

/// The day before, by the clock of the processes: they have the machine's.
fn yesterday() -> Date {
    Clock::system().now().date().previous_day().expect("a day")
}

/// The day on which the channel took the lost money of a story: yesterday when that began, whatever day it is by now.
async fn day_of(app: &TestApp, number: &str) -> Date {
    let day = "SELECT (payment.paid_at AT TIME ZONE 'UTC')::date
               FROM sandbox.payments AS payment JOIN pay_orders USING (pay_order_id)
               WHERE order_no IN ($1, $2)";
    let day = sqlx::query_scalar(day).bind(number).bind(format!("L-{number}"));
    day.fetch_one(app.instance.app.db.pool()).await.expect("a day")
}

/// Money that the channel took on that day for an order that was closed, and that nobody was told of.
async fn lost_money(app: &TestApp, number: &str, day: Date) {
    let id = app.order_to_pay(number).await;
    app.close(number).await.expect(200);
    app.sandbox_pay(&id, json!({"force": true, "notify": false})).await.expect(200);
    app.sql(&format!("UPDATE sandbox.payments SET paid_at = '{day} 12:00Z' WHERE pay_order_id = '{id}'"))
        .await;
}

async fn upload(service: &Service, day: Date, file: &str) -> Result<(), Gone> {
    let path = format!("/admin/reconciliations/upload?channel=sandbox&day={day}&reason=a+story");
    let uploaded = service.post_bytes(&path, OPERATOR_OF_PROCESS, file.as_bytes()).await?;
    assert_eq!(uploaded.status, 200, "{}", uploaded.text);
    Ok(())
}

/// A top-up that the channel knows nothing of, by a callback of that day, and that was spent on usage.
async fn spent_money(app: &TestApp, number: &str, day: Date) {
    let (pay_order_id, user_id) =
        (app.top_up_to_pay(number, &format!("u-{number}"), 990).await, format!("u-{number}"));
    let mut callback = app.success(&format!("e-{number}"), &pay_order_id, &format!("t-{number}"), 990);
    callback["paid_at"] = json!(format!("{day}T12:00:00Z"));
    app.deliver(&callback).await;
    app.tokens_with("1", json!({"allow_compensating_charge": true})).await.expect(200);
    let hold_id = app.held(number, &user_id, 500).await;
    app.confirm(&hold_id, Some(500)).await.expect(200);
}

/// The same, charged, and found by the channel after all.
async fn charged_money(app: &TestApp, number: &str, day: Date) {
    // A statement with nothing in it would be refused.
    lost_money(app, &format!("L-{number}"), day).await;
    spent_money(app, number, day).await;
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    let item = items.iter().find(|item| item["order_no"] == number).expect("a difference");
    app.decide(item, "approve").await.expect(200);
    let charged = format!("order_no = '{number}' AND action = 'CHARGE' AND status = 'APPLIED'");
    while app.count_where("reconciliation_items", &charged).await == 0 {
        app.carry_on().await;
    }
    app.found_after_all(number).await;
}

/// The difference of an order.
async fn difference_of(app: &TestApp, number: &str) -> String {
    sqlx::query_scalar("SELECT item_id FROM reconciliation_items WHERE order_no = $1")
        .bind(number)
        .fetch_one(app.instance.app.db.pool())
        .await
        .expect("a difference")
}

/// Makes the database refuse the end of a comparison once.
async fn stumble_once(app: &TestApp) {
    app.sql(
        "DROP TRIGGER IF EXISTS stumble ON reconciliations;
         DROP FUNCTION IF EXISTS stumble();
         DROP SEQUENCE IF EXISTS stumbles;
         CREATE SEQUENCE stumbles;
         CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
             BEGIN
                 -- A number that was given out stays so when its transaction fails.
                 IF nextval('public.stumbles') = 1 THEN RAISE 'not now'; END IF;
                 RETURN NEW;
             END $$;
         CREATE TRIGGER stumble BEFORE UPDATE ON reconciliations FOR EACH ROW
             WHEN (NEW.status = 'ACTING' AND OLD.status = 'MATCHING') EXECUTE FUNCTION stumble()",
    )
    .await;
}

/// Two days that were compared long ago, of which the first one is forgotten.
async fn old_days(app: &TestApp, number: &str) {
    app.sql(&format!(
        "BEGIN;
         INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source, leased_until,
                                      created_at, updated_at, finished_at, forgotten_at)
         SELECT id, '{number}', day, day, day + 1, 'DONE', 'CHANNEL', day, day, day, day, forgotten_at
         FROM (VALUES ('rc_{number}', '2020-01-01'::date, '2020-01-09'::date), ('rc_{number}_next', '2020-01-02', NULL))
              AS old (id, day, forgotten_at);
         INSERT INTO reconciliation_history
         SELECT id, seq, before, after, event, '2020-01-02'
         FROM (VALUES ('rc_{number}'), ('rc_{number}_next')) AS old (id),
              (VALUES (1, NULL, 'OPEN', 'BEGUN'), (2, 'OPEN', 'FETCHING', 'FETCH_BEGUN'),
                      (3, 'FETCHING', 'MATCHING', 'FETCHED'), (4, 'MATCHING', 'ACTING', 'MATCHED'),
                      (5, 'ACTING', 'DONE', 'FINISHED')) AS step (seq, before, after, event);
         INSERT INTO statement_lines VALUES ('rc_{number}', 1, 'OTHER', 'x', 'x', 1, 'CNY', 0, true, '2020-01-01');
         INSERT INTO statement_files VALUES ('sf_{number}', 0, 'x', '2020-01-01');
         COMMIT"
    ))
    .await;
}

pub async fn prepare(story: Money, app: &TestApp, number: &str) {
    let day = yesterday();
    match story {
        Money::OldStatement => old_days(app, number).await,
        Money::ApproveADifference => {
            lost_money(app, number, day).await;
            app.reconcile(day).await;
        }
        Money::Stumble => {
            lost_money(app, number, day).await;
            stumble_once(app).await;
        }
        Money::GiveBackACharge => charged_money(app, number, day).await,
        Money::CompensatingCharge => {
            lost_money(app, &format!("L-{number}"), day).await;
            spent_money(app, number, day).await;
        }
        _ => lost_money(app, number, day).await,
    }
}

pub async fn tell(story: Money, app: &TestApp, service: &Service, number: &str) -> Result<(), Gone> {
    let ask = async |path: &str, body: serde_json::Value| {
        service.ask(Method::POST, path, OPERATOR_OF_PROCESS, Some(&body)).await
    };
    match story {
        Money::UploadAStatement => {
            let day = day_of(app, number).await;
            upload(service, day, &sandbox_csv(day, &app.book_lines(day).await)).await?;
        }
        Money::Reconcile | Money::CompensatingCharge | Money::Stumble => {
            let day = day_of(app, number).await.to_string();
            let body = json!({"channel": "sandbox", "day": day, "reason": "the story wants it"});
            let begun = ask("/admin/reconciliations", body).await?;
            assert_eq!(begun.status, 200, "{}", begun.text);
        }
        Money::ApproveADifference => {
            let item = difference_of(app, number).await;
            let path = format!("/admin/reconciliation-items/{item}/approve");
            let approved = ask(&path, json!({"reason": "the story wants it", "moves_money": true})).await?;
            assert_eq!(approved.status, 200, "{}", approved.text);
        }
        Money::GiveBackACharge => {
            let item = difference_of(app, number).await;
            let path = format!("/admin/reconciliation-items/{item}/reverse-charge");
            let reversed = ask(&path, json!({"reason": "the story wants it"})).await?;
            assert_eq!(reversed.status, 200, "{}", reversed.text);
        }
        _ => {}
    }
    Ok(())
}

/// What its merchant hears of what was charged for a top-up, in order.
async fn told_of_charges(app: &TestApp, order_no: &str) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT event FROM outbox WHERE order_no = $1 AND event LIKE 'compensating%' ORDER BY id",
    )
    .bind(order_no)
    .fetch_all(&mut app.direct_connection().await)
    .await
    .expect("events")
}

pub async fn has_ended(story: Money, app: &TestApp, number: &str) -> bool {
    match story {
        Money::OldStatement => {
            let lines =
                app.count_where("statement_lines", &format!("reconciliation_id = 'rc_{number}'")).await;
            let remembered = format!("reconciliation_id = 'rc_{number}_next' AND forgotten_at IS NULL");
            let files = app.count_where("statement_files", &format!("file_id = 'sf_{number}'")).await;
            lines + files + app.count_where("reconciliations", &remembered).await == 0
        }
        Money::GiveBackACharge => {
            let given_back = format!("order_no = '{number}' AND status = 'REVERSED'");
            app.count_where("reconciliation_items", &given_back).await == 1
                && app.balances_of(&format!("u-{number}")).await == [("CNY".to_owned(), 490, 0, 0)]
                && told_of_charges(app, number).await
                    == ["compensating_charge.made", "compensating_charge.reversed"]
        }
        Money::CompensatingCharge => {
            let charged = format!("order_no = '{number}' AND action = 'CHARGE' AND status = 'APPLIED'");
            app.count_where("reconciliation_items", &charged).await == 1
                && app.balances_of(&format!("u-{number}")).await == [("CNY".to_owned(), 0, 0, 500)]
                && told_of_charges(app, number).await == ["compensating_charge.made"]
                && app.count_where("reconciliations", "status <> 'DONE'").await == 0
        }
        _ => {
            let back = format!("order_no = '{number}' AND status = 'REFUNDED'");
            app.count_where("stray_payments", &back).await == 1
                && app.count_where("reconciliations", "status <> 'DONE'").await == 0
        }
    }
}
