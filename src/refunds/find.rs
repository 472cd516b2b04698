//! Looking at refunds.

use super::error::RefundError;
use super::model::{Refund, RefundStatus};
use super::store;
use crate::app::App;
use crate::ids::{MerchantId, RefundNo};
use crate::orders::{self, OrderKey};

/// The refund of that number.
///
/// # Errors
/// [`RefundError::NotFound`] when this merchant has none of that number.
pub async fn find(app: &App, merchant_id: &MerchantId, refund_no: &RefundNo) -> Result<Refund, RefundError> {
    let look = || async { store::find_by_number(&mut app.db.conn().await?, merchant_id, refund_no).await };
    app.db.retrying(look).await?.ok_or(RefundError::NotFound)
}

/// The id of the only refund of that number, of one merchant or of whichever. Of stray money that nobody's is, the number of its
/// refund is its id.
pub(super) async fn find_id(
    app: &App,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
) -> Result<String, RefundError> {
    let mut conn = app.db.conn().await?;
    let mut ids = store::list_ids_of_number(&mut conn, merchant_id, refund_no).await?;
    match (ids.pop(), ids.is_empty()) {
        (Some(id), true) => Ok(id),
        (Some(_), false) => Err(RefundError::Ambiguous),
        (None, _) => {
            let found = store::find_refund(&mut conn, refund_no.as_str()).await?;
            let nobodys = found.filter(|refund| refund.merchant_id.is_none() && merchant_id.is_none());
            nobodys.map(|refund| refund.refund_id).ok_or(RefundError::NotFound)
        }
    }
}

/// A page of the refunds of an order, newest first: from behind that id on.
///
/// # Errors
/// [`RefundError::OrderNotFound`].
pub async fn page_of_order(
    app: &App,
    key: &OrderKey,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<Refund>, RefundError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    app.db.retrying(|| look_at_page(app, key, starting_after, limit)).await
}

async fn look_at_page(
    app: &App,
    key: &OrderKey,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Refund>, RefundError> {
    let mut conn = app.db.conn().await?;
    let refunds = store::list_of_order(&mut conn, key, starting_after, limit).await?;
    // Whoever has refunds is there.
    if refunds.is_empty() && orders::find_in(&mut conn, key).await?.is_none() {
        return Err(RefundError::OrderNotFound);
    }
    Ok(refunds)
}

/// A page of refunds, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    status: Option<RefundStatus>,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<Refund>, RefundError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list_refunds(&mut app.db.conn().await?, status, starting_after, limit).await?)
}
