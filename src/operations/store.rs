//! What is read across the tables of all features.

use serde_json::Value;
use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use super::overview::Counted;
use super::sweep::LeftAlone;
use super::timeline::{Place, TimelineEntry, TimelineKind};
use crate::compensation::{Lane, TaskStatus};
use crate::infra::db::{Conn, DbError};
use crate::orders::OrderKey;
use crate::webhooks::InboxId;

/// An entry as it is read.
struct TimelineRow {
    at: OffsetDateTime,
    rank: i32,
    seq: i64,
    kind: TimelineKind,
    subject: String,
    event: String,
    status: Option<String>,
    details: Value,
    /// Of callbacks alone.
    channel: Option<String>,
}

/// What there is about an order behind that place, by one statement.
pub(super) async fn list_timeline(
    conn: &mut Conn,
    key: &OrderKey,
    after: Option<&Place>,
    limit: i64,
) -> Result<Vec<TimelineEntry>, DbError> {
    let rows = sqlx::query_file_as!(
        TimelineRow,
        "src/operations/timeline.sql",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        limit,
        after.map(|place| place.at),
        after.map(|place| place.rank),
        after.map(|place| place.seq),
        after.map(|place| place.subject.as_str()),
    )
    .fetch_all(conn)
    .await?;
    let entry = |row: TimelineRow| {
        let place = Place { at: row.at, rank: row.rank, seq: row.seq, subject: row.subject.clone() };
        // A callback is known by the name that its own route takes.
        let subject = match row.channel {
            Some(channel) => InboxId { channel, event_id: row.subject }.to_string(),
            None => row.subject,
        };
        TimelineEntry {
            at: row.at,
            kind: row.kind,
            subject,
            event: row.event,
            status: row.status,
            details: row.details,
            entry_id: place.to_string(),
        }
    };
    Ok(rows.into_iter().map(entry).collect())
}

/// What has not come to its end, by kind and state: each through the small index that its own duty walks. Counting
/// stops, because a hundred thousand of anything says enough.
pub(super) async fn count_unfinished(conn: &mut Conn) -> Result<Vec<Counted>, DbError> {
    let rows = sqlx::query_as!(
        Counted,
        r#"SELECT thing AS "thing!", status AS "status!", count(*) AS "count!", min(at) AS oldest_at
           FROM (
             (SELECT 'order' AS thing, status, expires_at AS at FROM orders WHERE status = 'PENDING'
              ORDER BY expires_at LIMIT 100000)
             UNION ALL
             (SELECT 'attempt', status, expires_at FROM pay_orders WHERE is_live ORDER BY expires_at LIMIT 100000)
             UNION ALL
             (SELECT 'stray_payment', status, created_at FROM stray_payments WHERE status IN ('HELD', 'REFUNDING')
              ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'refund', status, created_at FROM refunds
              WHERE status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'withdrawal', status, created_at FROM withdrawals
              WHERE status IN ('CREATED', 'DEBITED', 'PAYING', 'REVERSING') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE status IN ('READY', 'RUNNING')
              ORDER BY lane, due_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE coalesce(status, 'id') = 'DEAD'
              ORDER BY id LIMIT 100000)
             UNION ALL
             (SELECT 'reconciliation', status, created_at FROM reconciliations WHERE status <> 'DONE' LIMIT 100000)
             UNION ALL
             (SELECT 'difference', status, created_at FROM reconciliation_items
              WHERE status IN ('PROPOSED', 'WAITING', 'APPLYING', 'ESCALATED') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'exception', status, created_at FROM exceptions WHERE status = 'OPEN' LIMIT 100000)
             UNION ALL
             (SELECT 'callback', verdict, received_at FROM webhook_inbox
              WHERE coalesce(verdict, 'waits') = 'UNMATCHED' ORDER BY received_at LIMIT 100000)
             UNION ALL
             (SELECT 'event', 'NEW', queued_at FROM outbox_queue WHERE NOT is_again ORDER BY event_id LIMIT 100000)
             UNION ALL
             (SELECT 'event', 'NEW', queued_at FROM outbox_queue WHERE is_again ORDER BY event_id LIMIT 100000)
             UNION ALL
             (SELECT 'delivery', status, created_at FROM deliveries WHERE coalesce(status, 'age') = 'PENDING'
              LIMIT 100000)
             UNION ALL
             (SELECT 'delivery', status, created_at FROM deliveries WHERE status = 'DEAD' LIMIT 100000)
           ) AS unfinished
           GROUP BY thing, status ORDER BY thing, status"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Orders made since then, by state.
pub(super) async fn count_orders_since(
    conn: &mut Conn,
    since: OffsetDateTime,
) -> Result<Vec<Counted>, DbError> {
    let rows = sqlx::query_as!(
        Counted,
        r#"SELECT 'order' AS "thing!", status AS "status!", count(*) AS "count!", min(created_at) AS oldest_at
           FROM (SELECT status, created_at FROM orders WHERE created_at >= $1 LIMIT 1000000) AS recent
           GROUP BY status ORDER BY status"#,
        since,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Whether the service runs as its own role.
pub(super) async fn is_guarded(conn: &mut Conn) -> Result<bool, DbError> {
    let is_guarded = sqlx::query_scalar!(r#"SELECT current_user = 'payonce_service' AS "is_guarded!""#);
    Ok(is_guarded.fetch_one(conn).await?)
}

/// Where something stands in the middle: what is to be done about it, where it is found, and how.
pub(super) struct Source {
    pub(super) action: &'static str,
    subject: &'static str,
    order_no: &'static str,
    table: &'static str,
    /// Each `?` is the horizon.
    is_left: &'static str,
}

/// All of them, each looked at by itself and through the small index of its kind: a backlog of one hides nothing of the others.
/// Money first, and last what has a sweep of its own.
pub(super) const SOURCES: [Source; 6] = [
    Source {
        action: "DRIVE_REFUND",
        subject: "refund_id",
        order_no: "order_no",
        table: "refunds",
        is_left: "status IN ('PENDING', 'PROCESSING') AND updated_at <= ?",
    },
    Source {
        action: "DRIVE_WITHDRAWAL",
        subject: "withdrawal_id",
        // It belongs to no order.
        order_no: "NULL",
        table: "withdrawals",
        is_left: "status IN ('DEBITED', 'PAYING') AND updated_at <= ?",
    },
    Source {
        action: "REMATCH_CALLBACK",
        subject: "channel || '/' || event_id",
        order_no: "order_no",
        table: "webhook_inbox",
        is_left: "coalesce(verdict, 'waits') = 'UNMATCHED' AND received_at <= ?",
    },
    Source {
        action: "DRIVE_PAY_ORDER",
        subject: "pay_order_id",
        order_no: "order_no",
        table: "pay_orders",
        is_left: "is_live AND status = 'INIT' AND updated_at <= ?",
    },
    Source {
        action: "CLOSE_PAY_ORDER",
        subject: "pay_order_id",
        order_no: "order_no",
        table: "pay_orders",
        // Whoever closes an order that is due ends its attempt.
        is_left: "is_live AND status = 'PAYING' AND expires_at <= ?
             AND NOT (SELECT orders.status = 'PENDING' AND orders.expires_at <= ? FROM orders
                      WHERE orders.merchant_id = pay_orders.merchant_id AND orders.order_no = pay_orders.order_no)",
    },
    Source {
        action: "EXPIRE_ORDER",
        subject: "merchant_id || ':' || order_no",
        order_no: "order_no",
        table: "orders",
        is_left: "status = 'PENDING' AND expires_at <= ?",
    },
];

impl Source {
    /// Whether anything of it belongs to an order.
    pub(super) fn is_of_orders(&self) -> bool {
        self.order_no != "NULL"
    }

    /// What stands in the middle here, last moved before a horizon, with no living task and no person who was told that its
    /// task was given up. Where an order is given, of that one.
    fn push_left_alone(
        &self,
        query: &mut QueryBuilder<Postgres>,
        of: Option<&OrderKey>,
        horizon: OffsetDateTime,
    ) {
        let Self { action, subject, order_no, table, is_left } = self;
        query.push(format!(
            "SELECT action, subject, merchant_id, order_no
             FROM (SELECT '{action}' AS action, {subject} AS subject, merchant_id, {order_no} AS order_no FROM {table} WHERE "
        ));
        if let Some(key) = of {
            query.push("merchant_id = ").push_bind(key.merchant_id.to_string());
            query.push(" AND order_no = ").push_bind(key.order_no.to_string()).push(" AND ");
        }
        query.push("(");
        for (number, part) in is_left.split('?').enumerate() {
            if number > 0 {
                query.push_bind(horizon);
            }
            query.push(part);
        }
        // What is of one order is found by the order: as a whole, the rest leads to no index.
        query.push(if of.is_some() { ") IS TRUE" } else { ")" });
        query.push(
            ") AS unfinished
             WHERE NOT EXISTS (SELECT 1 FROM compensations AS task
                               WHERE task.subject = unfinished.subject AND task.action = unfinished.action
                                 AND task.status NOT IN ('DONE', 'DEAD'))
               AND NOT EXISTS (SELECT 1 FROM exceptions
                               WHERE exceptions.kind = 'DEAD_TASK' AND exceptions.subject = unfinished.subject
                                 AND exceptions.status = 'OPEN')",
        );
    }
}

/// How much of a source stands in the middle with nothing that drives it; nothing where all is driven.
pub(super) async fn count_left_alone(
    conn: &mut Conn,
    source: &Source,
    horizon: OffsetDateTime,
) -> Result<Option<LeftAlone>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new("SELECT action, count(*) AS count FROM (");
    source.push_left_alone(&mut query, None, horizon);
    query.push(" LIMIT 100000) AS left_alone GROUP BY action");
    Ok(query.build_query_as::<LeftAlone>().fetch_optional(conn).await?)
}

/// Writes tasks for up to `limit` of these things. Gives how many it found, and for how many it wrote one: another
/// sweeper may have been at the same ones.
pub(super) async fn adopt_left_alone(
    conn: &mut Conn,
    (source, of): (&Source, Option<&OrderKey>),
    horizon: OffsetDateTime,
    lane: Lane,
    limit: i64,
    now: OffsetDateTime,
) -> Result<(i64, i64), DbError> {
    let mut query = QueryBuilder::<Postgres>::new("WITH left_alone AS MATERIALIZED (");
    source.push_left_alone(&mut query, of, horizon);
    query.push(" ORDER BY subject LIMIT ").push_bind(limit);
    query.push(
        "), written AS (
             INSERT INTO compensations
                 (kind, action, subject, merchant_id, order_no, lane, due_at, created_at, updated_at)
             SELECT 'REDO_BUSINESS', action, subject, merchant_id, order_no, ",
    );
    query.push_bind(lane.as_str());
    for _ in ["due_at", "created_at", "updated_at"] {
        query.push(", ").push_bind(now);
    }
    query.push(
        " FROM left_alone
             ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING
             RETURNING id
         )
         SELECT (SELECT count(*) FROM left_alone), (SELECT count(*) FROM written)",
    );
    Ok(query.build_query_as::<(i64, i64)>().fetch_one(conn).await?)
}

/// What a page of tasks that were given up came to.
pub(super) struct SettledPage {
    /// Those that are done now.
    pub(super) settled: i64,
    /// What the last of all was about; nothing where none was left.
    pub(super) last: Option<String>,
}

/// Ends what was given up about the next things behind `after`, up to `limit` tasks and those of the last thing, where it has
/// ended since; and resolves what is open about it. What has ended stays so: nothing is locked for it.
pub(super) async fn finish_given_up(
    conn: &mut Conn,
    after: &str,
    limit: i64,
    now: OffsetDateTime,
) -> Result<SettledPage, DbError> {
    let page = sqlx::query_file_as!(
        SettledPage,
        "src/operations/finish_given_up.sql",
        after,
        limit,
        now,
        TaskStatus::Dead.as_str(),
    );
    Ok(page.fetch_one(conn).await?)
}

/// What the alerts look at.
pub(super) struct Figures {
    pub(super) orders_stuck: i64,
    pub(super) tasks_dead: i64,
    pub(super) exceptions_open: i64,
}

/// Reads them, each through a small index, and no more than 100,000 rows of it: of what was given up the latest.
pub(super) async fn read_figures(conn: &mut Conn, now: OffsetDateTime) -> Result<Figures, DbError> {
    let figures = sqlx::query_as!(
        Figures,
        r#"SELECT (SELECT count(*) FROM (SELECT 1 FROM orders WHERE status = 'PENDING'
                                           AND expires_at < $1::timestamptz - interval '60 s' LIMIT 100000) AS stuck)
                      AS "orders_stuck!",
                  -- What a person has seen to alarms nobody any more.
                  (SELECT count(*) FROM (SELECT subject FROM compensations WHERE coalesce(status, 'id') = 'DEAD'
                                         ORDER BY id DESC LIMIT 100000) AS task
                   WHERE (SELECT 1 FROM exceptions AS open
                          WHERE open.subject = task.subject AND open.kind = 'DEAD_TASK' AND open.status = 'OPEN'
                          LIMIT 1) IS NOT NULL) AS "tasks_dead!",
                  (SELECT count(*) FROM (SELECT 1 FROM exceptions WHERE status = 'OPEN' LIMIT 100000) AS open)
                      AS "exceptions_open!""#,
        now,
    );
    Ok(figures.fetch_one(conn).await?)
}
