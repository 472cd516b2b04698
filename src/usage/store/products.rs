//! Products and their prices.

use time::OffsetDateTime;

use crate::ids::{MerchantId, ProductCode};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;
use crate::usage::model::{KeyScope, Pricing};
use crate::usage::price::Price;
use crate::usage::products::{PricedProduct, SetProduct, Standing};

/// Makes a product of that kind, unless it is there: then what is said of it is set. Either way it is locked, and given
/// as it stands.
pub(in crate::usage) async fn upsert(
    conn: &mut Conn,
    product: &SetProduct,
    now: OffsetDateTime,
) -> Result<Standing, DbError> {
    let standing = sqlx::query_as!(
        Standing,
        r#"INSERT INTO products (merchant_id, product_code, pricing, key_scope, cycle_quota, allow_compensating_charge,
                                 created_at, updated_at)
           VALUES ($1, $2, $3, $4, $6, coalesce($7, false), $8, $8)
           ON CONFLICT (merchant_id, product_code) DO UPDATE
               -- What is not said stays as it is.
               SET cycle_quota = CASE WHEN $5 THEN excluded.cycle_quota ELSE products.cycle_quota END,
                   allow_compensating_charge = coalesce($7, products.allow_compensating_charge),
                   updated_at = excluded.updated_at
           RETURNING pricing AS "pricing: Pricing", key_scope AS "key_scope: KeyScope", cycle_quota,
                     allow_compensating_charge"#,
        product.merchant_id.as_str(),
        product.product_code.as_str(),
        product.kind.pricing.as_str(),
        product.kind.key_scope.as_str(),
        product.cycle_quota.is_some(),
        product.cycle_quota.flatten(),
        product.allow_compensating_charge,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(standing)
}

/// Sets the price of a product in one currency and fx version.
pub(in crate::usage) async fn upsert_price(
    conn: &mut Conn,
    product: &SetProduct,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO product_prices (merchant_id, product_code, currency, fx_version, unit_price, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (merchant_id, product_code, currency, fx_version) DO UPDATE
             SET unit_price = excluded.unit_price, updated_at = excluded.updated_at",
        product.merchant_id.as_str(),
        product.product_code.as_str(),
        product.currency.as_str(),
        product.fx_version,
        product.unit_price as Price,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A page of a merchant's prices with their products, by product, currency and fx version; those behind a row of the
/// page before, which is given by these three.
pub(in crate::usage) async fn list(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    after: Option<(&str, &str, &str)>,
    limit: i64,
) -> Result<Vec<PricedProduct>, DbError> {
    let (product_code, currency, fx_version) = after.unwrap_or_default();
    let page = sqlx::query_as!(
        PricedProduct,
        r#"SELECT product.merchant_id AS "merchant_id: MerchantId", product.product_code AS "product_code: ProductCode",
                  price.currency AS "currency: Currency", nullif(price.fx_version, '') AS fx_version,
                  product.pricing AS "pricing: Pricing", price.unit_price AS "unit_price: Price", product.cycle_quota,
                  product.key_scope AS "key_scope: KeyScope", product.allow_compensating_charge, price.updated_at
           FROM product_prices AS price
           JOIN products AS product USING (merchant_id, product_code)
           WHERE price.merchant_id = $1 AND (price.product_code, price.currency, price.fx_version) > ($2, $3, $4)
           ORDER BY price.product_code, price.currency, price.fx_version LIMIT $5"#,
        merchant_id.as_str(),
        product_code,
        currency,
        fx_version,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(page)
}
