//! What is on sale.

use super::create::MerchantError;
use super::model::SkuStock;
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, Sku};
use crate::infra::crash::effect;
use crate::infra::db::DbError;

/// Sets how many of a thing there are, those held for pending orders included.
///
/// # Errors
/// [`MerchantError::StockBelowHeld`] when more is held than that.
pub async fn set_stock(
    app: &App,
    merchant_id: &MerchantId,
    sku: &Sku,
    stock: i64,
    entry: Option<&Entry>,
) -> Result<SkuStock, MerchantError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = async {
        let set = store::upsert_sku(&mut tx, merchant_id, sku, stock, now).await?;
        if let Some(entry) = entry {
            admin_log::append_in_tx(&mut tx, entry, now).await?;
        }
        Ok::<_, DbError>(set)
    }
    .await;
    match effect!("merchants.stock", tx.finish(written).await) {
        Err(error) if error.constraint() == Some("skus_merchant_fkey") => Err(MerchantError::NotFound),
        Err(error) if error.constraint() == Some("skus_lock_stock_within_stock") => {
            let mut conn = app.db.conn().await?;
            let held = store::list_skus(&mut conn, merchant_id, Some(sku.as_str()), None, 1).await?;
            Err(MerchantError::StockBelowHeld(held.first().map_or(0, |held| held.lock_stock)))
        }
        outcome => Ok(outcome?),
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
