//! Rules and levels.

use time::OffsetDateTime;

use crate::ids::{MerchantId, Sku, UserId};
use crate::infra::db::{Conn, DbError};
use crate::settlement::model::{RebateRule, UserLevel};
use crate::settlement::terms::{Factor, Rate};

/// Sets the share of one thing, or of all of a merchant's others.
pub(in crate::settlement) async fn upsert_rule(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    sku: Option<&Sku>,
    rate: Rate,
    now: OffsetDateTime,
) -> Result<RebateRule, DbError> {
    let rule = sqlx::query_as!(
        RebateRule,
        r#"INSERT INTO rebate_rules (merchant_id, sku, rate, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
           ON CONFLICT (merchant_id, sku) DO UPDATE SET rate = excluded.rate, updated_at = excluded.updated_at
           RETURNING merchant_id AS "merchant_id: MerchantId", sku AS "sku: Sku", rate AS "rate: Rate", updated_at"#,
        merchant_id.as_str(),
        sku.map(Sku::as_str),
        rate as Rate,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(rule)
}

/// A page of a merchant's rules, that of all others first, then by thing.
pub(in crate::settlement) async fn list_rules(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<RebateRule>, DbError> {
    let rules = sqlx::query_as!(
        RebateRule,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", sku AS "sku: Sku", rate AS "rate: Rate", updated_at
           FROM rebate_rules
           WHERE merchant_id = $1 AND ($2::text IS NULL OR coalesce(sku, '') > $2)
           ORDER BY coalesce(sku, '') LIMIT $3"#,
        merchant_id.as_str(),
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rules)
}

/// Sets a user's level.
pub(in crate::settlement) async fn upsert_level(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    user_id: &UserId,
    level: &str,
    factor: Factor,
    now: OffsetDateTime,
) -> Result<UserLevel, DbError> {
    let level = sqlx::query_as!(
        UserLevel,
        r#"INSERT INTO user_levels (merchant_id, user_id, level, factor, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $5)
           ON CONFLICT (merchant_id, user_id) DO UPDATE
           SET level = excluded.level, factor = excluded.factor, updated_at = excluded.updated_at
           RETURNING merchant_id AS "merchant_id: MerchantId", user_id AS "user_id: UserId", level,
                     factor AS "factor: Factor", updated_at"#,
        merchant_id.as_str(),
        user_id.as_str(),
        level,
        factor as Factor,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(level)
}

/// A page of a merchant's users with a level, by user.
pub(in crate::settlement) async fn list_levels(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<UserLevel>, DbError> {
    let levels = sqlx::query_as!(
        UserLevel,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", user_id AS "user_id: UserId", level,
                  factor AS "factor: Factor", updated_at
           FROM user_levels WHERE merchant_id = $1 AND ($2::text IS NULL OR user_id > $2)
           ORDER BY user_id LIMIT $3"#,
        merchant_id.as_str(),
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(levels)
}
