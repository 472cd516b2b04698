//! The rows of `statement_files`.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};

/// Writes a piece of a file.
pub(in crate::reconciliation) async fn insert_part(
    conn: &mut Conn,
    file_id: &str,
    part: i32,
    bytes: &[u8],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO statement_files (file_id, part, bytes, created_at) VALUES ($1, $2, $3, $4)",
        file_id,
        part,
        bytes,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A piece of a file.
pub(in crate::reconciliation) async fn find_part(
    conn: &mut Conn,
    file_id: &str,
    part: i32,
) -> Result<Option<Vec<u8>>, DbError> {
    let part = sqlx::query_scalar!(
        "SELECT bytes FROM statement_files WHERE file_id = $1 AND part = $2",
        file_id,
        part
    );
    Ok(part.fetch_optional(conn).await?)
}

/// How many bytes a file has.
pub(in crate::reconciliation) async fn measure(conn: &mut Conn, file_id: &str) -> Result<u64, DbError> {
    let size = sqlx::query_scalar!(
        r#"SELECT coalesce(sum(octet_length(bytes)), 0)::bigint AS "size!" FROM statement_files WHERE file_id = $1"#,
        file_id,
    );
    Ok(u64::try_from(size.fetch_one(conn).await?).unwrap_or(0))
}

/// Forgets pieces of old files that no open day is read from. Gives how many.
pub(in crate::reconciliation) async fn delete_old_files(
    conn: &mut Conn,
    before: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM statement_files
         WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM statement_files
             WHERE created_at < $1
               AND NOT EXISTS (SELECT 1 FROM reconciliations
                               WHERE reconciliations.file_id = statement_files.file_id AND status <> 'DONE')
             ORDER BY created_at LIMIT $2))",
        before,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
