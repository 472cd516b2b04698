//! What users have, and how it came to be.

use serde::Serialize;
use time::OffsetDateTime;

use super::model::{AccountKind, PostingKind};
use super::store;
use crate::ids::{MerchantId, UserId};
use crate::infra::db::{Db, DbError};
use crate::money::Currency;

/// What a user has in one currency. Minor units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Balance {
    /// Of what.
    pub currency: Currency,
    /// What can be spent or withdrawn.
    #[schema(example = 5000)]
    pub available: i64,
    /// What is set aside for open withdrawals and holds.
    #[schema(example = 0)]
    pub held: i64,
    /// What the user owes, because usage cost more than there was, or what was claimed back, or went out after all, was spent
    /// before.
    #[schema(example = 0)]
    pub receivable: i64,
}

/// One change of a user's balance.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct UserEntry {
    /// Its number, by which entries are listed. Of two that are booked in the same moment the later one may be seen first: whoever
    /// keeps a copy reads the last minute of it once more.
    #[schema(example = 42)]
    pub entry_id: i64,
    /// The transaction that it is part of.
    #[schema(example = "PAYMENT:po_06H8K2M4N6P8R0T2V4X6Z8B0D2")]
    pub transaction_id: String,
    /// What was booked.
    pub kind: PostingKind,
    /// Which of the user's balances changed.
    pub account: AccountKind,
    /// Of what.
    pub currency: Currency,
    /// By how many minor units it grew; negative where it shrank.
    #[schema(example = 5000)]
    pub amount: i64,
    /// The order that brought it about, where one did.
    #[schema(example = "T-1")]
    pub order_no: Option<String>,
    /// When it was booked.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Which entries of a user.
#[derive(Clone, Copy, Debug)]
pub struct EntryFilter {
    /// Of one currency.
    pub currency: Option<Currency>,
    /// Older than this one.
    pub before: Option<i64>,
    /// So many at most.
    pub limit: i64,
}

/// What a user has, by currency. Nothing for a user who never had anything.
///
/// # Errors
/// When the database cannot be reached.
pub async fn balances(db: &Db, merchant_id: &MerchantId, user_id: &UserId) -> Result<Vec<Balance>, DbError> {
    db.retrying(|| async { store::list_balances(&mut db.conn().await?, merchant_id, user_id).await }).await
}

/// The changes of a user's balances, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn entries(
    db: &Db,
    merchant_id: &MerchantId,
    user_id: &UserId,
    filter: EntryFilter,
) -> Result<Vec<UserEntry>, DbError> {
    db.retrying(|| async { store::list_entries(&mut db.conn().await?, merchant_id, user_id, filter).await })
        .await
}
