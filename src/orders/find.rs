//! Looking at orders.

use std::time::Duration;

use tokio::time::Instant;

use super::error::OrderError;
use super::model::{Order, OrderItem, OrderKey, OrderStatus, SettleStatus};
use super::store::{self, FindFingerprint, Fingerprint, ListFilter};
use crate::app::App;
use crate::ids::{MerchantId, OrderNo};
use crate::infra::db::{Conn, DbError, Tx};
use crate::pay::{self, Attempt};
use crate::refunds::{self, Refund, StrayPayment};
use crate::settlement::{self, Settlement};

/// How often a waiter looks by itself: the change may be another instance's.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What is shown of an order's attempts, refunds and stray payments, of each: whoever goes to and fro between channels makes any
/// number of them, and each has its own route.
const SHOWN: i64 = 100;

/// An order with all that belongs to it.
#[derive(Clone, Debug)]
pub struct OrderDetails {
    /// The order.
    pub order: Order,
    /// Its lines.
    pub items: Vec<OrderItem>,
    /// Its last hundred attempts, oldest first.
    pub pay_orders: Vec<Attempt>,
    /// Money that went back, or is on its way: the last hundred refunds.
    pub refunds: Vec<Refund>,
    /// Money that it did not accept, the last hundred times.
    pub stray_payments: Vec<StrayPayment>,
    /// What its user earned by it.
    pub settlement: Option<Settlement>,
}

impl OrderDetails {
    /// An order that was just made: nothing belongs to it yet but its lines.
    #[must_use]
    pub const fn of_new(order: Order, items: Vec<OrderItem>) -> Self {
        Self {
            order,
            items,
            pay_orders: Vec::new(),
            refunds: Vec::new(),
            stray_payments: Vec::new(),
            settlement: None,
        }
    }
}

/// The order of that number by itself.
pub(super) async fn order(app: &App, key: &OrderKey) -> Result<Order, OrderError> {
    store::find(&mut app.db.conn().await?, key).await?.ok_or(OrderError::NotFound)
}

/// The same on a connection of the caller's.
pub(crate) async fn find_in(conn: &mut Conn, key: &OrderKey) -> Result<Option<Order>, DbError> {
    store::find(conn, key).await
}

/// The order of that number with all that belongs to it.
///
/// # Errors
/// [`OrderError::NotFound`] when this merchant has none of that number.
pub async fn details(app: &App, key: &OrderKey) -> Result<OrderDetails, OrderError> {
    app.db.retrying(|| details_once(app, key)).await
}

async fn details_once(app: &App, key: &OrderKey) -> Result<OrderDetails, OrderError> {
    let mut tx = app.db.begin_read().await?;
    let details = details_in_tx(&mut tx, key).await;
    tx.finish(details).await
}

/// One snapshot for all of it: never an order that waits beside an attempt that paid.
pub(super) async fn details_in_tx(tx: &mut Tx, key: &OrderKey) -> Result<OrderDetails, OrderError> {
    let order = store::find(tx, key).await?.ok_or(OrderError::NotFound)?;
    let items = store::list_items(tx, key).await?;
    let pay_orders = pay::list_attempts(tx, key, SHOWN).await?;
    let mut refunds = refunds::list_of_order(tx, key, None, SHOWN).await?;
    refunds.reverse();
    let stray_payments = refunds::list_strays_of_order(tx, key, SHOWN).await?;
    let settlement = match order.settle_status {
        SettleStatus::Settled => settlement::find_of_order(tx, key).await?,
        SettleStatus::Unsettled => None,
    };
    Ok(OrderDetails { order, items, pay_orders, refunds, stray_payments, settlement })
}

/// Waits until the order changes, until `ends_at` at most as that says by then, and not into the stop of the process. No connection
/// to the database is held meanwhile.
///
/// # Errors
/// [`OrderError::NotFound`] when this merchant has none of that number.
pub async fn wait_for_change(
    app: &App,
    key: &OrderKey,
    mut ends_at: impl FnMut() -> Instant,
) -> Result<(), OrderError> {
    let first = fingerprint(app, key).await?;
    // Held, so that each lap finds it as long as it has not rung, and no bells are looked through.
    let _held = app.changes.subscribe(&key.member());
    loop {
        let bell = app.changes.subscribe(&key.member());
        let rings = bell.notified();
        let give_up_at = ends_at();
        let is_over = app.changes.is_over() || Instant::now() >= give_up_at;
        if fingerprint(app, key).await? != first || is_over {
            return Ok(());
        }
        let look_again_at = give_up_at.min(Instant::now() + LOOK_EVERY);
        let _ = tokio::time::timeout_at(look_again_at, rings).await;
    }
}

async fn fingerprint(app: &App, key: &OrderKey) -> Result<Fingerprint, OrderError> {
    app.db.gather(FindFingerprint(key.clone())).await?.ok_or(OrderError::NotFound)
}

/// A page of order numbers for operators, by merchant and number.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    merchant_id: Option<&MerchantId>,
    status: Option<OrderStatus>,
    starting_after: Option<&OrderKey>,
    limit: i64,
) -> Result<Vec<OrderKey>, OrderError> {
    let filter =
        ListFilter { merchant_id: merchant_id.map(MerchantId::as_str), status, starting_after, limit };
    Ok(store::list_keys(&mut app.db.conn().await?, &filter).await?)
}

/// The orders of that number, of that merchant or of whichever; two of them already say that it is ambiguous.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_of_number(
    app: &App,
    order_no: &OrderNo,
    merchant_id: Option<&MerchantId>,
) -> Result<Vec<OrderKey>, OrderError> {
    Ok(store::list_of_number(&mut app.db.conn().await?, order_no, merchant_id).await?)
}
