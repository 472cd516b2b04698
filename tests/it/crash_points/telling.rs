//! Stories of events on their way to the outside, whose process dies.

use lapin::ExchangeKind;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::UNTOLD;
use crate::support::receiver::{Manner, Receiver};
use crate::support::servers::Broker;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service, Shop};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    Endpoint,
    Unaddressed,
    Broker,
    Waiting,
    LastTry,
    OldDelivery,
    Again,
    AllAgain,
    Url,
    Secret,
}

/// Where the merchants of all these stories hear.
async fn receiver() -> &'static Receiver {
    static RECEIVER: OnceCell<Receiver> = OnceCell::const_new();
    RECEIVER.get_or_init(Receiver::start).await
}

/// Where nothing is heard.
async fn refusing() -> &'static Receiver {
    static REFUSING: OnceCell<Receiver> = OnceCell::const_new();
    let start = || async {
        let receiver = Receiver::start().await;
        receiver.always(Manner::status(500));
        receiver
    };
    REFUSING.get_or_init(start).await
}

/// The broker that the shop's processes speak to, the queue of a story, and the exchange that it hears.
fn broker_of(shop: &Shop, number: &str) -> (Broker, String, String) {
    let broker = Broker { url: shop.var("AMQP_URL").to_owned(), prefix: shop.var("AMQP_PREFIX").to_owned() };
    let (queue, exchange) =
        (format!("{}.heard.{number}", broker.prefix), format!("{}.events", broker.prefix));
    (broker, queue, exchange)
}

/// Has whatever is told from now on kept at the broker, for as long as the story takes.
async fn listen(shop: &Shop, number: &str) {
    let (broker, queue, exchange) = broker_of(shop, number);
    let channel = broker.channel().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let made = channel.exchange_declare(
        exchange.as_str().into(),
        ExchangeKind::Topic,
        durable,
        FieldTable::default(),
    );
    made.await.expect("an exchange");
    let mut of_itself = FieldTable::default();
    of_itself.insert("x-expires".into(), AMQPValue::LongInt(600_000));
    let made = channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::default(), of_itself);
    made.await.expect("a queue");
    let bound = channel.queue_bind(
        queue.as_str().into(),
        exchange.as_str().into(),
        "#".into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bound.await.expect("bound");
}

/// Whether the broker has the order's event. What is looked at goes back with the channel.
async fn is_heard(shop: &Shop, number: &str) -> bool {
    let (broker, queue, _) = broker_of(shop, number);
    let channel = broker.channel().await;
    let options = BasicGetOptions { no_ack: false };
    let mut is_heard = false;
    while let Some(got) = channel.basic_get(queue.as_str().into(), options).await.expect("an answer") {
        let told: Value = serde_json::from_slice(&got.delivery.data).expect("JSON");
        let has_id = got.properties.message_id().as_ref().is_some_and(|id| id.as_str().starts_with("evt_"));
        is_heard |= has_id && told["data"]["order_no"] == number;
    }
    channel.close(200, "seen".into()).await.expect("closed");
    is_heard
}

/// An order whose end its merchant is told of.
async fn make_and_close(service: &Service, order_no: &str) -> Result<(), Gone> {
    let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990});
    let made = service.post("/orders", &order).await?;
    assert!(matches!(made.status, 200 | 201), "{}", made.text);
    let closed = service.post(&format!("/orders/{order_no}/close"), &json!({})).await?;
    assert_eq!(closed.status, 200, "{}", closed.text);
    Ok(())
}

/// The merchant hears of an order of its own, by this secret.
async fn signs_with(service: &Service, order_no: &str, secret: &str) -> Result<(), Gone> {
    make_and_close(service, order_no).await?;
    let receiver = receiver().await;
    service.until("it is told", async || !receiver.told_of(order_no).is_empty()).await?;
    let told = receiver.calls().into_iter().filter(|call| call.order_no() == order_no);
    for call in told {
        assert!(call.is_signed_by(secret), "{call:?}");
    }
    Ok(())
}

impl Telling {
    /// What was there before the process that dies.
    pub async fn prepare(self, shop: &Shop, number: &str) {
        let app = &shop.app;
        let url = match self {
            Self::LastTry => format!("'{}'", refusing().await.url),
            Self::Broker => return listen(shop, number).await,
            Self::Unaddressed => "NULL".to_owned(),
            _ => format!("'{}'", receiver().await.url),
        };
        app.sql(&format!("UPDATE merchants SET notify_url = {url}")).await;
        let (status, attempts, born) = match self {
            Self::Waiting => ("PENDING", 3, "now()"),
            Self::LastTry => ("PENDING", 9, "now()"),
            Self::OldDelivery => ("DELIVERED", 1, "now() - interval '91 d'"),
            Self::Again | Self::AllAgain => ("DELIVERED", 1, "now()"),
            _ => return,
        };
        app.sql(&format!(
            "WITH event AS (
                 INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
                 VALUES ('demo', '{number}', 'story.told', 1, '{{\"order_no\": \"{number}\"}}', now())
                 RETURNING id
             )
             INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, attempts, due_at,
                                     created_at, updated_at)
             SELECT id, 'REPLAY_CALLBACK', 'story.told', 'demo', '{number}', 'demo',
                    '{{\"type\":\"story.told\",\"data\":{{\"order_no\":\"{number}\"}}}}', '{status}', {attempts}, now(),
                    {born}, {born}
             FROM event;
             DELETE FROM outbox_queue"
        ))
        .await;
    }

    /// What the client does, up to the end that it waits for.
    pub async fn tell(self, shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
        let reason = json!({"reason": "the story wants it"});
        let (path, body) = match self {
            Self::Endpoint | Self::Unaddressed | Self::Broker => {
                make_and_close(service, number).await?;
                (None, Value::Null)
            }
            Self::Waiting | Self::LastTry | Self::OldDelivery => (None, Value::Null),
            Self::Again => {
                let find = format!("SELECT id FROM outbox WHERE order_no = '{number}'");
                let id: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(find))
                    .fetch_one(shop.app.instance.app.db.pool())
                    .await
                    .expect("an event");
                (Some(format!("/admin/outbox/evt_{id}/resend")), reason)
            }
            Self::AllAgain => {
                let since =
                    json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "reason": "a story"});
                (Some("/admin/outbox/resend".to_owned()), since)
            }
            Self::Url => {
                let url = format!("{}?{number}", receiver().await.url);
                (
                    Some("/admin/merchants/demo/notify-url".to_owned()),
                    json!({"notify_url": url, "reason": "a story"}),
                )
            }
            Self::Secret => (Some("/admin/merchants/demo/notify-secret".to_owned()), reason),
        };
        if let Some(path) = path {
            let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
            assert!(matches!(done.status, 200 | 201), "{path}: {}", done.text);
            if self == Self::Secret {
                signs_with(service, &format!("{number}-told"), done.text_of("notify_secret")).await?;
            }
        }
        service.until("its end", async || self.has_ended(shop, number).await).await
    }

    pub async fn has_ended(self, shop: &Shop, number: &str) -> bool {
        let app = &shop.app;
        let is_published = app.count_where("outbox", UNTOLD).await == 0;
        match self {
            Self::Endpoint | Self::Waiting | Self::Again | Self::AllAgain => {
                is_published && !receiver().await.told_of(number).is_empty()
            }
            Self::Unaddressed => {
                let closed = format!("event = 'order.closed' AND order_no = '{number}'");
                is_published && app.count_where("outbox", &closed).await == 1
            }
            Self::Broker => {
                let arrived =
                    format!("kind = 'RESEND_EVENT' AND status = 'DELIVERED' AND order_no = '{number}'");
                is_published
                    && app.count_where("deliveries", &arrived).await == 1
                    && is_heard(shop, number).await
            }
            Self::LastTry => {
                let open = format!("kind = 'DEAD_TASK' AND status = 'OPEN' AND order_no = '{number}'");
                is_published && app.count_where("exceptions", &open).await == 1
            }
            Self::OldDelivery => {
                app.count_where("deliveries", "created_at < now() - interval '90 d'").await == 0
            }
            Self::Url => {
                let url = format!("notify_url LIKE '%?{number}'");
                app.count_where("merchants", &url).await == 1
            }
            Self::Secret => {
                app.count_where("admin_log", "action = 'merchants.rotate_notify_secret'").await >= 1
            }
        }
    }
}
