//! The rows of `exceptions`.

use time::OffsetDateTime;

use super::model::{BY_ITSELF, Exception, ExceptionAction, ExceptionKind, ExceptionStatus, NewException};
use crate::ids::Ids;
use crate::infra::db::{Conn, DbError, StatePage, Tx, expect_one_row};

/// Characters behind which an exception tells no more of what came between the first and the last.
const MOST_TOLD: i32 = 4_000;

/// Opens an exception, unless the same one is open already. Somebody may be resolving that in this moment, and has not seen
/// what is told here: it is waited for, and where it is resolved then, this one is opened beside it.
pub(crate) async fn open_in_tx(
    tx: &mut Tx,
    ids: &Ids,
    exception: &NewException<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    insert(tx, ids, exception, false, now).await
}

/// The same; what is open already tells of this, too, once for the same words: of what came first, and of what came last.
pub(crate) async fn tell_in_tx(
    tx: &mut Tx,
    ids: &Ids,
    exception: &NewException<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    insert(tx, ids, exception, true, now).await
}

async fn insert(
    tx: &mut Tx,
    ids: &Ids,
    exception: &NewException<'_>,
    is_told_of_too: bool,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let exception_id = ids.exception();
    sqlx::query!(
        "INSERT INTO exceptions AS open
             (exception_id, kind, merchant_id, order_no, subject, detail, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         -- What is open is locked, also where it stays as it is: DO NOTHING would wait for nobody.
         ON CONFLICT (kind, subject) WHERE status = 'OPEN' DO UPDATE
         SET detail = left(open.detail, greatest($8 - length(excluded.detail), $8 / 2)) || '; ' || excluded.detail,
             updated_at = excluded.updated_at
         WHERE $9 AND position(excluded.detail IN open.detail) = 0",
        exception_id.as_str(),
        exception.kind.as_str(),
        exception.merchant_id,
        exception.order_no,
        exception.subject,
        exception.detail,
        now,
        MOST_TOLD,
        is_told_of_too,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Resolves whatever is open, or what is of one kind, about a thing that came to its end by itself.
pub(crate) async fn settle_in_tx(
    tx: &mut Tx,
    subject: &str,
    kind: Option<ExceptionKind>,
    action: ExceptionAction,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    settle_by_in_tx(tx, subject, kind, action, BY_ITSELF, now).await
}

/// The same about a thing that somebody brought to its end, for a reason.
pub(crate) async fn settle_by_in_tx(
    tx: &mut Tx,
    subject: &str,
    kind: Option<ExceptionKind>,
    action: ExceptionAction,
    (resolved_by, reason): (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "UPDATE exceptions
         SET status = 'RESOLVED', action = $2, resolved_by = $5, reason = $6, updated_at = $3
         WHERE subject = $1 AND status = 'OPEN' AND ($4::text IS NULL OR kind = $4)",
        subject,
        action.as_str(),
        now,
        kind.map(ExceptionKind::as_str),
        resolved_by,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Resolves what is open of one kind about many things that go on, or that somebody brought to their end.
pub(crate) async fn settle_all_in_tx(
    tx: &mut Tx,
    subjects: &[String],
    kind: ExceptionKind,
    (resolved_by, reason): (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "UPDATE exceptions
         SET status = 'RESOLVED', action = 'NONE', resolved_by = $4, reason = $5, updated_at = $3
         WHERE kind = $2 AND subject = ANY($1) AND status = 'OPEN'",
        subjects,
        kind.as_str(),
        now,
        resolved_by,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Locks what is open of one kind about these things, and gives those about which something is.
pub(crate) async fn lock_open(
    tx: &mut Tx,
    subjects: &[String],
    kind: ExceptionKind,
) -> Result<Vec<String>, DbError> {
    let conn: &mut Conn = tx;
    let open = sqlx::query_scalar!(
        "SELECT subject FROM exceptions WHERE kind = $2 AND subject = ANY($1) AND status = 'OPEN'
         ORDER BY subject FOR UPDATE",
        subjects,
        kind.as_str(),
    );
    Ok(open.fetch_all(conn).await?)
}

/// Whether a person is shown something of that kind about a thing of an order, or was.
pub(crate) async fn was_shown(
    conn: &mut Conn,
    (merchant_id, order_no): (&str, &str),
    subject: &str,
    kind: ExceptionKind,
) -> Result<bool, DbError> {
    let was_shown = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM exceptions
                          WHERE merchant_id = $1 AND order_no = $2 AND subject = $3 AND kind = $4) AS "was_shown!""#,
        merchant_id,
        order_no,
        subject,
        kind.as_str(),
    );
    Ok(was_shown.fetch_one(conn).await?)
}

/// Whether a person was shown something of that kind, about a thing of no order, later than that.
pub(crate) async fn was_shown_since(
    conn: &mut Conn,
    subject: &str,
    kind: ExceptionKind,
    since: OffsetDateTime,
) -> Result<bool, DbError> {
    let was_shown = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM exceptions
                          WHERE merchant_id IS NULL AND order_no IS NULL AND subject = $1 AND kind = $2
                            AND created_at > $3) AS "was_shown!""#,
        subject,
        kind.as_str(),
        since,
    );
    Ok(was_shown.fetch_one(conn).await?)
}

/// What an exception is about; that never changes.
pub(crate) async fn find_subject(conn: &mut Conn, exception_id: &str) -> Result<Option<String>, DbError> {
    let subject = sqlx::query_scalar!("SELECT subject FROM exceptions WHERE exception_id = $1", exception_id)
        .fetch_optional(conn)
        .await?;
    Ok(subject)
}

/// Locks an exception for a decision.
pub(crate) async fn lock(tx: &mut Tx, exception_id: &str) -> Result<Option<Exception>, DbError> {
    let conn: &mut Conn = tx;
    let row = sqlx::query_as!(
        Exception,
        r#"SELECT exception_id, kind AS "kind: ExceptionKind", merchant_id, order_no, subject, detail,
                  status AS "status: ExceptionStatus", action AS "action: ExceptionAction", resolved_by, reason,
                  created_at
           FROM exceptions WHERE exception_id = $1 FOR UPDATE"#,
        exception_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row)
}

/// Writes a person's decision down.
pub(crate) async fn resolve_in_tx(
    tx: &mut Tx,
    exception_id: &str,
    action: ExceptionAction,
    resolved_by: &str,
    reason: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE exceptions
             SET status = 'RESOLVED', action = $2, resolved_by = $3, reason = $4, updated_at = $5
             WHERE exception_id = $1 AND status = $6",
            exception_id,
            action.as_str(),
            resolved_by,
            reason,
            now,
            ExceptionStatus::Open.as_str(),
        )
        .execute(conn)
        .await?,
    )
}

/// A page of exceptions, newest first: those before `starting_after`, which is an id of the page before.
pub(crate) async fn list(
    conn: &mut Conn,
    status: Option<ExceptionStatus>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Exception>, DbError> {
    let few = &[ExceptionStatus::Open];
    let mut query = StatePage { key: "exception_id", status, few, starting_after, limit }.of(
        "SELECT exception_id, kind, merchant_id, order_no, subject, detail, status, action, resolved_by, reason,
                created_at
         FROM exceptions",
    );
    Ok(query.build_query_as::<Exception>().fetch_all(conn).await?)
}
