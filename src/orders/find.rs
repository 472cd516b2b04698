//! Looking at orders.

use std::time::Duration;

use tokio::time::Instant;

use super::error::OrderError;
use super::model::{Order, OrderItem, OrderKey, OrderStatus};
use super::store::{self, ListFilter};
use crate::app::App;
use crate::ids::MerchantId;
use crate::pay::{self, Attempt};
use crate::refunds::{self, Refund, StrayPayment};

/// How often a waiter looks by itself: the change may be another instance's.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An order with all that belongs to it.
#[derive(Clone, Debug)]
pub struct OrderDetails {
    /// The order.
    pub order: Order,
    /// Its lines.
    pub items: Vec<OrderItem>,
    /// Its attempts, oldest first.
    pub pay_orders: Vec<Attempt>,
    /// Money that went back, or is on its way.
    pub refunds: Vec<Refund>,
    /// Money that it did not accept.
    pub stray_payments: Vec<StrayPayment>,
}

impl OrderDetails {
    /// An order that was just made: nothing belongs to it yet but its lines.
    #[must_use]
    pub const fn of_new(order: Order, items: Vec<OrderItem>) -> Self {
        Self { order, items, pay_orders: Vec::new(), refunds: Vec::new(), stray_payments: Vec::new() }
    }
}

/// The order of that number with all that belongs to it.
///
/// # Errors
/// [`OrderError::NotFound`] when this merchant has none of that number.
pub async fn details(app: &App, key: &OrderKey) -> Result<OrderDetails, OrderError> {
    app.db.retrying(|| details_once(app, key)).await
}

async fn details_once(app: &App, key: &OrderKey) -> Result<OrderDetails, OrderError> {
    let mut conn = app.db.conn().await?;
    let order = store::find(&mut conn, key).await?.ok_or(OrderError::NotFound)?;
    let items = store::list_items(&mut conn, key).await?;
    let pay_orders = pay::list_attempts(&mut conn, key).await?;
    let refunds = refunds::list_of_order(&mut conn, key).await?;
    let stray_payments = refunds::list_strays_of_order(&mut conn, key).await?;
    Ok(OrderDetails { order, items, pay_orders, refunds, stray_payments })
}

/// Waits until the order changes, or for `patience` at most. No connection is held meanwhile.
///
/// # Errors
/// [`OrderError::NotFound`] when this merchant has none of that number.
pub async fn wait_for_change(app: &App, key: &OrderKey, patience: Duration) -> Result<(), OrderError> {
    let give_up_at = Instant::now() + patience;
    let first = version(app, key).await?;
    loop {
        let bell = app.changes.subscribe(&key.member());
        let rings = bell.notified();
        if version(app, key).await? != first || Instant::now() >= give_up_at {
            return Ok(());
        }
        let look_again_at = give_up_at.min(Instant::now() + LOOK_EVERY);
        let _ = tokio::time::timeout_at(look_again_at, rings).await;
    }
}

async fn version(app: &App, key: &OrderKey) -> Result<i32, OrderError> {
    store::find_version(&mut app.db.conn().await?, key).await?.ok_or(OrderError::NotFound)
}

/// A page of order numbers for operators, by merchant and number.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    merchant_id: Option<&MerchantId>,
    order_no: Option<&str>,
    status: Option<OrderStatus>,
    starting_after: Option<&OrderKey>,
    limit: i64,
) -> Result<Vec<OrderKey>, OrderError> {
    let filter = ListFilter {
        merchant_id: merchant_id.map(MerchantId::as_str),
        order_no,
        status,
        starting_after,
        limit,
    };
    Ok(store::list_keys(&mut app.db.conn().await?, &filter).await?)
}
