//! `sandbox.deliveries`.

use time::{Duration, OffsetDateTime};

use crate::channels::sandbox::books::DeliveryView;
use crate::channels::sandbox::deliver::Delivery;
use crate::channels::sandbox::webhooks::{DeliveryStatus, NewDelivery};
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met, places};

/// Writes an event down to be sent, as many times over as it has copies.
pub(crate) async fn insert(
    conn: &mut Conn,
    delivery: &NewDelivery<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO sandbox.deliveries (event_id, pay_order_id, notify_url, body, status, is_held, due_at,
                                         created_at, updated_at)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8
         FROM generate_series(1, $9::integer)",
        delivery.event_id,
        delivery.pay_order_id.as_str(),
        delivery.notify_url,
        delivery.body,
        delivery.plan.status.as_str(),
        delivery.plan.is_held,
        now + delivery.plan.wait,
        now,
        delivery.plan.copies,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a batch of what is due. Moving `due_at` is the lease: whoever dies with a delivery in hand loses it
/// to the next claim.
pub(crate) async fn claim_due(
    conn: &mut Conn,
    limit: i64,
    lease: Duration,
    now: OffsetDateTime,
) -> Result<Vec<Delivery>, DbError> {
    Ok(sqlx::query_as!(
        Delivery,
        "UPDATE sandbox.deliveries
         SET attempts = attempts + 1, due_at = $2, is_held = false, updated_at = $1
         -- Locked, so they stay where they are; and no plan can walk to them.
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM sandbox.deliveries
                                 WHERE status = 'PENDING' AND due_at <= $1
                                 ORDER BY due_at
                                 LIMIT $3
                                 FOR UPDATE SKIP LOCKED))
         RETURNING id, event_id, pay_order_id, notify_url, body, attempts",
        now,
        now + lease,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Marks a delivery as taken in, and lets go what was held back behind it; says whether there was any. Gathered,
/// because every webhook costs it.
#[derive(Debug)]
pub(crate) struct SetDelivered {
    pub(crate) id: i64,
    pub(crate) attempts: i32,
    pub(crate) pay_order_id: String,
    pub(crate) now: OffsetDateTime,
}

impl Command for SetDelivered {
    const NAME: &'static str = "sandbox.delivered";
    type Outcome = bool;

    /// What is held back is let go once.
    fn order(&self) -> Option<String> {
        Some(self.pay_order_id.clone())
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let released = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 SELECT set_config('lock_timeout', $4, true)
               ), done AS (
                 UPDATE sandbox.deliveries AS delivery
                 SET status = 'DELIVERED', last_result = 'acknowledged', updated_at = new.now
                 FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::integer[]) AS attempts,
                              unnest($3::timestamptz[]) AS now, unnest($6::bigint[]) AS place) AS new, patient
                 -- Somebody whose lease ran out does not speak for the one who came after. The state is a parameter,
                 -- because the word would let the plan walk the index of all that is due.
                 WHERE delivery.id = new.id AND delivery.attempts = new.attempts AND delivery.status = $5
                 RETURNING delivery.id, delivery.pay_order_id, new.now, new.place
               ), released AS (
                 UPDATE sandbox.deliveries AS held SET is_held = false, due_at = done.now, updated_at = done.now
                 FROM done
                 WHERE held.pay_order_id = done.pay_order_id AND held.id < done.id AND held.is_held
                 RETURNING done.place
               )
               SELECT DISTINCT place AS "place!" FROM released"#,
            &column(batch, |done| done.id),
            &column(batch, |done| done.attempts),
            &column(batch, |done| done.now),
            patience.millis(),
            DeliveryStatus::Pending.as_str(),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), released))
    }
}

/// Writes a failed try down: to be tried again at `retry_at`, or given up without one. The state is a parameter, as above.
pub(crate) async fn set_failed(
    conn: &mut Conn,
    delivery: &Delivery,
    result: &str,
    retry_at: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE sandbox.deliveries
         SET status = CASE WHEN $4::timestamptz IS NULL THEN 'GAVE_UP' ELSE status END,
             due_at = coalesce($4, due_at), last_result = $3, updated_at = $5
         WHERE id = $1 AND attempts = $2 AND status = $6",
        delivery.id,
        delivery.attempts,
        result,
        retry_at,
        now,
        DeliveryStatus::Pending.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The webhooks of a trade, oldest first, for people.
pub(crate) async fn list(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Vec<DeliveryView>, DbError> {
    Ok(sqlx::query_as!(
        DeliveryView,
        r#"SELECT event_id, status AS "status: DeliveryStatus", attempts, due_at, last_result
           FROM sandbox.deliveries
           WHERE pay_order_id = $1
           ORDER BY id
           LIMIT 100"#,
        pay_order_id.as_str(),
    )
    .fetch_all(conn)
    .await?)
}
