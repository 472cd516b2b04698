//! Stories of metered work whose process dies.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::metering::{hold, hold_with};
use crate::support::servers::send_letter;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service, Shop};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metering {
    SetProduct,
    Hold,
    ReportOverBroker,
    ProgressOverBroker,
    RefuseOverBroker,
    Expire,
    OldMark,
}

impl Metering {
    /// Whether it is told over RabbitMQ.
    pub fn is_on_broker(self) -> bool {
        matches!(self, Self::ReportOverBroker | Self::ProgressOverBroker | Self::RefuseOverBroker)
    }

    /// What was there before the process that dies.
    pub async fn prepare(self, app: &TestApp, number: &str) {
        if self == Self::SetProduct {
            return;
        }
        app.top_up(&format!("T-{number}"), number, 1_000).await;
        app.tokens("1").await;
        match self {
            Self::SetProduct | Self::Hold => {}
            Self::ReportOverBroker | Self::ProgressOverBroker => {
                drop(app.held(number, number, 300).await);
            }
            Self::RefuseOverBroker => {
                let id = app.held(number, number, 300).await;
                app.release(&id).await.expect(200);
            }
            Self::Expire => {
                let body = hold_with(number, number, 300, json!({"expires_in": 1}));
                app.post("/usage/holds", body).await.expect(201);
                tokio::time::sleep(Duration::from_millis(1_050)).await;
            }
            Self::OldMark => {
                let id = app.held(number, number, 300).await;
                app.report(&id, number, 100).await.expect(200);
                app.release(&id).await.expect(200);
                let long_ago = "created_at = now() - interval '15 d'";
                app.sql(&format!("UPDATE usage_messages SET {long_ago} WHERE message_id = '{number}'")).await;
            }
        }
    }

    /// What the client does, up to the end that it waits for.
    pub async fn tell(self, shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
        match self {
            Self::SetProduct => {
                let body = json!({"merchant_id": "demo", "product_code": number, "currency": "CNY", "unit_price": "1",
                                  "reason": "the story wants it"});
                let path = "/admin/products";
                let set = service.ask(Method::POST, path, OPERATOR_OF_PROCESS, Some(&body)).await?;
                assert_eq!(set.status, 200, "{}", set.text);
            }
            Self::Hold => {
                let made = service.post("/usage/holds", &hold(number, number, 300)).await?;
                assert!(made.status < 202, "{}", made.text);
            }
            Self::ReportOverBroker | Self::ProgressOverBroker | Self::RefuseOverBroker => {
                let hold_id = hold_of(&shop.app, number).await;
                let is_final = self != Self::ProgressOverBroker;
                let message = json!({"merchant_id": "demo", "hold_id": hold_id, "message_id": "m1",
                                     "cumulative_units": if is_final { 200 } else { 400 }, "final": is_final});
                let queue = format!("{}.usage.report", shop.var("AMQP_PREFIX"));
                send_letter(shop.var("AMQP_URL"), &queue, message.to_string().as_bytes()).await;
            }
            Self::Expire | Self::OldMark => {}
        }
        service.until("its end", async || self.has_ended(&shop.app, number).await).await
    }

    pub async fn has_ended(self, app: &TestApp, number: &str) -> bool {
        let hold_is = async |state: &str| {
            app.count_where("usage_holds", &format!("idempotency_key = '{number}' AND {state}")).await == 1
        };
        match self {
            Self::SetProduct => {
                app.count_where("product_prices", &format!("product_code = '{number}'")).await == 1
            }
            Self::Hold => hold_is("status = 'HELD' AND held = 300").await,
            Self::ReportOverBroker => hold_is("status = 'CONFIRMED' AND charged = 200").await,
            Self::ProgressOverBroker => {
                hold_is("status = 'HELD' AND units = 400 AND held = 400 AND extensions = 1").await
            }
            Self::RefuseOverBroker => {
                let hold = format!("SELECT hold_id FROM usage_holds WHERE idempotency_key = '{number}'");
                let shown = format!("kind = 'USAGE_REPORT_REFUSED' AND subject IN ({hold})");
                app.count_where("exceptions", &shown).await == 1
            }
            Self::Expire => hold_is("status = 'EXPIRED'").await,
            Self::OldMark => {
                app.count_where("usage_messages", &format!("message_id = '{number}'")).await == 0
            }
        }
    }
}

async fn hold_of(app: &TestApp, key: &str) -> Value {
    let page = app.get(&format!("/users/{key}/usage")).await.expect(200).body;
    page["data"][0]["hold_id"].clone()
}
