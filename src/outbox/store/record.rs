//! What a try came to.

use serde_json::Value;
use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met, places};
use crate::outbox::model::{Delivery, EventDeliveryStatus};

/// How a try leaves its delivery.
#[derive(Clone, Debug)]
pub(in crate::outbox) struct Ending {
    pub(in crate::outbox) status: EventDeliveryStatus,
    /// When it is tried again, where it is.
    pub(in crate::outbox) due_at: Option<OffsetDateTime>,
    /// Until when its endpoint wants to be left alone, where it said so.
    pub(in crate::outbox) rests_until: Option<OffsetDateTime>,
    pub(in crate::outbox) error: Option<String>,
    /// Whether it uses up a try.
    pub(in crate::outbox) counts: bool,
}

/// Writes down what a try came to. `false` when the delivery is in somebody else's hand by now: then that one's outcome
/// counts.
#[derive(Clone, Debug)]
pub(in crate::outbox) struct Record {
    pub(in crate::outbox) delivery: Delivery,
    pub(in crate::outbox) ending: Ending,
    /// For the delivery's log.
    pub(in crate::outbox) attempt: Value,
    pub(in crate::outbox) now: OffsetDateTime,
}

impl Command for Record {
    const NAME: &'static str = "outbox.record";
    type Outcome = bool;

    /// Every batch ends deliveries in the order of their events, as whoever has them sent again locks them.
    fn order(&self) -> Option<String> {
        Some(format!("{:020}", self.delivery.event_id))
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let written = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 -- A crash of the database may take this back: then the delivery is tried once more when its lease is
                 -- over, which is harmless, as it may always arrive more than once.
                 SELECT set_config('lock_timeout', $10, true), set_config('synchronous_commit', 'off', true)
               ), ended AS (
                 UPDATE deliveries AS delivery
                 SET status = new.status, attempts = delivery.attempts + new.counts,
                     due_at = coalesce(new.due_at, delivery.due_at), leased_until = NULL, last_error = new.error,
                     -- The last twenty tries.
                     log = CASE WHEN jsonb_array_length(delivery.log) < 20 THEN delivery.log
                                ELSE delivery.log - 0 END || new.attempt,
                     updated_at = new.now
                 FROM (SELECT unnest($1::bigint[]) AS event_id, unnest($2::text[]) AS kind,
                              unnest($3::timestamptz[]) AS lease, unnest($4::text[]) AS status,
                              unnest($5::timestamptz[]) AS due_at, unnest($6::text[]) AS error,
                              unnest($7::integer[]) AS counts, unnest($8::jsonb[]) AS attempt,
                              unnest($9::timestamptz[]) AS now, unnest($11::bigint[]) AS place) AS new,
                      patient,
                      -- A look-up for each: as a join its plan could walk.
                      LATERAL (SELECT held.event_id, held.kind FROM deliveries AS held
                               WHERE held.event_id = new.event_id AND held.kind = new.kind
                                 AND held.leased_until = new.lease
                               LIMIT 1 FOR UPDATE) AS held
                 -- By its key: whoever was waited for may have moved the row to another place.
                 WHERE delivery.event_id = held.event_id AND delivery.kind = held.kind
                   -- Bounds what is looked through where the planner believes that the table is empty and begins with it.
                   AND delivery.event_id = ANY ($1)
                 RETURNING new.place
               )
               SELECT place AS "place!" FROM ended"#,
            &column(batch, |new| new.delivery.event_id),
            &column(batch, |new| new.delivery.kind.as_str()) as &[&str],
            &column(batch, |new| new.delivery.leased_until),
            &column(batch, |new| new.ending.status.as_str()) as &[&str],
            &column(batch, |new| new.ending.due_at) as &[Option<OffsetDateTime>],
            &column(batch, |new| new.ending.error.as_deref()) as &[Option<&str>],
            &column(batch, |new| i32::from(new.ending.counts)),
            &column(batch, |new| new.attempt.clone()),
            &column(batch, |new| new.now),
            patience.millis(),
            &places(batch.len()),
        )
        .fetch_all(&mut *conn)
        .await?;
        let met = met(batch.len(), written);
        hold_back(batch, &met, conn).await?;
        super::rest::rest(batch, conn).await?;
        Ok(met)
    }
}

/// What waits behind a delivery that failed need not be looked at before it is tried again. That holds only of what was
/// met, and only as long as nobody has it sent sooner.
async fn hold_back(batch: &[Record], met: &[bool], conn: &mut Conn) -> Result<(), DbError> {
    let met = batch.iter().zip(met).filter_map(|(record, is_met)| is_met.then_some(record));
    let failed: Vec<&Record> = met.filter(|record| record.ending.due_at.is_some()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE deliveries AS later SET due_at = failed.due_at
         FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no, unnest($3::text[]) AS kind,
                      unnest($4::bigint[]) AS event_id, unnest($5::timestamptz[]) AS due_at) AS failed,
              -- The limit keeps it a look-up for each: as a join its plan could walk. What moved meanwhile is left.
              LATERAL (SELECT held.event_id FROM deliveries AS held
                       WHERE held.event_id = failed.event_id AND held.kind = failed.kind AND held.status = 'PENDING'
                         AND held.due_at = failed.due_at AND held.leased_until IS NULL
                       LIMIT 1) AS held,
              LATERAL (SELECT waiting.ctid AS place FROM deliveries AS waiting
                       WHERE waiting.merchant_id = failed.merchant_id AND waiting.order_no = failed.order_no
                         AND waiting.kind = failed.kind AND waiting.event_id > failed.event_id
                         AND coalesce(waiting.status, 'order') = 'PENDING' AND waiting.due_at < failed.due_at
                       -- Whoever has one of them knows better; it is tried in vain at worst.
                       LIMIT 1000 FOR UPDATE SKIP LOCKED) AS behind
         WHERE later.ctid = behind.place",
        &column(&failed, |record| record.delivery.merchant_id.as_deref()) as &[Option<&str>],
        &column(&failed, |record| record.delivery.order_no.as_deref()) as &[Option<&str>],
        &column(&failed, |record| record.delivery.kind.as_str()) as &[&str],
        &column(&failed, |record| record.delivery.event_id),
        &column(&failed, |record| record.ending.due_at) as &[Option<OffsetDateTime>],
    )
    .execute(conn)
    .await?;
    Ok(())
}
