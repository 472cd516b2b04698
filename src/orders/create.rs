//! Making an order: one statement writes it, its lines, its reservations and its first line of history.
//!
//! Round trips: 1, commits: 1, both shared with whoever makes an order at the same time (see
//! [`crate::infra::gather`]), also with an idempotency key; a repeat by number reads the order and commits nothing.
//! The number's primary key makes an order once, the CHECK on the stock is what refuses to oversell.

use std::collections::BTreeMap;

use super::deadlines;
use super::error::OrderError;
use super::find::{self, OrderDetails};
use super::model::{NewOrder, Order, OrderItem, OrderKey};
use super::store::{self, Make};
use super::top_up;
use crate::app::App;
use crate::idempotency::{self, Keep};
use crate::ids::MerchantId;
use crate::infra::crash::effect;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::Unheard;
use crate::infra::repeat::differing;

/// An order, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Created {
    /// The order as it stands.
    pub details: OrderDetails,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Rounds of "write, else look why not": each round that is lost to a neighbour of the same batch is one.
const MAX_ROUNDS: usize = 8;

/// Makes an order, or gives back the one of that number when it is the same; keeps the answer where that is asked.
///
/// # Errors
/// [`OrderError::ParamsMismatch`] names the fields in which the existing order differs;
/// [`OrderError::OutOfStock`], [`OrderError::UnknownSku`] and [`OrderError::NoTopUp`] reserve nothing.
pub async fn create(
    app: &App,
    merchant_id: &MerchantId,
    new: &NewOrder,
    keep: Option<&Keep<Created>>,
) -> Result<Created, OrderError> {
    // Numbered and dated once: a second run after a lost answer must meet the order of the first, and know it as its own.
    let order_no = new.order_no.clone().unwrap_or_else(|| app.ids.order_no());
    top_up::check(app, merchant_id, &order_no, new).await?;
    let order = Order::newly_made(merchant_id.clone(), order_no, new, app.now());
    let made = Created { details: OrderDetails::of_new(order, new.items.clone()), is_new: true };
    let unheard = Unheard::default();
    app.db.retrying(|| create_once(app, &made, new, keep, &unheard)).await
}

async fn create_once(
    app: &App,
    made: &Created,
    new: &NewOrder,
    keep: Option<&Keep<Created>>,
    unheard: &Unheard,
) -> Result<Created, OrderError> {
    let order = &made.details.order;
    let key = order.key();
    for _ in 0..MAX_ROUNDS {
        let outcome = effect!("orders.create", app.db.gather(make(made, new, keep, unheard)).await);
        if matches!(outcome, Ok(true)) {
            deadlines::schedule(app, &key, order.expires_at);
            return Ok(made.clone());
        }
        if Box::pin(is_there(app, &key, new, outcome.err())).await? {
            return found(app, order, keep, unheard).await;
        }
    }
    // There was enough each time, and each time somebody else was faster: that is no reason to say that it is sold out.
    Err(OrderError::Db(DbError::Contended(sqlx::Error::RowNotFound)))
}

fn make(made: &Created, new: &NewOrder, keep: Option<&Keep<Created>>, unheard: &Unheard) -> Make {
    Make {
        order: made.details.order.clone(),
        items: new.items.clone(),
        notify_url: new.notify_url.clone(),
        kept: keep.map(|keep| keep.row(made.clone())),
        unheard: unheard.clone(),
    }
}

/// The answer where the order is there: as it stands by now, made by an earlier call, or by this one, whose answer was lost.
/// Only then does its date say whose it is: two calls may come in the same microsecond.
async fn found(
    app: &App,
    ours: &Order,
    keep: Option<&Keep<Created>>,
    unheard: &Unheard,
) -> Result<Created, OrderError> {
    let key = &ours.key();
    let details = find::details(app, key).await?;
    let is_new = unheard.is_noted() && details.order.created_at == ours.created_at;
    if is_new {
        deadlines::schedule(app, key, ours.expires_at);
    }
    let found = Created { details, is_new };
    if let Some(keep) = keep {
        let row = keep.row(found.clone());
        let (mut conn, order_no) = (app.db.conn().await?, Some(key.order_no.as_str()));
        effect!("orders.keep", idempotency::insert(&mut conn, &row, order_no, app.now()).await)?;
    }
    Ok(found)
}

/// Why it was not made: `true` when it is there already, and is the same; `false` when nothing speaks against it any
/// more. The number is looked at before all else: a repeat gets its order also when nothing is left in stock.
async fn is_there(
    app: &App,
    key: &OrderKey,
    new: &NewOrder,
    mut error: Option<DbError>,
) -> Result<bool, OrderError> {
    if let Some(error) = error.take_if(|error| error.constraint().is_none()) {
        return Err(error.into());
    }
    let mut conn = app.db.conn().await?;
    if let Some(order) = store::find(&mut conn, key).await? {
        return compare(&mut conn, &order, new).await.map(|()| true);
    }
    if let Some(error) = error {
        return Err(error.into());
    }
    unmet(&mut conn, &key.merchant_id, new).await?.map_or(Ok(false), Err)
}

/// The number is taken: by this very order, or by another.
pub(super) async fn compare(conn: &mut Conn, order: &Order, new: &NewOrder) -> Result<(), OrderError> {
    let items = store::list_items(conn, &order.key()).await?;
    let differing = differing_fields(order, &items, new);
    if differing.is_empty() { Ok(()) } else { Err(OrderError::ParamsMismatch(differing)) }
}

fn differing_fields(order: &Order, items: &[OrderItem], new: &NewOrder) -> Vec<&'static str> {
    let same_rebate = order.rebate_user_id == new.rebate_user_id && order.rebate_rate == new.rebate_rate;
    differing([
        ("user_id", order.user_id == new.user_id),
        ("currency", order.currency == new.currency),
        ("amount", order.amount == new.amount.minor()),
        ("items", items == new.items),
        ("kind", order.kind == new.kind),
        ("rebate", same_rebate),
    ])
}

/// What the order wants of each thing, however many lines name it.
fn wanted(new: &NewOrder) -> BTreeMap<String, i64> {
    let mut wanted = BTreeMap::new();
    for item in &new.items {
        *wanted.entry(item.sku.to_string()).or_insert(0) += item.quantity;
    }
    wanted
}

/// What cannot be had: things that are not on sale before things that may be there again later. Nothing, when all was
/// freed meanwhile, or when there is enough for this order, but was not for all that came at the same time.
async fn unmet(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    new: &NewOrder,
) -> Result<Option<OrderError>, DbError> {
    let wanted = wanted(new);
    let skus: Vec<String> = wanted.keys().cloned().collect();
    let free = store::free_stock(conn, merchant_id, &skus).await?;
    let those = |is_meant: &dyn Fn(&String) -> bool| -> Vec<String> {
        skus.iter().filter(|sku| is_meant(sku)).cloned().collect()
    };
    let unknown = those(&|sku| !free.contains_key(sku));
    if !unknown.is_empty() {
        return Ok(Some(OrderError::UnknownSku(unknown)));
    }
    let lacking = those(&|sku| free.get(sku) < wanted.get(sku));
    Ok((!lacking.is_empty()).then_some(OrderError::OutOfStock(lacking)))
}
