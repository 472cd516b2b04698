//! Looking at settlements.

use super::error::SettlementError;
use super::model::Settlement;
use super::store::{self, FindFacts};
use crate::app::App;
use crate::infra::db::{DbError, Tx};
use crate::orders::OrderKey;

/// The settlement of an order.
///
/// # Errors
/// [`SettlementError::OrderNotFound`] when this merchant has no such order, [`SettlementError::NotSettled`] while it has
/// no settlement.
pub async fn find(app: &App, key: &OrderKey) -> Result<Settlement, SettlementError> {
    let facts = app.db.retrying(|| app.db.gather(FindFacts(key.clone()))).await?;
    facts.ok_or(SettlementError::OrderNotFound)?.settlement.ok_or(SettlementError::NotSettled)
}

/// The settlement of an order, if it has one, in the snapshot of a transaction.
pub(crate) async fn find_of_order(tx: &mut Tx, key: &OrderKey) -> Result<Option<Settlement>, DbError> {
    store::find(tx, key).await
}
