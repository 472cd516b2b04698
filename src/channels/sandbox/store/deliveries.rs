//! `sandbox.deliveries`.

use time::{Duration, OffsetDateTime};

use crate::channels::sandbox::books::DeliveryView;
use crate::channels::sandbox::deliver::Delivery;
use crate::channels::sandbox::webhooks::{DeliveryStatus, NewDelivery};
use crate::ids::PayOrderId;
use crate::infra::db::{Conn, DbError};

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
         WHERE id IN (SELECT id FROM sandbox.deliveries
                      WHERE status = 'PENDING' AND due_at <= $1
                      ORDER BY due_at
                      LIMIT $3
                      FOR UPDATE SKIP LOCKED)
         RETURNING id, event_id, pay_order_id, notify_url, body, attempts",
        now,
        now + lease,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Marks a delivery as taken in, and lets go what was held back behind it; says how many that were.
pub(crate) async fn set_delivered(
    conn: &mut Conn,
    delivery: &Delivery,
    now: OffsetDateTime,
) -> Result<u64, DbError> {
    let released = sqlx::query!(
        "WITH done AS (
             UPDATE sandbox.deliveries SET status = 'DELIVERED', last_result = 'acknowledged', updated_at = $3
             -- Somebody whose lease ran out does not speak for the one who came after.
             WHERE id = $1 AND attempts = $2 AND status = 'PENDING'
             RETURNING id, pay_order_id
         )
         UPDATE sandbox.deliveries AS held SET is_held = false, due_at = $3, updated_at = $3
         FROM done
         WHERE held.pay_order_id = done.pay_order_id AND held.id < done.id AND held.is_held",
        delivery.id,
        delivery.attempts,
        now,
    )
    .execute(conn)
    .await?;
    Ok(released.rows_affected())
}

/// Writes a failed try down: to be tried again at `retry_at`, or given up without one.
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
         WHERE id = $1 AND attempts = $2 AND status = 'PENDING'",
        delivery.id,
        delivery.attempts,
        result,
        retry_at,
        now,
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
