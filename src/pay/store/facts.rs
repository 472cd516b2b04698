//! What decides over a pay URL.

use time::OffsetDateTime;

use crate::compensation::Action;
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::money::Currency;
use crate::orders::{OrderKey, OrderStatus};
use crate::pay::model::PayStatus;

/// What decides over a pay URL: the order, and its live attempt if there is one.
#[derive(Clone, Debug)]
pub(in crate::pay) struct Facts {
    pub(in crate::pay) order: OrderFacts,
    pub(in crate::pay) live: Option<LiveAttempt>,
}

#[derive(Clone, Debug)]
pub(in crate::pay) struct OrderFacts {
    pub(in crate::pay) status: OrderStatus,
    pub(in crate::pay) user_id: String,
    pub(in crate::pay) amount: i64,
    pub(in crate::pay) currency: Currency,
    pub(in crate::pay) subject: Option<String>,
    pub(in crate::pay) expires_at: OffsetDateTime,
    pub(in crate::pay) attempts: i32,
}

#[derive(Clone, Debug)]
pub(in crate::pay) struct LiveAttempt {
    pub(in crate::pay) pay_order_id: PayOrderId,
    pub(in crate::pay) payer_id: String,
    pub(in crate::pay) channel: String,
    pub(in crate::pay) status: PayStatus,
    pub(in crate::pay) pay_url: Option<String>,
    pub(in crate::pay) expires_at: OffsetDateTime,
    /// A task closes it, whatever becomes of whoever wrote that task.
    pub(in crate::pay) is_being_closed: bool,
}

/// Reads an order and its live attempt.
#[derive(Debug)]
pub(in crate::pay) struct FindFacts(pub(in crate::pay) OrderKey);

impl Command for FindFacts {
    const NAME: &'static str = "pay.find_facts";
    type Outcome = Option<Facts>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Option<Facts>>, DbError> {
        let rows = sqlx::query!(
            r#"SELECT asked.place AS "place!",
                      orders.status AS "status: OrderStatus", orders.user_id, orders.amount,
                      orders.currency AS "currency: Currency", orders.subject, orders.expires_at, orders.attempts,
                      live.pay_order_id AS "live_id?: PayOrderId", live.payer_id AS "live_payer?",
                      live.channel AS "live_channel?", live.status AS "live_status?: PayStatus",
                      live.pay_url AS live_url, live.expires_at AS "live_expires_at?",
                      -- The action is a parameter: its word would let a plan into the index of an order's tasks.
                      (SELECT true FROM compensations AS closing
                       WHERE closing.subject = live.pay_order_id AND closing.action = $3
                         AND closing.status NOT IN ('DONE', 'DEAD')) AS live_is_being_closed
               FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                            unnest($4::bigint[]) AS place) AS asked
               JOIN orders ON orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no
               LEFT JOIN pay_orders AS live
                      ON live.merchant_id = orders.merchant_id AND live.order_no = orders.order_no
                     AND live.is_live"#,
            &column(batch, |FindFacts(key)| key.merchant_id.as_str()) as &[&str],
            &column(batch, |FindFacts(key)| key.order_no.as_str()) as &[&str],
            Action::ClosePayOrder.as_str(),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| {
            let live =
                match (row.live_id, row.live_payer, row.live_channel, row.live_status, row.live_expires_at) {
                    (Some(pay_order_id), Some(payer_id), Some(channel), Some(status), Some(expires_at)) => {
                        Some(LiveAttempt {
                            pay_order_id,
                            payer_id,
                            channel,
                            status,
                            pay_url: row.live_url,
                            expires_at,
                            is_being_closed: row.live_is_being_closed == Some(true),
                        })
                    }
                    _ => None,
                };
            let order = OrderFacts {
                status: row.status,
                user_id: row.user_id,
                amount: row.amount,
                currency: row.currency,
                subject: row.subject,
                expires_at: row.expires_at,
                attempts: row.attempts,
            };
            (row.place, Facts { order, live })
        }))
    }
}
