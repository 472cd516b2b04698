//! Who owes what.

use serde::Serialize;

use super::store;
use crate::app::App;
use crate::ids::{MerchantId, UserId};
use crate::infra::db::DbError;
use crate::money::Currency;

/// What a user owes.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Receivable {
    /// Whose user.
    pub merchant_id: MerchantId,
    /// Who owes.
    pub user_id: UserId,
    /// Of what.
    pub currency: Currency,
    /// Minor units that are owed.
    #[schema(example = 150)]
    pub amount: i64,
    /// Minor units that the user has: what could be collected at this moment.
    #[schema(example = 100)]
    pub available: i64,
}

/// Which page.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// Of one merchant.
    pub merchant_id: Option<&'a MerchantId>,
    /// Behind this one, the last of the page before: merchant, user and currency.
    pub after: Option<(&'a str, &'a str, &'a str)>,
    /// How many.
    pub limit: i64,
}

/// A page of debts, in the order of their accounts' names.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(app: &App, which: &Which<'_>) -> Result<Vec<Receivable>, DbError> {
    store::list(&mut app.db.conn().await?, which).await
}
