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
