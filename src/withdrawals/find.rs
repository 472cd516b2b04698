//! Looking at withdrawals.

use super::error::WithdrawalError;
use super::model::{Withdrawal, WithdrawalDetails, WithdrawalStatus};
use super::store;
use crate::app::App;
use crate::ids::{MerchantId, UserId, WithdrawalNo};
use crate::infra::db::Tx;

/// The withdrawal of that number with its legs.
///
/// # Errors
/// [`WithdrawalError::NotFound`] when this merchant has none of that number.
pub async fn find(
    app: &App,
    merchant_id: &MerchantId,
    withdrawal_no: &WithdrawalNo,
) -> Result<WithdrawalDetails, WithdrawalError> {
    app.db.retrying(|| by_number(app, merchant_id, withdrawal_no)).await
}

pub(super) async fn by_number(
    app: &App,
    merchant_id: &MerchantId,
    withdrawal_no: &WithdrawalNo,
) -> Result<WithdrawalDetails, WithdrawalError> {
    let mut tx = app.db.begin_read().await?;
    let details = in_tx(&mut tx, merchant_id, withdrawal_no).await;
    tx.finish(details).await
}

/// One snapshot for both: never a withdrawal that succeeded beside a leg that did not.
async fn in_tx(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    withdrawal_no: &WithdrawalNo,
) -> Result<WithdrawalDetails, WithdrawalError> {
    let found = store::find_by_number(tx, merchant_id, withdrawal_no).await?;
    let found = found.ok_or(WithdrawalError::NotFound)?;
    with_legs(tx, vec![found]).await?.pop().ok_or(WithdrawalError::NotFound)
}

async fn with_legs(tx: &mut Tx, found: Vec<Withdrawal>) -> Result<Vec<WithdrawalDetails>, WithdrawalError> {
    let ids: Vec<&str> = found.iter().map(|withdrawal| withdrawal.withdrawal_id.as_str()).collect();
    let mut legs = store::list_legs(tx, &ids).await?;
    let details = |withdrawal: Withdrawal| {
        let legs = legs.remove(withdrawal.withdrawal_id.as_str()).unwrap_or_default();
        WithdrawalDetails { withdrawal, legs }
    };
    Ok(found.into_iter().map(details).collect())
}

/// Which withdrawals.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithdrawalFilter<'a> {
    /// Of one merchant.
    pub merchant_id: Option<&'a MerchantId>,
    /// Of one of its users.
    pub user_id: Option<&'a UserId>,
    /// In one state.
    pub status: Option<WithdrawalStatus>,
    /// From behind that id on.
    pub starting_after: Option<&'a str>,
}

/// A page of withdrawals with their legs, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    filter: WithdrawalFilter<'_>,
    limit: usize,
) -> Result<Vec<WithdrawalDetails>, WithdrawalError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    app.db.retrying(|| page(app, filter, limit)).await
}

async fn page(
    app: &App,
    filter: WithdrawalFilter<'_>,
    limit: i64,
) -> Result<Vec<WithdrawalDetails>, WithdrawalError> {
    let mut tx = app.db.begin_read().await?;
    let listed = list_in_tx(&mut tx, filter, limit).await;
    tx.finish(listed).await
}

async fn list_in_tx(
    tx: &mut Tx,
    filter: WithdrawalFilter<'_>,
    limit: i64,
) -> Result<Vec<WithdrawalDetails>, WithdrawalError> {
    let found = store::list(tx, filter, limit).await?;
    with_legs(tx, found).await
}

/// The id of the only withdrawal of that number, of one merchant or of whichever.
pub(super) async fn find_id(
    app: &App,
    merchant_id: Option<&MerchantId>,
    withdrawal_no: &WithdrawalNo,
) -> Result<String, WithdrawalError> {
    let mut ids = store::list_ids_of_number(&mut app.db.conn().await?, merchant_id, withdrawal_no).await?;
    match (ids.pop(), ids.is_empty()) {
        (Some(id), true) => Ok(id),
        (Some(_), false) => Err(WithdrawalError::Ambiguous),
        (None, _) => Err(WithdrawalError::NotFound),
    }
}
