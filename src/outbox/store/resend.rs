//! Sending again what was published: the relay looks at it once more.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx};
use crate::outbox::model::DeliveryKind;
use crate::outbox::{SendAgain, lane};

/// Locks an event, and says whose it is: of those who want it sent again one comes after the other.
pub(in crate::outbox) async fn lock(
    tx: &mut Tx,
    id: i64,
) -> Result<Option<(Option<String>, Option<String>)>, DbError> {
    let conn: &mut Conn = tx;
    let row = sqlx::query!("SELECT merchant_id, order_no FROM outbox WHERE id = $1 FOR UPDATE", id)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| (row.merchant_id, row.order_no)))
}

/// Locks where locked events stand, so that it stays as the next statement sees it: the relay has looked at them or will,
/// and what came of their deliveries is written down or waits. What has ended is moved by nobody but who has the event.
pub(in crate::outbox) async fn lock_ways(tx: &mut Tx, ids: &[i64]) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "SELECT FROM outbox_queue WHERE is_again = ANY('{false,true}') AND event_id = ANY($1) ORDER BY event_id FOR UPDATE",
        ids
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "SELECT FROM deliveries WHERE event_id = ANY($1) AND deliveries.status = 'PENDING'
         ORDER BY event_id, kind FOR UPDATE",
        ids
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Has locked events sent again, in order and in lanes of their own: one that is published to wherever it goes now, one
/// that is still on its way also to where it ended, or where it ended without arriving. With `only_undelivered` one that
/// has arrived somewhere goes nowhere but where it has not. Gives those of which there was something to send. How long
/// they wait is counted from now on. What has ended on a way that is none of these stays where it is: nobody may ever go on
/// with it.
pub(in crate::outbox) async fn send_again(
    tx: &mut Tx,
    ids: &[i64],
    ways: &[DeliveryKind],
    only_undelivered: bool,
    now: OffsetDateTime,
) -> Result<Vec<i64>, DbError> {
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    let ways = words_of(ways);
    // Locked before this statement began, so that it sees where each of them has ended meanwhile. No joins: their plans
    // could walk.
    let revived = sqlx::query_scalar!(
        r#"WITH again AS (
             UPDATE outbox SET again_at = $3
             WHERE id = ANY($1)
               AND (SELECT queue.event_id FROM outbox_queue AS queue
                    WHERE queue.is_again = ANY('{false,true}') AND queue.event_id = outbox.id LIMIT 1) IS NULL
               AND (SELECT way.event_id FROM deliveries AS way
                    WHERE way.event_id = outbox.id AND way.status = 'PENDING' LIMIT 1) IS NULL
               AND (NOT $2
                    OR (SELECT way.event_id FROM deliveries AS way
                        WHERE way.event_id = outbox.id AND way.status = 'DELIVERED' LIMIT 1) IS NULL
                    -- Where it could not be told it can be told only anew, and then everywhere.
                    OR (SELECT way.event_id FROM deliveries AS way
                        WHERE way.event_id = outbox.id AND way.body = '' LIMIT 1) IS NOT NULL)
             RETURNING id, merchant_id, order_no
           ), queued AS (
             INSERT INTO outbox_queue (is_again, event_id, merchant_id, order_no, queued_at)
             SELECT true, id, merchant_id, order_no, $3 FROM again
           ), revived AS (
             UPDATE deliveries AS delivery
             SET status = 'PENDING', attempts = 0, due_at = $3, leased_until = NULL, last_error = NULL, created_at = $3,
                 updated_at = $3,
                 lane = CASE WHEN right(lane, length($4)) = $4 THEN lane ELSE lane || $4 END
             WHERE delivery.event_id = ANY($1) AND delivery.kind = ANY($5)
               AND ((SELECT way.event_id FROM deliveries AS way
                     WHERE way.event_id = delivery.event_id AND way.status = 'PENDING' LIMIT 1) IS NOT NULL
                    -- What waits for the relay is handed out anew, with all its ways.
                    OR $2 AND (SELECT queue.event_id FROM outbox_queue AS queue
                               WHERE queue.is_again = ANY('{false,true}') AND queue.event_id = delivery.event_id
                               LIMIT 1) IS NULL
                          AND (SELECT way.event_id FROM deliveries AS way
                               WHERE way.event_id = delivery.event_id AND way.status = 'DELIVERED' LIMIT 1) IS NOT NULL)
               AND (delivery.status IN ('DEAD', 'DROPPED') OR delivery.status = 'DELIVERED' AND NOT $2)
               -- What could not be told has nothing to be sent until the relay looks at it anew.
               AND delivery.body <> ''
             RETURNING delivery.event_id
           ), wished AS (
             UPDATE outbox SET again_at = $3 WHERE id = ANY (ARRAY(SELECT event_id FROM revived))
           )
           SELECT id AS "id!" FROM again UNION SELECT event_id FROM revived"#,
        ids,
        only_undelivered,
        now,
        lane::AGAIN,
        &ways as &[&str],
    );
    Ok(revived.fetch_all(conn).await?)
}

fn words_of(ways: &[DeliveryKind]) -> Vec<&'static str> {
    ways.iter().copied().map(DeliveryKind::as_str).collect()
}

/// Has an event that is on its way due at once, with those of its order, also where its endpoint asked for a pause.
pub(in crate::outbox) async fn make_due(tx: &mut Tx, id: i64, now: OffsetDateTime) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH woken AS (
             DELETE FROM resting_lanes
             WHERE lane = ANY(ARRAY(SELECT lane FROM deliveries WHERE event_id = $1 AND status = 'PENDING'))
         )
         UPDATE deliveries AS delivery SET due_at = $2
         FROM (SELECT waiting.ctid AS place
               FROM deliveries AS waiting
               WHERE waiting.status = 'PENDING' AND waiting.due_at > $2
                 -- Two look-ups: a plan of both at once, or of a join, could walk.
                 AND waiting.ctid = ANY (ARRAY(
                     SELECT ctid FROM deliveries WHERE event_id = $1
                     UNION ALL
                     SELECT ctid FROM deliveries
                     WHERE coalesce(status, 'order') = 'PENDING'
                       AND merchant_id = (SELECT merchant_id FROM outbox WHERE id = $1)
                       AND order_no = (SELECT order_no FROM outbox WHERE id = $1)))
               -- Whoever has one of them is writing down what came of it, and holds back what is behind it.
               FOR UPDATE OF waiting SKIP LOCKED) AS waiting
         WHERE delivery.ctid = waiting.place",
        id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Events of a merchant that are sent again by one call.
#[derive(Debug)]
pub(in crate::outbox) struct Page {
    /// Those that can be sent again, locked.
    pub(in crate::outbox) ids: Vec<i64>,
    /// The next page begins behind it: the last one looked at, whether it is one of these or not.
    pub(in crate::outbox) last: Option<i64>,
    /// Whether there may be more behind it.
    pub(in crate::outbox) has_more: bool,
}

/// Looks at the next `look` events of a merchant, as they happened, and locks up to `limit` of them that can be sent again:
/// all, or those that did not arrive somewhere by one of these ways, or nowhere at all.
pub(in crate::outbox) async fn lock_all(
    tx: &mut Tx,
    wanted: &SendAgain,
    ways: &[DeliveryKind],
    look: i64,
    limit: i64,
) -> Result<Page, DbError> {
    let conn: &mut Conn = tx;
    let ways = words_of(ways);
    let page = sqlx::query_as!(
        Page,
        r#"WITH looked_at AS MATERIALIZED (
             -- Nothing but what the index holds. Where they stand is asked behind the limit, which bounds what is looked
             -- at and not only what is found.
             SELECT event.created_at, event.id FROM outbox AS event
             WHERE event.merchant_id = $1 AND event.created_at >= $2
               AND (event.created_at, event.id)
                   > (coalesce((SELECT last.created_at FROM outbox AS last WHERE last.id = $3), $2), $3)
             ORDER BY event.created_at, event.id LIMIT $4
           ), chosen AS MATERIALIZED (
             SELECT event.created_at, event.id FROM looked_at AS event
             -- No joins: their plans could walk.
             WHERE (SELECT queue.event_id FROM outbox_queue AS queue
                    WHERE queue.is_again = ANY('{false,true}') AND queue.event_id = event.id LIMIT 1) IS NULL
               AND (NOT $5 AND (SELECT way.event_id FROM deliveries AS way
                                WHERE way.event_id = event.id AND way.status = 'PENDING' LIMIT 1) IS NULL
                    OR (SELECT way.event_id FROM deliveries AS way
                        WHERE way.event_id = event.id AND way.status IN ('DEAD', 'DROPPED')
                          AND (way.kind = ANY($7)
                               OR (SELECT other.event_id FROM deliveries AS other
                                   WHERE other.event_id = event.id AND other.status IN ('DELIVERED', 'PENDING')
                                   LIMIT 1) IS NULL)
                        LIMIT 1) IS NOT NULL)
             ORDER BY event.created_at, event.id LIMIT $6
           )
           SELECT ARRAY(SELECT locked.id
                        -- By their ids, as by everybody.
                        FROM (SELECT id FROM chosen ORDER BY id) AS one,
                             -- A look-up for each: as a join its plan could walk.
                             LATERAL (SELECT event.id FROM outbox AS event WHERE event.id = one.id
                                      LIMIT 1 FOR UPDATE) AS locked) AS "ids!",
                  -- Where there are as many as may be, what is behind the last of them has yet to be looked at.
                  coalesce((SELECT id FROM chosen ORDER BY created_at, id OFFSET $6 - 1 LIMIT 1),
                           (SELECT id FROM looked_at ORDER BY created_at DESC, id DESC LIMIT 1)) AS "last?",
                  ((SELECT count(*) FROM chosen) = $6 OR (SELECT count(*) FROM looked_at) = $4) AS "has_more!""#,
        wanted.merchant_id.as_str(),
        wanted.since,
        wanted.after.unwrap_or(0),
        look,
        wanted.only_undelivered,
        limit,
        &ways as &[&str],
    )
    .fetch_one(conn)
    .await?;
    Ok(page)
}
