//! Products: what is metered, and what it costs.

use serde::Serialize;
use time::OffsetDateTime;

use super::error::UsageError;
use super::model::{KeyScope, Pricing};
use super::price::Price;
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, ProductCode};
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::infra::repeat::differing;
use crate::money::Currency;

/// What of a product never changes: holds are made of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What its prices are for.
    pub pricing: Pricing,
    /// What makes the key of its holds.
    pub key_scope: KeyScope,
}

/// A product as it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) pricing: Pricing,
    pub(super) key_scope: KeyScope,
    pub(super) cycle_quota: Option<i64>,
    pub(super) allow_compensating_charge: bool,
}

/// A product to set, with one of its prices.
#[derive(Clone, Debug)]
pub struct SetProduct {
    /// Whose.
    pub merchant_id: MerchantId,
    /// Its name.
    pub product_code: ProductCode,
    /// Of which kind it is.
    pub kind: Kind,
    /// What a user may use in a cycle, held and charged together, or that there is no limit; as it was, where nothing
    /// is said.
    pub cycle_quota: Option<Option<i64>>,
    /// Whether reconciliation may charge a user again for usage that was paid with money which never came; as it was, where
    /// nothing is said.
    pub allow_compensating_charge: Option<bool>,
    /// The price's currency.
    pub currency: Currency,
    /// The set of prices that it is of; empty for none.
    pub fx_version: String,
    /// Minor units.
    pub unit_price: Price,
}

/// A price with its product.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct PricedProduct {
    /// Whose.
    pub merchant_id: MerchantId,
    /// The product.
    pub product_code: ProductCode,
    /// The price's currency.
    pub currency: Currency,
    /// The set of prices that it is of, where it is of one.
    #[schema(example = "fx-2026-11")]
    pub fx_version: Option<String>,
    /// What the price is for.
    pub pricing: Pricing,
    /// Minor units for a unit, a call or a cycle, as a decimal string.
    #[schema(value_type = String, example = "0.0003")]
    pub unit_price: Price,
    /// What a user may use in a cycle, held and charged together.
    #[schema(example = 1_000_000)]
    pub cycle_quota: Option<i64>,
    /// What makes the key of a hold.
    pub key_scope: KeyScope,
    /// Whether reconciliation may charge a user again for usage that was paid with money which never came.
    pub allow_compensating_charge: bool,
    /// When the price was set.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// Makes a product or sets what is said of it, and sets one of its prices. Holds keep the price and the quota that they
/// were made by; a quota counts what is held under one, and all that was charged, also before there was one.
///
/// # Errors
/// [`UsageError::UnknownMerchant`]; [`UsageError::ProductDiffers`] when it is there and of another kind.
pub async fn set_product(
    app: &App,
    product: &SetProduct,
    entry: &Entry,
) -> Result<PricedProduct, UsageError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = set_in_tx(&mut tx, product, entry, now).await;
    match effect!("usage.product", tx.finish(written).await) {
        Err(UsageError::Db(error)) if error.constraint() == Some("products_merchant_fkey") => {
            Err(UsageError::UnknownMerchant)
        }
        Err(error) => Err(error),
        Ok(standing) => Ok(product.priced_at(&standing, now)),
    }
}

async fn set_in_tx(
    tx: &mut Tx,
    product: &SetProduct,
    entry: &Entry,
    now: OffsetDateTime,
) -> Result<Standing, UsageError> {
    let standing = store::upsert_product(tx, product, now).await?;
    let differing = differing([
        ("pricing", standing.pricing == product.kind.pricing),
        ("key_scope", standing.key_scope == product.kind.key_scope),
    ]);
    if !differing.is_empty() {
        return Err(UsageError::ProductDiffers(differing));
    }
    store::upsert_price(tx, product, now).await?;
    admin_log::append_in_tx(tx, entry, now).await?;
    Ok(standing)
}

impl SetProduct {
    fn priced_at(&self, standing: &Standing, now: OffsetDateTime) -> PricedProduct {
        PricedProduct {
            merchant_id: self.merchant_id.clone(),
            product_code: self.product_code.clone(),
            currency: self.currency,
            fx_version: Some(self.fx_version.clone()).filter(|version| !version.is_empty()),
            pricing: standing.pricing,
            unit_price: self.unit_price,
            cycle_quota: standing.cycle_quota,
            key_scope: standing.key_scope,
            allow_compensating_charge: standing.allow_compensating_charge,
            updated_at: now,
        }
    }
}

/// A page of a merchant's prices, by product, currency and fx version.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_products(
    app: &App,
    merchant_id: &MerchantId,
    after: Option<(&str, &str, &str)>,
    limit: usize,
) -> Result<Vec<PricedProduct>, UsageError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list_prices(&mut app.db.conn().await?, merchant_id, after, limit).await?)
}
