//! Making an order: one statement writes it, its lines, its reservations and its first line of history.
//!
//! Round trips: 1, commits: 1; a repeat costs 2 round trips and no commit. The number's primary key is the
//! idempotency key, the CHECK on the stock is what refuses to oversell.

use std::collections::BTreeMap;

use time::Duration;

use super::deadlines;
use super::error::OrderError;
use super::model::{NewOrder, Order, OrderItem, OrderKey};
use super::store;
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::db::{Conn, DbError};

/// An order, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Created {
    /// The order as it stands.
    pub order: Order,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Makes an order, or gives back the one of that number when it is the same.
///
/// # Errors
/// [`OrderError::ParamsMismatch`] names the fields in which the existing order differs;
/// [`OrderError::OutOfStock`] and [`OrderError::UnknownSku`] reserve nothing.
pub async fn create(app: &App, merchant_id: &MerchantId, new: &NewOrder) -> Result<Created, OrderError> {
    app.db.retrying(|| create_once(app, merchant_id, new)).await
}

async fn create_once(app: &App, merchant_id: &MerchantId, new: &NewOrder) -> Result<Created, OrderError> {
    let now = app.now();
    let order_no = new.order_no.clone().unwrap_or_else(|| app.ids.order_no());
    let key = OrderKey { merchant_id: merchant_id.clone(), order_no };
    let expires_at = now + Duration::seconds(new.expires_in_secs);

    let mut conn = app.db.conn().await?;
    match store::insert(&mut conn, &key, new, expires_at, now).await {
        Ok(order) => {
            drop(conn);
            deadlines::schedule(app, &key, expires_at);
            Ok(Created { order, is_new: true })
        }
        Err(error) => match error.constraint() {
            Some("orders_pkey") => repeat(&mut conn, &key, new).await,
            Some("stock_reservations_sku_fkey") => Err(unknown_skus(&mut conn, &key, new).await?),
            Some("skus_lock_stock_within_stock") => Err(lacking_skus(&mut conn, &key, new).await?),
            _ => Err(error.into()),
        },
    }
}

/// The number is taken: by this very order, or by another.
async fn repeat(conn: &mut Conn, key: &OrderKey, new: &NewOrder) -> Result<Created, OrderError> {
    let order = store::find(conn, key).await?.ok_or(OrderError::NotFound)?;
    let items = store::list_items(conn, key).await?;
    let differing = differing_fields(&order, &items, new);
    if differing.is_empty() { Ok(Created { order, is_new: false }) } else { Err(OrderError::ParamsMismatch(differing)) }
}

fn differing_fields(order: &Order, items: &[OrderItem], new: &NewOrder) -> Vec<&'static str> {
    let same_rebate = order.rebate_user_id == new.rebate_user_id && order.rebate_rate == new.rebate_rate;
    [
        ("user_id", order.user_id == new.user_id),
        ("currency", order.currency == new.currency),
        ("amount", order.amount == new.amount.minor()),
        ("items", items == new.items),
        ("kind", order.kind == new.kind),
        ("rebate", same_rebate),
    ]
    .into_iter()
    .filter_map(|(field, is_same)| (!is_same).then_some(field))
    .collect()
}

/// What the order wants of each thing, however many lines name it.
fn wanted(new: &NewOrder) -> BTreeMap<String, i64> {
    let mut wanted = BTreeMap::new();
    for item in &new.items {
        *wanted.entry(item.sku.to_string()).or_insert(0) += item.quantity;
    }
    wanted
}

async fn unknown_skus(conn: &mut Conn, key: &OrderKey, new: &NewOrder) -> Result<OrderError, DbError> {
    let known = store::free_stock(conn, key).await?;
    Ok(OrderError::UnknownSku(wanted(new).into_keys().filter(|sku| !known.contains_key(sku)).collect()))
}

async fn lacking_skus(conn: &mut Conn, key: &OrderKey, new: &NewOrder) -> Result<OrderError, DbError> {
    let free = store::free_stock(conn, key).await?;
    let lacks = |sku: &String, quantity: i64| free.get(sku).is_none_or(|free| *free < quantity);
    Ok(OrderError::OutOfStock(wanted(new).into_iter().filter(|(s, q)| lacks(s, *q)).map(|(sku, _)| sku).collect()))
}
