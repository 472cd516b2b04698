//! The rows of `admin_log`.

use time::OffsetDateTime;

use super::Entry;
use crate::config::Role;
use crate::infra::db::{Conn, DbError};

/// Adds a row.
pub(super) async fn insert(conn: &mut Conn, entry: &Entry<'_>, now: OffsetDateTime) -> Result<(), DbError> {
    let role = match entry.role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
    };
    sqlx::query!(
        "INSERT INTO admin_log (actor, role, action, target, reason, request_id, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        entry.actor,
        role,
        entry.action,
        entry.target,
        entry.reason,
        entry.request_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
