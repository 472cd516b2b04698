//! `INIT → PAYING`: a link may be given out.

use time::OffsetDateTime;

use crate::channels::CreatedTrade;
use crate::compensation::TaskStatus;
use crate::idempotency::Kept;
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met, places};
use crate::orders::{OrderKey, OrderStatus};

/// `INIT → PAYING` with the link, if the order still waits for money; ends the guarding task, and keeps the answer
/// where that is asked. `false` when the attempt or the order moved meanwhile.
#[derive(Debug)]
pub(in crate::pay) struct Publish {
    pub(in crate::pay) order: OrderKey,
    pub(in crate::pay) pay_order_id: PayOrderId,
    pub(in crate::pay) created: CreatedTrade,
    pub(in crate::pay) kept: Option<Kept>,
    pub(in crate::pay) now: OffsetDateTime,
}

impl Command for Publish {
    const NAME: &'static str = "pay.publish";
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.order.lock_rank())
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let linked = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 SELECT set_config('lock_timeout', $12, true)
               ), linked AS (
                 UPDATE pay_orders
                 SET status = 'PAYING', pay_url = new.pay_url, channel_ref = new.channel_ref,
                     expires_at = new.expires_at, version = pay_orders.version + 1, updated_at = new.now
                 FROM (SELECT unnest($1::text[]) AS pay_order_id, unnest($2::text[]) AS merchant_id,
                              unnest($3::text[]) AS order_no, unnest($4::text[]) AS pay_url,
                              unnest($5::text[]) AS channel_ref, unnest($6::timestamptz[]) AS expires_at,
                              unnest($7::timestamptz[]) AS now, unnest($8::text[]) AS key,
                              unnest($9::bytea[]) AS request_hash, unnest($10::smallint[]) AS status,
                              unnest($11::bytea[]) AS body, unnest($15::bigint[]) AS place) AS new,
                      patient
                 WHERE pay_orders.pay_order_id = new.pay_order_id AND pay_orders.status = 'INIT'
                   AND EXISTS (SELECT 1 FROM orders
                               WHERE orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
                                 AND orders.status = $13)
                 RETURNING new.merchant_id, new.order_no, new.pay_order_id, new.now, new.place, pay_orders.version,
                           new.key, new.request_hash, new.status AS answer_status, new.body
               ), history AS (
                 INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                            created_at)
                 SELECT merchant_id, order_no, pay_order_id, version, 'INIT', 'PAYING', 'LINK_MADE', now FROM linked
               ), kept AS (
                 INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
                 SELECT merchant_id, key, request_hash, order_no, answer_status, body, now
                 FROM linked WHERE key IS NOT NULL
               ), unneeded AS (
                 -- The guard was never needed: no trace of it. Looked up one by one and in these words, so that the
                 -- plan has no other way than its unique index.
                 DELETE FROM compensations
                 WHERE id = ANY (ARRAY(
                           SELECT (SELECT guard.id FROM compensations AS guard
                                   WHERE guard.subject = linked.pay_order_id AND guard.action = 'DRIVE_PAY_ORDER'
                                     AND guard.status NOT IN ('DONE', 'DEAD'))
                           FROM linked))
                   AND status = ANY($14)
               )
               SELECT place AS "place!" FROM linked"#,
            &column(batch, |new| new.pay_order_id.as_str()) as &[&str],
            &column(batch, |new| new.order.merchant_id.as_str()) as &[&str],
            &column(batch, |new| new.order.order_no.as_str()) as &[&str],
            &column(batch, |new| new.created.pay_url.as_str()) as &[&str],
            &column(batch, |new| new.created.channel_ref.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.created.expires_at),
            &column(batch, |new| new.now),
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.key.as_str())) as &[Option<&str>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.request_hash.as_slice()))
                as &[Option<&[u8]>],
            &column(batch, |new| new.kept.as_ref().map(Kept::status)) as &[Option<i16>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.answer.body.as_slice())) as &[Option<&[u8]>],
            patience.millis(),
            OrderStatus::Pending.as_str(),
            &TaskStatus::ALIVE.map(TaskStatus::as_str) as &[&str],
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), linked))
    }
}
