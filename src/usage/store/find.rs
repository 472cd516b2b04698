//! Reading holds.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use crate::ids::{Cycle, HoldId, MerchantId, ProductCode, RequestId, UsageKey, UserId};
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::Patience;
use crate::money::Currency;
use crate::usage::model::{Hold, HoldStatus, Pricing};
use crate::usage::price::Price;

/// Every column of a hold, of what follows.
macro_rules! holds {
    ($tail:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Hold,
            r#"SELECT hold_id AS "hold_id: HoldId", merchant_id AS "merchant_id: MerchantId",
                      request_id AS "request_id: RequestId", user_id AS "user_id: UserId",
                      product_code AS "product_code: ProductCode", idempotency_key AS "idempotency_key: UsageKey",
                      currency AS "currency: Currency", fx_version, cycle AS "cycle: Cycle",
                      pricing AS "pricing: Pricing", unit_price AS "unit_price: Price", cycle_quota, estimated_units,
                      units, counted_units, carries_fee, held, charged, shortfall, late,
                      status AS "status: HoldStatus", extensions, exhausted, recoveries, expires_at, created_at,
                      version, xmin::text::bigint AS "written_by!"
               "# + $tail,
            $($argument),+
        )
    };
}
pub(super) use holds;

/// The hold of that id.
pub(in crate::usage) async fn find(conn: &mut Conn, hold_id: &HoldId) -> Result<Option<Hold>, DbError> {
    Ok(holds!("FROM usage_holds WHERE hold_id = $1", hold_id.as_str()).fetch_optional(conn).await?)
}

/// The holds of these ids.
pub(super) async fn find_all(conn: &mut Conn, hold_ids: &[String]) -> Result<Vec<Hold>, DbError> {
    Ok(holds!("FROM usage_holds WHERE hold_id = ANY($1)", hold_ids).fetch_all(conn).await?)
}

/// Those of these holds that are of the merchants who name them, as they stand at this moment.
pub(super) async fn find_named(
    conn: &mut Conn,
    named: &BTreeSet<(&HoldId, &MerchantId)>,
) -> Result<Vec<Hold>, DbError> {
    let hold_ids: Vec<&str> = named.iter().map(|(hold_id, _)| hold_id.as_str()).collect();
    let merchant_ids: Vec<&str> = named.iter().map(|(_, merchant_id)| merchant_id.as_str()).collect();
    let found = holds!(
        "FROM (SELECT unnest($1::text[]) AS hold, unnest($2::text[]) AS merchant) AS named, usage_holds
         WHERE hold_id = named.hold AND merchant_id = named.merchant
           -- Said once more, so that they are looked up whatever the planner believes of the table.
           AND hold_id = ANY($1)",
        &hold_ids as &[&str],
        &merchant_ids as &[&str],
    );
    Ok(found.fetch_all(conn).await?)
}

/// The same, locked in the order of their ids: who names somebody else's is in nobody's way.
pub(super) async fn lock_all(
    conn: &mut Conn,
    named: &BTreeSet<(&HoldId, &MerchantId)>,
) -> Result<Vec<Hold>, DbError> {
    let hold_ids: Vec<&str> = named.iter().map(|(hold_id, _)| hold_id.as_str()).collect();
    let merchant_ids: Vec<&str> = named.iter().map(|(_, merchant_id)| merchant_id.as_str()).collect();
    let locked = holds!(
        "FROM (SELECT unnest($1::text[]) AS hold, unnest($2::text[]) AS merchant) AS named, usage_holds
         WHERE hold_id = named.hold AND merchant_id = named.merchant
           -- Said once more, so that they are looked up whatever the planner believes of the table.
           AND hold_id = ANY($1)
         ORDER BY hold_id FOR UPDATE OF usage_holds",
        &hold_ids as &[&str],
        &merchant_ids as &[&str],
    );
    Ok(locked.fetch_all(conn).await?)
}

/// A page of those whose time is over, each with when it was, behind the last one of the page before.
pub(in crate::usage) async fn list_due(
    conn: &mut Conn,
    (since, hold_id): (OffsetDateTime, &str),
    until: OffsetDateTime,
    limit: i64,
) -> Result<Vec<(OffsetDateTime, String)>, DbError> {
    let rows = sqlx::query!(
        "SELECT expires_at, hold_id FROM usage_holds
         WHERE status = 'HELD' AND expires_at <= $1 AND (expires_at, hold_id) > ($2, $3)
         ORDER BY expires_at, hold_id LIMIT $4",
        until,
        since,
        hold_id,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.expires_at, row.hold_id)).collect())
}

/// What becomes of due holds that somebody else has in hand.
#[derive(Clone, Copy, Debug)]
pub(in crate::usage) enum InHand {
    /// They are left to another time.
    PassedOver,
    /// They are waited for.
    WaitedFor,
}

impl InHand {
    /// How long whoever frees them waits for a balance or a cycle: a batch has the holds of strangers in hand, and one that is
    /// waited for comes alone.
    pub(in crate::usage) const fn patience(self) -> Patience {
        match self {
            Self::PassedOver => Patience::IN_LANE,
            Self::WaitedFor => Patience::ALONE,
        }
    }
}

/// Locks those of them whose time is over. The state is a parameter, because the word would let the plan walk all that is
/// held.
pub(super) async fn lock_due(
    conn: &mut Conn,
    hold_ids: &[String],
    in_hand: InHand,
    now: OffsetDateTime,
) -> Result<Vec<Hold>, DbError> {
    let due = match in_hand {
        InHand::PassedOver => {
            holds!(
                "FROM usage_holds
                 WHERE hold_id = ANY($1) AND status = $3 AND expires_at <= $2
                 ORDER BY hold_id FOR UPDATE SKIP LOCKED",
                hold_ids,
                now,
                HoldStatus::Held.as_str(),
            )
            .fetch_all(conn)
            .await?
        }
        InHand::WaitedFor => {
            holds!(
                "FROM usage_holds
                 WHERE hold_id = ANY($1) AND status = $3 AND expires_at <= $2
                 ORDER BY hold_id FOR UPDATE",
                hold_ids,
                now,
                HoldStatus::Held.as_str(),
            )
            .fetch_all(conn)
            .await?
        }
    };
    Ok(due)
}

/// How many holds outlive their time by more than that.
pub(in crate::usage) async fn count_leaked(
    conn: &mut Conn,
    expired_before: OffsetDateTime,
) -> Result<i64, DbError> {
    let leaked = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM usage_holds WHERE status = 'HELD' AND expires_at < $1"#,
        expired_before,
    )
    .fetch_one(conn)
    .await?;
    Ok(leaked)
}

/// Forgets up to `limit` messages that were heard before `horizon`.
pub(in crate::usage) async fn delete_marks_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM usage_messages WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM usage_messages WHERE created_at < $1 ORDER BY created_at LIMIT $2))",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
