//! Rules and levels: what the table of rates says.

use super::error::SettlementError;
use super::model::{RebateRule, UserLevel};
use super::store;
use super::terms::{Factor, Rate};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, Sku, UserId};
use crate::infra::crash::effect;
use crate::infra::db::DbError;

/// Sets the share of one thing, or (without one) of all of a merchant's others. What is settled keeps its rates.
///
/// # Errors
/// [`SettlementError::UnknownMerchant`], [`SettlementError::UnknownSku`].
pub async fn set_rule(
    app: &App,
    merchant_id: &MerchantId,
    sku: Option<&Sku>,
    rate: Rate,
    entry: &Entry,
) -> Result<RebateRule, SettlementError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = async {
        let rule = store::upsert_rule(&mut tx, merchant_id, sku, rate, now).await?;
        admin_log::append_in_tx(&mut tx, entry, now).await?;
        Ok::<_, DbError>(rule)
    }
    .await;
    match effect!("settlement.rule", tx.finish(written).await) {
        Err(error) => Err(refused(error, sku)),
        Ok(rule) => Ok(rule),
    }
}

/// Sets a user's level.
///
/// # Errors
/// [`SettlementError::UnknownMerchant`].
pub async fn set_level(
    app: &App,
    merchant_id: &MerchantId,
    user_id: &UserId,
    level: &str,
    factor: Factor,
    entry: &Entry,
) -> Result<UserLevel, SettlementError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = async {
        let level = store::upsert_level(&mut tx, merchant_id, user_id, level, factor, now).await?;
        admin_log::append_in_tx(&mut tx, entry, now).await?;
        Ok::<_, DbError>(level)
    }
    .await;
    effect!("settlement.level", tx.finish(written).await).map_err(|error| refused(error, None))
}

fn refused(error: DbError, sku: Option<&Sku>) -> SettlementError {
    match (error.constraint(), sku) {
        (
            Some(
                "rebate_rules_merchant_fkey" | "user_levels_merchant_fkey" | "settlement_runs_merchant_fkey",
            ),
            _,
        ) => SettlementError::UnknownMerchant,
        (Some("rebate_rules_sku_fkey"), Some(sku)) => SettlementError::UnknownSku(sku.to_string()),
        _ => error.into(),
    }
}

/// A page of a merchant's rules, that of all others first, then by thing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_rules(
    app: &App,
    merchant_id: &MerchantId,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<RebateRule>, SettlementError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list_rules(&mut app.db.conn().await?, merchant_id, starting_after, limit).await?)
}

/// A page of a merchant's users with a level, by user.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_levels(
    app: &App,
    merchant_id: &MerchantId,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<UserLevel>, SettlementError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list_levels(&mut app.db.conn().await?, merchant_id, starting_after, limit).await?)
}
