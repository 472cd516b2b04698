//! The rows of `withdrawals`, `withdrawal_legs` and `withdrawal_history`.

use std::collections::HashMap;

use time::OffsetDateTime;

use super::find::WithdrawalFilter;
use super::model::{Leg, LegKind, LegStatus, Withdrawal, WithdrawalEvent, WithdrawalStatus};
use crate::ids::{MerchantId, UserId, WithdrawalId, WithdrawalNo};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row, in_state};
use crate::money::Currency;

/// Writes a withdrawal whose money is set aside by the same transaction: its birth and its debit.
pub(super) async fn insert(tx: &mut Tx, new: &Withdrawal, legs: &[Leg]) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH withdrawal AS (
             INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel,
                                      account, status, created_at, updated_at, version)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'DEBITED', $9, $9, 2)
         ), history AS (
             INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
             VALUES ($1, 1, NULL, 'CREATED', 'CREATED', $9), ($1, 2, 'CREATED', 'DEBITED', 'DEBITED', $9)
         )
         INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
         SELECT $1, unnest($10::text[]), unnest($11::text[]), $9, $9",
        new.withdrawal_id.as_str(),
        new.merchant_id.as_str(),
        new.withdrawal_no.as_str(),
        new.user_id.as_str(),
        new.amount,
        new.currency.as_str(),
        new.channel,
        new.account,
        new.created_at,
        &legs.iter().map(|leg| leg.leg.as_str()).collect::<Vec<_>>() as &[&str],
        &legs.iter().map(|leg| leg.status.as_str()).collect::<Vec<_>>() as &[&str],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// One step of a withdrawal, and of the leg that takes it.
#[derive(Clone, Debug)]
pub(super) struct Move<'a> {
    event: WithdrawalEvent,
    leg: LegKind,
    leg_status: LegStatus,
    failure: Option<&'a str>,
    channel_payout_id: Option<&'a str>,
}

impl<'a> Move<'a> {
    pub(super) const fn to(event: WithdrawalEvent, leg: LegKind, leg_status: LegStatus) -> Self {
        Self { event, leg, leg_status, failure: None, channel_payout_id: None }
    }

    pub(super) const fn because(self, failure: &'a str) -> Self {
        Self { failure: Some(failure), ..self }
    }

    pub(super) const fn known_as(self, channel_payout_id: &'a str) -> Self {
        Self { channel_payout_id: Some(channel_payout_id), ..self }
    }
}

/// Moves a withdrawal that is locked along its table. Gives it as it stands then.
pub(super) async fn move_locked(
    tx: &mut Tx,
    from: &Withdrawal,
    step: &Move<'_>,
    now: OffsetDateTime,
) -> Result<Withdrawal, DbError> {
    let Some(to) = from.status.after(step.event) else { return Err(DbError::UnexpectedRows(0)) };
    let conn: &mut Conn = tx;
    let moved = sqlx::query!(
        "WITH moved AS (
             UPDATE withdrawals
             SET status = $3, failure = coalesce($4, failure), channel_payout_id = coalesce($5, channel_payout_id),
                 version = version + 1, updated_at = $6
             WHERE withdrawal_id = $1 AND status = $2
             RETURNING withdrawal_id, version
         ), leg AS (
             INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
             SELECT withdrawal_id, $8, $9, $6, $6 FROM moved
             ON CONFLICT (withdrawal_id, leg)
                 DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at
         )
         INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
         SELECT withdrawal_id, version, $2, $3, $7, $6 FROM moved",
        from.withdrawal_id.as_str(),
        from.status.as_str(),
        to.as_str(),
        step.failure,
        step.channel_payout_id,
        now,
        step.event.as_str(),
        step.leg.as_str(),
        step.leg_status.as_str(),
    )
    .execute(conn)
    .await?;
    expect_one_row(&moved)?;
    Ok(Withdrawal { status: to, ..from.clone() })
}

/// Notes of a locked withdrawal, whose money was given back, or came back, by which number the channel made it after all.
pub(super) async fn set_made_after_all(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    channel_payout_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE withdrawals SET channel_payout_id = $2, returned_at = NULL, updated_at = $3
             WHERE withdrawal_id = $1 AND status IN ('SUCCEEDED', 'REVERSED')
               AND (channel_payout_id IS NULL OR returned_at IS NOT NULL)",
            withdrawal.withdrawal_id.as_str(),
            channel_payout_id,
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Notes of a locked withdrawal, whose money had gone out, that it came back: its leg back to the user is done. When it last went
/// out stays, because statements are compared by that.
pub(super) async fn set_returned(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "WITH returned AS (
                 UPDATE withdrawals SET returned_at = $2, returned_times = returned_times + 1
                 WHERE withdrawal_id = $1
                   -- Found by its id alone: by when it went out a plan would walk all that did.
                   AND (status IN ('SUCCEEDED', 'REVERSED') AND channel_payout_id IS NOT NULL AND returned_at IS NULL) IS TRUE
                 RETURNING withdrawal_id
             )
             INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
             SELECT withdrawal_id, 'REVERSAL', 'SUCCEEDED', $2, $2 FROM returned
             ON CONFLICT (withdrawal_id, leg) DO UPDATE SET updated_at = excluded.updated_at",
            withdrawal.withdrawal_id.as_str(),
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// The withdrawal of that id.
pub(super) async fn find(conn: &mut Conn, withdrawal_id: &str) -> Result<Option<Withdrawal>, DbError> {
    let found = sqlx::query_as!(
        Withdrawal,
        r#"SELECT withdrawal_id AS "withdrawal_id: WithdrawalId", merchant_id AS "merchant_id: MerchantId",
                  withdrawal_no AS "withdrawal_no: WithdrawalNo", user_id AS "user_id: UserId", amount,
                  currency AS "currency: Currency", channel, account, status AS "status: WithdrawalStatus",
                  failure, channel_payout_id, returned_at, returned_times, created_at
           FROM withdrawals WHERE withdrawal_id = $1"#,
        withdrawal_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found)
}

/// The same, locked.
pub(crate) async fn lock(tx: &mut Tx, withdrawal_id: &str) -> Result<Option<Withdrawal>, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SELECT 1 AS one FROM withdrawals WHERE withdrawal_id = $1 FOR UPDATE", withdrawal_id)
        .fetch_optional(&mut *conn)
        .await?;
    find(conn, withdrawal_id).await
}

/// The withdrawal of that number of a merchant.
pub(super) async fn find_by_number(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    withdrawal_no: &WithdrawalNo,
) -> Result<Option<Withdrawal>, DbError> {
    let found = sqlx::query_as!(
        Withdrawal,
        r#"SELECT withdrawal_id AS "withdrawal_id: WithdrawalId", merchant_id AS "merchant_id: MerchantId",
                  withdrawal_no AS "withdrawal_no: WithdrawalNo", user_id AS "user_id: UserId", amount,
                  currency AS "currency: Currency", channel, account, status AS "status: WithdrawalStatus",
                  failure, channel_payout_id, returned_at, returned_times, created_at
           FROM withdrawals WHERE merchant_id = $1 AND withdrawal_no = $2"#,
        merchant_id.as_str(),
        withdrawal_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(found)
}

/// The ids of the withdrawals of that number, of one merchant or of whichever; two already say that it is ambiguous.
pub(super) async fn list_ids_of_number(
    conn: &mut Conn,
    merchant_id: Option<&MerchantId>,
    withdrawal_no: &WithdrawalNo,
) -> Result<Vec<String>, DbError> {
    let ids = sqlx::query_scalar!(
        "SELECT withdrawal_id FROM withdrawals
         WHERE withdrawal_no = $2 AND merchant_id = coalesce($1, merchant_id) LIMIT 2",
        merchant_id.map(MerchantId::as_str),
        withdrawal_no.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// A page of withdrawals, newest first. Put together from what is asked for, so that it costs what it shows.
pub(super) async fn list(
    conn: &mut Conn,
    filter: WithdrawalFilter<'_>,
    limit: i64,
) -> Result<Vec<Withdrawal>, DbError> {
    use WithdrawalStatus::{Created, Debited, Paying, Reversing};
    let (mut query, hidden) = in_state(
        "SELECT withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status, failure,
                channel_payout_id, returned_at, returned_times, created_at
         FROM withdrawals",
        filter.status,
        &[Created, Debited, Paying, Reversing],
    );
    // In the words of the indexes of a merchant's, in which no other index has them.
    let mut key = format!("withdrawal_id{hidden}");
    if let Some(merchant_id) = filter.merchant_id {
        key.push_str(" || ''");
        query.push(" AND merchant_id || '' = ").push_bind(merchant_id.as_str());
    }
    if let Some(user_id) = filter.user_id {
        query.push(" AND user_id = ").push_bind(user_id.as_str());
    }
    if let Some(after) = filter.starting_after {
        query.push(format_args!(" AND {key} < ")).push_bind(after);
    }
    query.push(format_args!(" ORDER BY {key} DESC LIMIT ")).push_bind(limit);
    Ok(query.build_query_as::<Withdrawal>().fetch_all(conn).await?)
}

/// The legs of withdrawals, each one's in their order.
pub(super) async fn list_legs(
    conn: &mut Conn,
    withdrawal_ids: &[&str],
) -> Result<HashMap<String, Vec<Leg>>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT withdrawal_id, leg AS "leg: LegKind", status AS "status: LegStatus", created_at, updated_at
           FROM withdrawal_legs WHERE withdrawal_id = ANY ($1)
           ORDER BY array_position(ARRAY['DEBIT', 'PAYOUT', 'REVERSAL'], leg)"#,
        withdrawal_ids as &[&str],
    )
    .fetch_all(conn)
    .await?;
    let mut legs = HashMap::<String, Vec<Leg>>::new();
    for row in rows {
        let leg =
            Leg { leg: row.leg, status: row.status, created_at: row.created_at, updated_at: row.updated_at };
        legs.entry(row.withdrawal_id).or_default().push(leg);
    }
    Ok(legs)
}
