//! What is on sale.

use super::create::MerchantError;
use super::model::SkuStock;
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, Sku};
use crate::infra::crash::effect;

/// How many of a thing there are to be, those held for pending orders included.
#[derive(Clone, Copy, Debug)]
pub struct NewStock {
    /// So many.
    pub stock: i64,
    /// Only where there are so many by now: what was sold meanwhile is not overwritten.
    pub expected: Option<i64>,
}

/// Sets how many of a thing there are. What is not known yet has a stock of 0.
///
/// # Errors
/// [`MerchantError::StockChanged`] when there are not as many as expected, [`MerchantError::StockBelowHeld`] when more is
/// held than wished for.
pub async fn set_stock(
    app: &App,
    merchant_id: &MerchantId,
    sku: &Sku,
    wished: NewStock,
    entry: Option<&Entry>,
) -> Result<SkuStock, MerchantError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = async {
        store::make_known(&mut tx, merchant_id, sku, now).await?;
        let Some(set) = store::save_stock(&mut tx, merchant_id, sku, wished, now).await? else {
            let there = store::list_skus(&mut tx, merchant_id, Some(sku.as_str()), None, 1).await?;
            return Err(MerchantError::StockChanged(there.first().map_or(0, |there| there.stock)));
        };
        if let Some(entry) = entry {
            admin_log::append_in_tx(&mut tx, entry, now).await?;
        }
        Ok(set)
    }
    .await;
    let set = effect!("merchants.stock", tx.finish(written).await);
    let Err(MerchantError::Db(error)) = &set else { return set };
    match error.constraint() {
        Some("skus_merchant_fkey") => Err(MerchantError::NotFound),
        Some("skus_lock_stock_within_stock") => {
            let mut conn = app.db.conn().await?;
            let held = store::list_skus(&mut conn, merchant_id, Some(sku.as_str()), None, 1).await?;
            Err(MerchantError::StockBelowHeld(held.first().map_or(0, |held| held.lock_stock)))
        }
        _ => set,
    }
}

/// A page of what a merchant has on sale, by name.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_skus(
    app: &App,
    merchant_id: &MerchantId,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<SkuStock>, MerchantError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list_skus(&mut app.db.conn().await?, merchant_id, None, starting_after, limit).await?)
}
