//! The rows of `merchants`, `api_keys` and `skus`.

use time::OffsetDateTime;

use super::keys::Known;
use super::model::{ApiKey, KeyKind, Merchant, NewMerchant, SkuStock};
use super::skus::NewStock;
use crate::ids::{MerchantId, Sku};
use crate::infra::db::{Conn, DbError, Tx};
use crate::refunds::StrayPolicy;

/// Writes a new merchant.
pub(super) async fn insert(
    tx: &mut Tx,
    new: &NewMerchant,
    notify_secret: &[u8],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO merchants (merchant_id, name, stray_money, notify_url, notify_secret, refund_approval_above,
                                created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)",
        new.merchant_id.as_str(),
        new.name,
        new.stray_money.as_str(),
        new.notify_url,
        notify_secret,
        new.refund_approval_above,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes a new key, hashed.
pub(super) async fn insert_key(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    kind: KeyKind,
    hash: &[u8],
    hint: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO api_keys (merchant_id, kind, key_hash, hint, created_at) VALUES ($1, $2, $3, $4, $5)",
        merchant_id.as_str(),
        kind.as_str(),
        hash,
        hint,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Keeps others from changing a merchant's keys and secret until this transaction ends. `false` when there is no such merchant.
pub(super) async fn lock(tx: &mut Tx, merchant_id: &MerchantId) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    // What only names the merchant, such as a new order, does not wait for it.
    let locked =
        sqlx::query!("SELECT FROM merchants WHERE merchant_id = $1 FOR NO KEY UPDATE", merchant_id.as_str());
    Ok(locked.execute(conn).await?.rows_affected() == 1)
}

/// Lets a merchant's present keys of that kind, or of both, end at `at`, unless they end sooner.
pub(super) async fn expire_keys(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    kind: Option<KeyKind>,
    at: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "UPDATE api_keys SET expires_at = $2
         WHERE merchant_id = $1 AND (expires_at IS NULL OR expires_at > $2) AND ($3::text IS NULL OR kind = $3)",
        merchant_id.as_str(),
        at,
        kind.map(KeyKind::as_str),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether a merchant was given this key, be it that it has ended.
pub(super) async fn has_key(conn: &mut Conn, merchant_id: &MerchantId, hash: &[u8]) -> Result<bool, DbError> {
    let found = sqlx::query!(
        "SELECT FROM api_keys WHERE key_hash = $1 AND merchant_id = $2",
        hash,
        merchant_id.as_str(),
    );
    Ok(found.fetch_optional(conn).await?.is_some())
}

/// Whose key this is, and until when.
pub(super) async fn find_key(
    conn: &mut Conn,
    hash: &[u8],
    now: OffsetDateTime,
) -> Result<Option<Known>, DbError> {
    let known = sqlx::query_as!(
        Known,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", kind AS "kind: KeyKind", expires_at
           FROM api_keys WHERE key_hash = $1 AND (expires_at IS NULL OR expires_at > $2)"#,
        hash,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(known)
}

/// A page of a merchant's keys, newest first: those before `before`.
pub(super) async fn list_keys(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    before: Option<i64>,
    limit: i64,
    now: OffsetDateTime,
) -> Result<Vec<ApiKey>, DbError> {
    let keys = sqlx::query_as!(
        ApiKey,
        r#"SELECT key_id, kind AS "kind: KeyKind", hint, created_at, expires_at,
                  coalesce(expires_at > $4, true) AS "works!"
           -- All of the merchant's, which are few: no plan goes through the keys of others until it has enough.
           FROM (SELECT * FROM api_keys WHERE merchant_id = $1 OFFSET 0) AS own
           WHERE $2::bigint IS NULL OR key_id < $2
           ORDER BY key_id DESC LIMIT $3"#,
        merchant_id.as_str(),
        before,
        limit,
        now,
    );
    Ok(keys.fetch_all(conn).await?)
}

/// Whether there is such a merchant.
pub(super) async fn exists(conn: &mut Conn, merchant_id: &MerchantId) -> Result<bool, DbError> {
    let found = sqlx::query!("SELECT FROM merchants WHERE merchant_id = $1", merchant_id.as_str());
    Ok(found.fetch_optional(conn).await?.is_some())
}

/// Another merchant than this one. The schema may be of an older version, or not be there.
pub(super) async fn find_other(conn: &mut Conn, merchant_id: &MerchantId) -> Result<Option<String>, DbError> {
    let is_there = sqlx::query_scalar!(r#"SELECT to_regclass('merchants') IS NOT NULL AS "is_there!""#);
    if !is_there.fetch_one(&mut *conn).await? {
        return Ok(None);
    }
    let other = sqlx::query_scalar!(
        "SELECT merchant_id FROM merchants WHERE merchant_id <> $1 LIMIT 1",
        merchant_id.as_str(),
    );
    Ok(other.fetch_optional(conn).await?)
}

/// A page of merchants, by id.
pub(super) async fn list(
    conn: &mut Conn,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Merchant>, DbError> {
    let merchants = sqlx::query_as!(
        Merchant,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", name, stray_money AS "stray_money: StrayPolicy",
                  notify_url, refund_approval_above, created_at
           FROM merchants WHERE $1::text IS NULL OR merchant_id > $1 ORDER BY merchant_id LIMIT $2"#,
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(merchants)
}

/// Makes a thing known, of which there is nothing yet.
pub(super) async fn make_known(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    sku: &Sku,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO skus (merchant_id, sku, stock, created_at, updated_at) VALUES ($1, $2, 0, $3, $3)
         ON CONFLICT (merchant_id, sku) DO NOTHING",
        merchant_id.as_str(),
        sku.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Sets the stock of a thing; `None` when there is not as much as expected. The CHECK refuses less than is held.
pub(super) async fn save_stock(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    sku: &Sku,
    wished: NewStock,
    now: OffsetDateTime,
) -> Result<Option<SkuStock>, DbError> {
    let set = sqlx::query_as!(
        SkuStock,
        "UPDATE skus SET stock = $3, updated_at = $5
         WHERE merchant_id = $1 AND sku = $2 AND ($4::bigint IS NULL OR stock = $4)
         RETURNING merchant_id, sku, stock, lock_stock",
        merchant_id.as_str(),
        sku.as_str(),
        wished.stock,
        wished.expected,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(set)
}

/// A page of what a merchant has on sale, by name; or the one of that name.
pub(super) async fn list_skus(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    sku: Option<&str>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<SkuStock>, DbError> {
    let rows = sqlx::query_as!(
        SkuStock,
        "SELECT merchant_id, sku, stock, lock_stock FROM skus
         WHERE merchant_id = $1 AND ($2::text IS NULL OR sku = $2) AND ($3::text IS NULL OR sku > $3)
         ORDER BY sku LIMIT $4",
        merchant_id.as_str(),
        sku,
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Sets where a merchant's events go; `false` when there is no such merchant.
pub(super) async fn save_endpoint(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    url: Option<&str>,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let set = sqlx::query!(
        "UPDATE merchants SET notify_url = $2, version = version + 1, updated_at = $3 WHERE merchant_id = $1",
        merchant_id.as_str(),
        url,
        now,
    );
    Ok(set.execute(conn).await?.rows_affected() == 1)
}

/// Lets a merchant's endpoints be told again that wanted no more, or a pause; gives the former.
pub(super) async fn enable_endpoints(tx: &mut Tx, merchant_id: &MerchantId) -> Result<Vec<String>, DbError> {
    let conn: &mut Conn = tx;
    let enabled = sqlx::query_scalar!(
        "WITH woken AS (DELETE FROM resting_lanes WHERE merchant_id = $1)
         DELETE FROM disabled_endpoints WHERE merchant_id = $1 RETURNING url",
        merchant_id.as_str(),
    );
    Ok(enabled.fetch_all(conn).await?)
}

/// How many replaced secrets of a merchant will still sign its notifications then.
pub(super) async fn count_signing(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    then: OffsetDateTime,
) -> Result<i64, DbError> {
    let conn: &mut Conn = tx;
    let signing = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM retired_notify_secrets WHERE merchant_id = $1 AND expires_at > $2"#,
        merchant_id.as_str(),
        then,
    );
    Ok(signing.fetch_one(conn).await?)
}

/// Whether a merchant has this secret for its notifications, or had it before another one, as it was sealed: no two seals are
/// alike.
pub(super) async fn has_secret(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    sealed: &[u8],
) -> Result<bool, DbError> {
    let found = sqlx::query!(
        "SELECT FROM merchants WHERE merchant_id = $1 AND notify_secret = $2
         UNION ALL SELECT FROM retired_notify_secrets WHERE merchant_id = $1 AND sealed = $2",
        merchant_id.as_str(),
        sealed,
    );
    Ok(found.fetch_optional(conn).await?.is_some())
}

/// Puts a secret in the place of the one that signs, which signs beside it until `old_ends_at`, and so do those before
/// it at the longest. `false` when there is no such merchant.
pub(super) async fn replace_secret(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    sealed: &[u8],
    old_ends_at: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let replaced = sqlx::query!(
        "WITH before AS MATERIALIZED (
             SELECT merchant_id, notify_secret FROM merchants WHERE merchant_id = $1 FOR NO KEY UPDATE
         ), ended AS (
             DELETE FROM retired_notify_secrets WHERE merchant_id = $1 AND expires_at <= $4
         ), shortened AS (
             UPDATE retired_notify_secrets SET expires_at = $3
             WHERE merchant_id = $1 AND expires_at > $3 AND expires_at > $4
         ), retired AS (
             INSERT INTO retired_notify_secrets (merchant_id, sealed, expires_at)
             SELECT merchant_id, notify_secret, $3 FROM before WHERE $3 > $4
         )
         UPDATE merchants SET notify_secret = $2, version = merchants.version + 1, updated_at = $4
         FROM before WHERE merchants.merchant_id = before.merchant_id",
        merchant_id.as_str(),
        sealed,
        old_ends_at,
        now,
    );
    Ok(replaced.execute(conn).await?.rows_affected() == 1)
}
