//! The rows of `reconciliation_items`.

use time::OffsetDateTime;

use super::compare::Beside;
use super::runs::Claimed;
use crate::channels::bills::EDGE;
use crate::channels::{StatementKind, TO_OTHERS};
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::money::Currency;
use crate::reconciliation::model::{Class, Item, ItemAction, ItemEvent, ItemStatus};

/// Every column of a difference, between what leads to them and what follows.
macro_rules! items {
    ($head:literal, $tail:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Item,
            $head + r#" item_id, reconciliation_id, channel, class AS "class: Class", kind AS "kind: StatementKind",
                        our_id, channel_id, merchant_id, order_no, ours, theirs, our_status,
                        currency AS "currency: Currency", at, action AS "action: ItemAction", moves_money,
                        status AS "status: ItemStatus", decided_by, outcome, created_at, attempts, version "# + $tail,
            $($argument),+
        )
    };
}
pub(super) use items;

/// Takes differences that are due and that nobody is at, until `until`; first those that wait for no channel. What asks a
/// channel that only others reach (`elsewhere`) is left to them for [`TO_OTHERS`]: behind that they are not there.
pub(in crate::reconciliation) async fn claim_items(
    conn: &mut Conn,
    limit: i64,
    elsewhere: &[&str],
    until: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Vec<Item>, DbError> {
    let mut in_turn = ItemAction::ALL.to_vec();
    in_turn.sort_by_key(|action| action.asks());
    let items = items!(
        "UPDATE reconciliation_items
         SET due_at = $3, version = version + 1
         WHERE item_id = ANY(ARRAY(
             SELECT due.item_id
             -- A plan knows the order of these rows, and so stops where it has enough: what is behind is not locked.
             FROM unnest($4::text[], $6::boolean[]) WITH ORDINALITY AS kind (action, asks, place)
             CROSS JOIN LATERAL (
                 -- What was decided is carried out.
                 SELECT * FROM (SELECT item_id, due_at FROM reconciliation_items AS item
                                WHERE (status = 'APPLYING') IS TRUE AND action = kind.action AND due_at <= $2
                                  AND (NOT kind.asks OR channel <> ALL($5) OR due_at < $7)
                                  -- While its day is begun anew, nobody can say whether it still counts.
                                  AND (SELECT run.status FROM reconciliations AS run
                                       WHERE run.reconciliation_id = item.reconciliation_id) IN ('ACTING', 'DONE')
                                ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS decided
                 UNION ALL
                 -- What is still being compared may turn out to be none, and can be much: only days that are compared are
                 -- looked into.
                 SELECT found.* FROM reconciliations AS run
                 CROSS JOIN LATERAL (SELECT item_id, due_at FROM reconciliation_items AS item
                                     WHERE (item.status = 'PROPOSED') IS TRUE AND item.reconciliation_id = run.reconciliation_id
                                       AND item.action = kind.action AND item.due_at <= $2
                                       AND (NOT kind.asks OR run.channel <> ALL($5) OR item.due_at < $7)
                                     ORDER BY item.due_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS found
                 WHERE run.status = 'ACTING') AS due
             ORDER BY kind.place, due.due_at LIMIT $1))
         RETURNING",
        "",
        limit,
        now,
        until,
        &column(&in_turn, |action| action.as_str()) as &[&str],
        elsewhere as &[&str],
        &column(&in_turn, |action| action.asks()),
        now - TO_OTHERS,
    );
    Ok(items.fetch_all(conn).await?)
}

/// Whether a difference is as it was read, and its day's comparison stands.
pub(in crate::reconciliation) async fn stands(conn: &mut Conn, item: &Item) -> Result<bool, DbError> {
    let stands = sqlx::query_scalar!(
        r#"SELECT (SELECT true FROM reconciliation_items AS item JOIN reconciliations AS run USING (reconciliation_id)
                   WHERE item.item_id = $1 AND item.version = $2 AND run.status IN ('ACTING', 'DONE') LIMIT 1) IS NOT NULL
                  AS "stands!""#,
        item.item_id,
        item.version,
    );
    Ok(stands.fetch_one(conn).await?)
}

/// The day of a difference where its comparison stands, locked: nobody begins it again meanwhile.
pub(in crate::reconciliation) async fn lock_standing(
    tx: &mut Tx,
    item_id: &str,
) -> Result<Option<String>, DbError> {
    let conn: &mut Conn = tx;
    let day = sqlx::query_scalar!(
        "SELECT reconciliation_id FROM reconciliations
         WHERE reconciliation_id = (SELECT reconciliation_id FROM reconciliation_items WHERE item_id = $1)
           AND status IN ('ACTING', 'DONE') FOR SHARE",
        item_id,
    );
    Ok(day.fetch_optional(conn).await?)
}

/// How a difference moves, and why.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconciliation) struct Move<'a> {
    pub(in crate::reconciliation) event: ItemEvent,
    /// Who decided, where a person did.
    pub(in crate::reconciliation) decided_by: Option<&'a str>,
    pub(in crate::reconciliation) outcome: Option<&'a str>,
}

/// Moves a difference as it was read. `false` when that is not how it stands any more.
pub(in crate::reconciliation) async fn move_item(
    tx: &mut Tx,
    item: &Item,
    to: ItemStatus,
    step: Move<'_>,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let moved = sqlx::query!(
        "UPDATE reconciliation_items
         SET status = $4, outcome = coalesce($6, outcome), moves_money = $9, action = $10,
             -- Of whoever decides last; who lets it go again has decided nothing.
             decided_by = CASE WHEN $7 THEN $5 WHEN $4 <> 'WAITING' THEN coalesce($5, decided_by) END,
             decided_at = CASE WHEN $7 THEN $8::timestamptz WHEN $4 <> 'WAITING' THEN decided_at END,
             attempts = CASE WHEN $7 THEN 0 ELSE attempts END,
             -- Whoever works on it keeps it; what a person decides waits for a worker.
             due_at = CASE WHEN $4 = 'APPLYING' AND $5::text IS NULL THEN due_at ELSE $8 END,
             updated_at = $8, version = version + 1
         WHERE item_id = $1 AND status = $2 AND version = $3",
        item.item_id,
        item.status.as_str(),
        item.version,
        to.as_str(),
        step.decided_by,
        step.outcome,
        matches!(step.event, ItemEvent::Decided | ItemEvent::AnswerDecided | ItemEvent::Dismissed),
        now,
        item.moves_money,
        item.action.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// Lets a difference go, to be tried again at `at`.
pub(in crate::reconciliation) async fn release(
    conn: &mut Conn,
    item: &Item,
    outcome: &str,
    at: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE reconciliation_items SET due_at = $3, outcome = $4, attempts = attempts + 1
         WHERE item_id = $1 AND version = $2",
        item.item_id,
        item.version,
        at,
        outcome,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Minor units that were let go by the service itself since then, in a currency. Whoever asks holds the day's cap until
/// the end of the transaction, so two at once cannot both find room.
pub(in crate::reconciliation) async fn spent(
    tx: &mut Tx,
    currency: Currency,
    since: OffsetDateTime,
) -> Result<i64, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('reconciliation.cap'))").execute(&mut *conn).await?;
    let spent = sqlx::query_scalar!(
        r#"SELECT coalesce(sum(coalesce(theirs, ours)), 0)::bigint AS "spent!" FROM reconciliation_items
           WHERE moves_money AND decided_by IS NULL AND decided_at IS NOT NULL AND decided_at >= $1 AND currency = $2"#,
        since,
        currency.as_str(),
    );
    Ok(spent.fetch_one(conn).await?)
}

/// Whether the service still works on differences of a day. The states are a parameter, because the words would let the plan
/// walk what is open of all days.
pub(in crate::reconciliation) async fn has_unfinished(
    conn: &mut Conn,
    reconciliation_id: &str,
) -> Result<bool, DbError> {
    let has_some = sqlx::query_scalar!(
        r#"SELECT (SELECT true FROM reconciliation_items
                   WHERE reconciliation_id = $1 AND status = ANY($2) LIMIT 1) IS NOT NULL AS "has_some!""#,
        reconciliation_id,
        &[ItemStatus::Proposed, ItemStatus::Applying].map(ItemStatus::as_str) as &[&str],
    );
    Ok(has_some.fetch_one(conn).await?)
}

/// The last of the next so many differences of a day; nothing behind the last one.
pub(in crate::reconciliation) async fn end_of_items(
    conn: &mut Conn,
    run: &Claimed,
    after: &str,
    limit: i64,
) -> Result<Option<String>, DbError> {
    let last = sqlx::query_scalar!(
        // By both at once: where one day has nearly all of them, a plan could walk them by their ids.
        "SELECT max(item_id) FROM (SELECT reconciliation_id, item_id FROM reconciliation_items
                                   WHERE (reconciliation_id, item_id) > ($1, $2)
                                   ORDER BY reconciliation_id, item_id LIMIT $3) AS range
         WHERE reconciliation_id = $1",
        run.reconciliation_id,
        after,
        limit,
    );
    Ok(last.fetch_one(conn).await?)
}

/// Open differences of a day, from one to another, that this round did not come upon, so many at most: they are none any more.
/// Locked. What the day does not answer for this time and does not list, what it lists as a day does that was not looked at
/// beside it, and what somebody carried out meanwhile, stays as it is. What was decided and is not carried out yet is none either,
/// nor is what only a statement said that has been replaced, whatever the clock said by which it was. The states are a parameter,
/// as above.
pub(in crate::reconciliation) async fn lock_unseen(
    tx: &mut Tx,
    run: &Claimed,
    beside: &Beside,
    (after, last): (&str, &str),
    limit: i64,
) -> Result<Vec<Item>, DbError> {
    let conn: &mut Conn = tx;
    let (answers_from, answers_until) = beside.answers_for;
    let items = items!(
        "SELECT",
        "FROM reconciliation_items AS item
         CROSS JOIN LATERAL (
             SELECT coalesce((SELECT true FROM statement_lines AS line
                              WHERE line.reconciliation_id = $1 AND line.kind = item.kind
                                AND line.channel_id = nullif(item.channel_id, '') LIMIT 1),
                             (SELECT true FROM statement_lines AS line
                              -- A stranger's number tells nothing beside one of theirs.
                              WHERE line.our_id = CASE WHEN class = 'MISSING_HERE' AND item.channel_id <> '' THEN NULL
                                                       ELSE nullif(item.our_id, '') END AND line.kind <> 'PAYMENT'
                                AND (line.kind = item.kind AND line.reconciliation_id = $1) IS TRUE LIMIT 1),
                             false) AS is_listed) AS day
         WHERE reconciliation_id = $1 AND item_id > $10 AND item_id <= $11 AND seen_round < $2 AND status = ANY($8)
           AND (updated_at <= $4 OR status = 'APPLYING'
                OR class <> 'MISSING_THERE' AND (status = 'PROPOSED' OR NOT day.is_listed)) IS TRUE
           AND CASE WHEN class = 'MISSING_THERE' AND at >= $5 AND (at < $6 OR at >= $7) THEN day.is_listed
                    -- What both days listed is there twice as long as this one lists it, and nobody looked at the other.
                    WHEN also_listed_by IS NOT NULL AND (
                        SELECT true FROM reconciliations AS other
                        WHERE other.reconciliation_id = also_listed_by AND other.reconciliation_id = ANY($9::text[])
                          AND other.compared_at <= $4) IS NULL THEN NOT day.is_listed
                    -- Money that is still not here, and of which another day says the same: this one spoke for both.
                    WHEN class = 'MISSING_HERE' AND kind = 'PAYMENT' THEN
                        (SELECT true FROM statement_lines AS line
                         WHERE line.reconciliation_id = ANY($9::text[]) AND line.kind = 'PAYMENT'
                           AND line.channel_id = item.channel_id
                           AND (line.our_id, line.amount, line.currency) = (item.our_id, item.theirs, item.currency)
                         LIMIT 1) IS NULL
                        OR (SELECT true FROM trades
                            WHERE trades.channel = item.channel AND trades.transaction_id = item.channel_id LIMIT 1)
                    ELSE true END
         ORDER BY item_id LIMIT $3 FOR UPDATE OF item",
        run.reconciliation_id,
        run.round,
        limit,
        run.compared_at,
        run.begins_at - EDGE,
        answers_from,
        answers_until,
        &[ItemStatus::Proposed, ItemStatus::Waiting, ItemStatus::Applying, ItemStatus::Escalated]
            .map(ItemStatus::as_str) as &[&str],
        &[&beside.earlier[..], &beside.later[..]].concat(),
        after,
        last,
    );
    Ok(items.fetch_all(conn).await?)
}

/// A difference, locked.
pub(in crate::reconciliation) async fn lock_item(
    tx: &mut Tx,
    item_id: &str,
) -> Result<Option<Item>, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SELECT item_id FROM reconciliation_items WHERE item_id = $1 FOR UPDATE", item_id)
        .fetch_optional(&mut *conn)
        .await?;
    find_item(conn, item_id).await
}

/// A difference.
pub(in crate::reconciliation) async fn find_item(
    conn: &mut Conn,
    item_id: &str,
) -> Result<Option<Item>, DbError> {
    let item = items!("SELECT", "FROM reconciliation_items WHERE item_id = $1", item_id);
    Ok(item.fetch_optional(conn).await?)
}

/// A page of a day's differences, by their ids.
pub(in crate::reconciliation) async fn list_items(
    conn: &mut Conn,
    reconciliation_id: &str,
    status: Option<ItemStatus>,
    class: Option<Class>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Item>, DbError> {
    let items = items!(
        "SELECT",
        "FROM reconciliation_items
         WHERE reconciliation_id = $1 AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR class = $3)
           AND ($4::text IS NULL OR item_id > $4)
         ORDER BY item_id LIMIT $5",
        reconciliation_id,
        status.map(ItemStatus::as_str),
        class.map(Class::as_str),
        starting_after,
        limit,
    );
    Ok(items.fetch_all(conn).await?)
}

/// Differences that are not at their end, by class: also zero, so that a gauge falls back.
pub(in crate::reconciliation) async fn count_open(conn: &mut Conn) -> Result<Vec<(Class, i64)>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT class AS "class: Class", count(*) AS "count!" FROM reconciliation_items
           WHERE status IN ('PROPOSED', 'WAITING', 'APPLYING', 'ESCALATED') GROUP BY class"#,
    )
    .fetch_all(conn)
    .await?;
    let count = |class: Class| rows.iter().find(|row| row.class == class).map_or(0, |row| row.count);
    Ok(Class::ALL.iter().map(|&class| (class, count(class))).collect())
}
