//! What a top-up cannot have: it sells nothing, and nobody earns a commission on it.

use super::create::compare;
use super::error::OrderError;
use super::model::{NewOrder, OrderKey, OrderKind};
use super::store;
use crate::app::App;
use crate::ids::{MerchantId, OrderNo};

impl NewOrder {
    /// The field that a top-up does not have, if this is one and has it.
    fn unfit_for_top_up(&self) -> Option<&'static str> {
        let has_rebate = self.rebate_user_id.is_some() || self.rebate_rate.is_some();
        [("items", !self.items.is_empty()), ("rebate", has_rebate)]
            .into_iter()
            .find_map(|(field, is_there)| (is_there && self.kind == OrderKind::TopUp).then_some(field))
    }
}

/// Refuses a top-up that is none, before anything is written. Where its number is taken, what differs is told as of any
/// other order.
///
/// # Errors
/// [`OrderError::NoTopUp`] and [`OrderError::ParamsMismatch`].
pub(super) async fn check(
    app: &App,
    merchant_id: &MerchantId,
    order_no: &OrderNo,
    new: &NewOrder,
) -> Result<(), OrderError> {
    let Some(field) = new.unfit_for_top_up() else { return Ok(()) };
    let key = OrderKey { merchant_id: merchant_id.clone(), order_no: order_no.clone() };
    let mut conn = app.db.conn().await?;
    match store::find(&mut conn, &key).await? {
        Some(order) => compare(&mut conn, &order, new).await,
        None => Err(OrderError::NoTopUp(field)),
    }
}
