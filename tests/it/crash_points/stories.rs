//! The stories in which processes die. Each can be told again from its beginning, as a client does that got no answer.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;
use tokio::time::sleep;

use super::metering::Metering;
use super::money::Money;
use super::operating;
use super::telling::Telling;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service, Shop};
use crate::support::{SECRET_KEY, until_waiting};

/// Longer than anybody waits for a channel here.
pub(super) const SILENCE_MS: u32 = 1_200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    Buy,
    Cancel,
    Late,
    LateAndSilent,
    Expire,
    ExpireOnBroker,
    HopOnBroker,
    Silent,
    SilentOnce,
    PaidWhileAskedFor,
    Refused,
    DeadLink,
    WaitingTask,
    SlowTask,
    GivenUp,
    Spilled,
    LeftAlone,
    EmptiedRedis,
    OldCallback,
    OldAnswer,
    OldTask,
    Fold,
    Audit,
    KeyOfAnOldOrder,
    KeyOfAnOldLink,
    Nonsense,
    Operator,
    Replay,
    Decision,
    Money(Money),
    Telling(Telling),
    Metering(Metering),
}

impl Story {
    /// Whether its timers are on RabbitMQ.
    pub fn is_on_broker(self) -> bool {
        match self {
            Self::ExpireOnBroker | Self::HopOnBroker => true,
            Self::Telling(story) => matches!(story, Telling::Broker),
            Self::Metering(story) => story.is_on_broker(),
            _ => false,
        }
    }

    /// What its processes are told besides.
    pub fn vars(self) -> Vec<(&'static str, String)> {
        match self {
            // A try takes longer than a third of a lease, and so does a page.
            Self::SlowTask | Self::Money(Money::SettleSlowly) => vec![("TASK_LEASE_MS", "1000".to_owned())],
            _ => Vec::new(),
        }
    }

    /// What was there before the process that dies.
    pub async fn prepare(self, shop: &Shop, number: &str) {
        let app = &shop.app;
        let silence = (FaultKind::TimeoutBefore, Some(SILENCE_MS));
        match self {
            Self::SlowTask => app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(700)).await,
            Self::Spilled => fail_for_a_while(shop, number).await,
            Self::LeftAlone => leave_alone(shop, number).await,
            Self::LateAndSilent => app.fault(FaultOp::Refund, silence.0, 1, silence.1).await,
            Self::Silent => app.fault(FaultOp::Create, silence.0, 3, silence.1).await,
            Self::SilentOnce => app.fault(FaultOp::Create, silence.0, 1, silence.1).await,
            Self::PaidWhileAskedFor => {
                app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(SILENCE_MS)).await;
            }
            Self::Refused => app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await,
            Self::Expire => {
                for order_no in [number.to_owned(), format!("{number}-2")] {
                    app.order_with(order(&order_no, 1)).await;
                }
                app.pay_url(number).await;
                sleep(Duration::from_millis(1_050)).await;
            }
            Self::DeadLink => {
                app.order_to_pay(number).await;
                let dead =
                    "expires_at = created_at + interval '1 ms', created_at = created_at - interval '1 h'";
                app.sql(&format!("UPDATE pay_orders SET {dead} WHERE order_no = '{number}'")).await;
                sleep(Duration::from_millis(5)).await;
            }
            Self::WaitingTask => {
                app.late_money(number).await;
                app.eventually("its money is held", async || !strays(shop, number).await.is_empty()).await;
            }
            Self::GivenUp => {
                app.fault(FaultOp::Create, silence.0, 1_000_000, silence.1).await;
                come_to_the_last_try(shop, number).await;
            }
            Self::Fold => {
                let id = app.order_to_pay(number).await;
                app.sandbox_pay(&id, json!({})).await.expect(200);
                app.eventually("it is paid", async || app.status_of(number).await == "PAID").await;
            }
            Self::Audit => app.sql("DELETE FROM last_audit").await,
            Self::EmptiedRedis => empty_redis(shop, number).await,
            Self::OldCallback | Self::OldAnswer | Self::OldTask => app.sql(&self.old_row(number)).await,
            Self::Replay => keep_callback(shop, number).await,
            Self::KeyOfAnOldOrder => drop(app.order_with(order(number, 1_800)).await),
            Self::KeyOfAnOldLink => {
                app.order_with(order(number, 1_800)).await;
                app.pay_url(number).await.expect(200);
            }
            Self::Decision => {
                let key = app.merchant(&number.to_lowercase(), "hold").await;
                app.late_money_as(&key, number).await;
                app.eventually("its money is held", async || exception_of(shop, number).await.is_some())
                    .await;
            }
            Self::Money(story) => story.prepare(app, number).await,
            Self::Telling(story) => story.prepare(shop, number).await,
            Self::Metering(story) => story.prepare(app, number).await,
            Self::Buy
            | Self::Cancel
            | Self::Late
            | Self::Nonsense
            | Self::Operator
            | Self::ExpireOnBroker
            | Self::HopOnBroker => {}
        }
    }

    /// What its retention is over for.
    fn old_row(self, number: &str) -> String {
        match self {
            Self::OldCallback => format!(
                "INSERT INTO webhook_inbox (channel, event_id, verdict, body, received_at, updated_at)
                 VALUES ('sandbox', '{number}', 'RECORDED', '', now() - interval '91 d', now())"
            ),
            Self::OldTask => format!(
                "INSERT INTO compensations (kind, action, subject, status, due_at, created_at, updated_at)
                 VALUES ('REDO_BUSINESS', 'DRIVE_REFUND', '{number}', 'DONE', now(), now() - interval '91 d', now())"
            ),
            _ => format!(
                "INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
                 VALUES ('demo', '{number}', sha256(''), 200, '{{}}', now() - interval '73 h')"
            ),
        }
    }

    /// What the client does, up to the end that it waits for.
    pub async fn tell(self, shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
        match self {
            Self::Buy => buy(shop, service, number).await,
            Self::Cancel => {
                make_order(service, number).await?;
                ask_for_link(service, number).await?;
                close(service, number).await
            }
            Self::Late | Self::LateAndSilent | Self::SlowTask => late(shop, service, number).await,
            Self::ExpireOnBroker | Self::HopOnBroker => {
                // Eight seconds but for a moment: four on one queue, then most of what is left on the next.
                let life = if matches!(self, Self::HopOnBroker) { 8 } else { 1 };
                service.post("/orders", &order(number, life)).await?;
                service.until("its end", async || self.has_ended(shop, number).await).await
            }
            Self::Silent => silent(shop, service, number).await,
            Self::SilentOnce | Self::Refused => {
                make_order(service, number).await?;
                ask_for_link(service, number).await
            }
            Self::Spilled => spilled(shop, service, number).await,
            Self::LeftAlone => {
                let body = json!({"reason": "the story wants it"});
                let done =
                    service.ask(Method::POST, "/admin/sweep", OPERATOR_OF_PROCESS, Some(&body)).await?;
                assert_eq!(done.status, 200, "{}", done.text);
                service.until("its end", async || self.has_ended(shop, number).await).await
            }
            Self::PaidWhileAskedFor => paid_while_asked_for(shop, service, number).await,
            Self::KeyOfAnOldOrder => {
                let made = service.post_keyed("/orders", number, &order(number, 1_800)).await?;
                assert_eq!(made.status, 200, "{}", made.text);
                Ok(())
            }
            Self::KeyOfAnOldLink => {
                let asked = service.post_keyed("/pay/url", number, &link(number)).await?;
                assert_eq!(asked.status, 200, "{}", asked.text);
                Ok(())
            }
            Self::Nonsense => nonsense(shop, service, number).await,
            Self::Operator => operating::operate(service, number).await,
            Self::Replay => {
                let path = format!("/admin/webhooks/sandbox:{number}/replay");
                let body = json!({"reason": "the story wants it"});
                let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
                assert_eq!(done.status, 200, "{}", done.text);
                Ok(())
            }
            Self::Decision => decide(shop, service, number).await,
            Self::Money(story) => story.tell(shop, service, number).await,
            Self::Telling(story) => story.tell(shop, service, number).await,
            Self::Metering(story) => story.tell(shop, service, number).await,
            Self::Expire
            | Self::DeadLink
            | Self::WaitingTask
            | Self::GivenUp
            | Self::EmptiedRedis
            | Self::OldCallback
            | Self::OldAnswer
            | Self::OldTask
            | Self::Fold
            | Self::Audit => service.until("its end", async || self.has_ended(shop, number).await).await,
        }
    }

    /// What everybody can see at the end.
    pub async fn assert_end(self, shop: &Shop, number: &str) {
        assert!(self.has_ended(shop, number).await, "{number} did not end as it should");
    }

    async fn has_ended(self, shop: &Shop, number: &str) -> bool {
        let app = &shop.app;
        match self {
            Self::Buy | Self::PaidWhileAskedFor => app.status_of(number).await == "PAID",
            Self::Cancel | Self::ExpireOnBroker | Self::HopOnBroker => {
                app.status_of(number).await == "CLOSED"
            }
            Self::Expire => {
                app.status_of(number).await == "CLOSED"
                    && app.status_of(&format!("{number}-2")).await == "CLOSED"
            }
            Self::Late | Self::LateAndSilent | Self::SlowTask | Self::WaitingTask | Self::Decision => {
                strays(shop, number).await == ["REFUNDED"]
            }
            Self::Silent | Self::SilentOnce | Self::LeftAlone => {
                app.attempt_statuses(number).await == ["PAYING"]
            }
            // Refused, or made by the task that found it in the middle.
            Self::Refused => ["FAILED", "PAYING"].contains(&app.attempt_statuses(number).await[0].as_str()),
            Self::Spilled => {
                let left: i64 = app.redis_command(&["XLEN", "spill:updates"]).await;
                left == 0 && app.attempt_statuses(number).await == ["PAYING"]
            }
            Self::DeadLink => app.attempt_statuses(number).await == ["CLOSED"],
            Self::GivenUp => {
                let open = format!("kind = 'DEAD_TASK' AND status = 'OPEN' AND order_no = '{number}'");
                app.count_where("exceptions", &open).await == 1
            }
            Self::EmptiedRedis => {
                let member = format!("demo:{number}");
                let timer: Option<f64> = app.redis_command(&["ZSCORE", "delay:order_timeout", &member]).await;
                let intact: i64 = app.redis_command(&["EXISTS", "delay:order_timeout:intact"]).await;
                timer.is_some() && intact == 1
            }
            Self::OldCallback => {
                app.count_where("webhook_inbox", &format!("event_id = '{number}'")).await == 0
            }
            Self::OldAnswer => app.count_where("idempotency_keys", &format!("key = '{number}'")).await == 0,
            Self::Fold => app.count("account_movements").await == 0,
            Self::Audit => app.count_where("last_audit", "report->>'ok' = 'true'").await == 1,
            Self::OldTask => app.count_where("compensations", &format!("subject = '{number}'")).await == 0,
            Self::Money(story) => story.has_ended(app, number).await,
            Self::Telling(story) => story.has_ended(shop, number).await,
            Self::Metering(story) => story.has_ended(app, number).await,
            Self::KeyOfAnOldOrder | Self::KeyOfAnOldLink => {
                app.count_where("idempotency_keys", &format!("key = '{number}'")).await == 1
            }
            Self::Nonsense => {
                let open = format!("kind = 'UNREADABLE_CALLBACK' AND detail LIKE '%{number}%'");
                app.count_where("exceptions", &open).await == 1
            }
            Self::Replay => {
                let told = format!("action = 'webhooks.replay' AND target LIKE '%{number}'");
                app.count_where("admin_log", &told).await >= 1
            }
            Self::Operator => operating::has_ended(app, number).await,
        }
    }
}

/// A callback about nothing of ours, kept a while ago.
async fn keep_callback(shop: &Shop, number: &str) {
    let body = json!({
        "event_id": number, "transaction_id": number, "out_trade_no": "po_of_nobody", "total_fee": 1990,
        "currency": "CNY", "trade_status": "CLOSED", "paid_at": "2026-01-01T00:00:00Z",
    });
    let row = format!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', '{number}', 'po_of_nobody', 'RECORDED', '{body}', now(), now())"
    );
    shop.app.sql(&row).await;
}

fn order(order_no: &str, expires_in: u32) -> Value {
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items, "expires_in": expires_in})
}

fn link(order_no: &str) -> Value {
    json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"})
}

async fn make_order(service: &Service, number: &str) -> Result<(), Gone> {
    let made = service.post("/orders", &order(number, 1_800)).await?;
    assert!(matches!(made.status, 200 | 201), "{}", made.text);
    Ok(())
}

async fn empty_redis(shop: &Shop, number: &str) {
    shop.app.order(number).await;
    let _: () = shop.app.redis_command(&["FLUSHALL"]).await;
}

/// A task that nothing came of so far, and that has one try left.
async fn come_to_the_last_try(shop: &Shop, number: &str) {
    shop.app.order(number).await;
    shop.app.pay_url(number).await.expect(503);
    let last_try = "attempts = 12, due_at = now()";
    shop.app.sql(&format!("UPDATE compensations SET {last_try} WHERE order_no = '{number}'")).await;
}

/// A silence whose task somebody took away.
async fn leave_alone(shop: &Shop, number: &str) {
    let app = &shop.app;
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(SILENCE_MS)).await;
    app.order(number).await;
    app.pay_url(number).await.expect(503);
    app.sql(&format!(
        "DELETE FROM compensations WHERE order_no = '{number}';
         UPDATE pay_orders SET updated_at = now() - interval '2 min' WHERE order_no = '{number}'"
    ))
    .await;
}

/// For a second and a half the database cannot keep that the channel made the link.
async fn fail_for_a_while(shop: &Shop, number: &str) {
    let name = number.replace('-', "_").to_lowercase();
    shop.app
        .sql(&format!(
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF clock_timestamp() < NEW.created_at + interval '1500 ms' THEN
                     RAISE EXCEPTION 'on purpose' USING ERRCODE = '57P03';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER {name} BEFORE UPDATE ON pay_orders FOR EACH ROW
                 WHEN (NEW.status = 'PAYING' AND NEW.order_no = '{number}') EXECUTE FUNCTION {name}()"
        ))
        .await;
}

async fn spilled(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    make_order(service, number).await?;
    service.ask_once(Method::POST, "/pay/url", SECRET_KEY, Some(&link(number))).await?;
    service.until("it is written down", async || Story::Spilled.has_ended(shop, number).await).await
}

/// The link, or whatever keeps it from being made.
async fn ask_for_link(service: &Service, number: &str) -> Result<(), Gone> {
    let asked = service.post("/pay/url", &link(number)).await?;
    assert!(matches!(asked.status, 200 | 402 | 409), "{}", asked.text);
    Ok(())
}

async fn close(service: &Service, number: &str) -> Result<(), Gone> {
    let closed = service.post(&format!("/orders/{number}/close"), &json!({})).await?;
    assert_eq!(closed.status, 200, "{}", closed.text);
    Ok(())
}

/// Presses Pay, once however often the story is told.
async fn pay(shop: &Shop, number: &str) {
    let attempts = shop.app.attempts_of(number).await;
    let id = attempts[0]["pay_order_id"].as_str().expect("an id");
    if shop.app.sandbox_trade(id).await["payments"] == json!([]) {
        shop.app.sandbox_pay(id, json!({"force": true})).await.expect(200);
    }
}

async fn strays(shop: &Shop, number: &str) -> Vec<String> {
    let strays = shop.app.strays("").await.into_iter().filter(|stray| stray["order_no"] == number);
    strays.map(|stray| stray["status"].as_str().expect("a status").to_owned()).collect()
}

async fn exception_of(shop: &Shop, number: &str) -> Option<Value> {
    shop.app.exceptions("").await.into_iter().find(|exception| exception["order_no"] == number)
}

async fn buy(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    make_order(service, number).await?;
    ask_for_link(service, number).await?;
    pay(shop, number).await;
    service.until("it is paid", async || shop.app.status_of(number).await == "PAID").await
}

async fn late(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    make_order(service, number).await?;
    ask_for_link(service, number).await?;
    close(service, number).await?;
    pay(shop, number).await;
    service.until("it goes back", async || strays(shop, number).await == ["REFUNDED"]).await
}

async fn silent(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    make_order(service, number).await?;
    // The client does not come back for its link; a task makes it.
    service.ask_once(Method::POST, "/pay/url", SECRET_KEY, Some(&link(number))).await?;
    service.until("a task makes it", async || shop.app.attempt_statuses(number).await == ["PAYING"]).await
}

/// Money that comes in between a request's look at the order and its taking over of the attempt.
async fn paid_while_asked_for(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    make_order(service, number).await?;
    let first = service.ask_once(Method::POST, "/pay/url", SECRET_KEY, Some(&link(number))).await?;
    if first.status != 503 {
        return service.until("it is paid", async || shop.app.status_of(number).await == "PAID").await;
    }
    // Whoever takes the attempt over waits for this row; the callback does not touch it.
    let mut other = shop.app.direct_connection().await;
    let mut held = other.begin().await.expect("a transaction");
    let postpone = "UPDATE compensations SET due_at = due_at + interval '1 min' WHERE order_no = $1";
    sqlx::query(postpone).bind(number).execute(&mut *held).await.expect("the row is held");
    let ask = link(number);
    let asked = service.ask_once(Method::POST, "/pay/url", SECRET_KEY, Some(&ask));
    let paid = async {
        until_waiting(&shop.app, 1).await;
        pay(shop, number).await;
        service.until("it is paid", async || shop.app.status_of(number).await == "PAID").await?;
        held.commit().await.expect("the row is free");
        Ok(())
    };
    let (asked, paid) = tokio::join!(asked, paid);
    asked.map(drop).and(paid)
}

async fn nonsense(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    let body =
        json!({"event_id": number, "out_trade_no": number, "trade_status": "SUCCESS", "total_fee": -1});
    let bytes = serde_json::to_vec(&body).expect("json");
    let signature = shop.app.sign(&bytes);
    let answered = service.webhook(bytes, &signature).await?;
    assert_eq!(answered.status, 400, "{}", answered.text);
    Ok(())
}

async fn decide(shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
    let exception = exception_of(shop, number).await.expect("an exception");
    let path = format!("/admin/exceptions/{}/resolve", exception["exception_id"].as_str().expect("an id"));
    let body = json!({"action": "REFUND", "reason": "the story wants it"});
    let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
    assert_eq!(done.status, 200, "{}", done.text);
    service.until("it goes back", async || strays(shop, number).await == ["REFUNDED"]).await
}
