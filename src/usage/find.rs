//! Looking at holds.

use super::error::{Refusal, UsageError};
use super::model::{Hold, HoldStatus};
use super::store;
use crate::app::App;
use crate::ids::{HoldId, MerchantId, UserId};

/// The hold of that id.
///
/// # Errors
/// [`Refusal::NotFound`] when this merchant has none of that id.
pub async fn find(app: &App, merchant_id: &MerchantId, hold_id: &HoldId) -> Result<Hold, UsageError> {
    let found = app.db.retrying(|| async { store::find(&mut app.db.conn().await?, hold_id).await }).await?;
    Ok(found.filter(|hold| hold.merchant_id == *merchant_id).ok_or(Refusal::NotFound)?)
}

/// Whose holds.
#[derive(Clone, Debug)]
pub enum Whose {
    /// Of all.
    Everybody,
    /// Of one merchant.
    Merchant(MerchantId),
    /// Of one user of a merchant.
    User(MerchantId, UserId),
}

/// Which holds.
#[derive(Clone, Debug)]
pub struct Which {
    /// Whose.
    pub whose: Whose,
    /// In one state.
    pub status: Option<HoldStatus>,
    /// Older than this one.
    pub before: Option<String>,
}

/// A page of holds, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(app: &App, which: &Which, limit: usize) -> Result<Vec<Hold>, UsageError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let page = || async { store::list(&mut app.db.conn().await?, which, limit).await };
    Ok(app.db.retrying(page).await?)
}
