//! Looking at withdrawals.

use super::error::WithdrawalError;
use super::model::WithdrawalDetails;
use super::store;
use crate::app::App;
use crate::ids::{MerchantId, WithdrawalNo};
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
    let withdrawal = store::find_by_number(tx, merchant_id, withdrawal_no).await?;
    let withdrawal = withdrawal.ok_or(WithdrawalError::NotFound)?;
    let legs = store::list_legs(tx, &withdrawal.withdrawal_id).await?;
    Ok(WithdrawalDetails { withdrawal, legs })
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
