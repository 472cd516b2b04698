//! The rows of `admin_log`.

use time::OffsetDateTime;

use super::{Entry, LogFilter, Logged};
use crate::config::Role;
use crate::infra::db::{Conn, DbError};

/// Adds a row.
pub(super) async fn insert(conn: &mut Conn, entry: &Entry, now: OffsetDateTime) -> Result<(), DbError> {
    let role = match entry.role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
    };
    sqlx::query!(
        "INSERT INTO admin_log
             (actor, role, action, target, merchant_id, order_no, reason, request_id, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        entry.actor,
        role,
        entry.action,
        entry.target,
        entry.order.as_ref().map(|key| key.merchant_id.as_str()),
        entry.order.as_ref().map(|key| key.order_no.as_str()),
        entry.reason,
        entry.request_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether the same operator did the same to the same thing of an order.
pub(super) async fn has(conn: &mut Conn, entry: &Entry) -> Result<bool, DbError> {
    let found = sqlx::query!(
        "SELECT 1 AS one FROM admin_log
         WHERE merchant_id = $1 AND order_no = $2 AND action = $3 AND target = $4 AND actor = $5",
        entry.order.as_ref().map(|key| key.merchant_id.as_str()),
        entry.order.as_ref().map(|key| key.order_no.as_str()),
        entry.action,
        entry.target,
        entry.actor,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.is_some())
}

/// A page, newest first.
pub(super) async fn list(conn: &mut Conn, filter: &LogFilter<'_>) -> Result<Vec<Logged>, DbError> {
    let rows = sqlx::query_as!(
        Logged,
        "SELECT id AS log_id, actor, role, action, target, merchant_id, order_no, reason, request_id, created_at
         FROM admin_log
         WHERE ($1::text IS NULL OR actor = $1) AND ($2::bigint IS NULL OR id < $2)
         ORDER BY id DESC LIMIT $3",
        filter.actor,
        filter.before,
        filter.limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
