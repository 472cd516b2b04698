//! Asking for a refund of an order. The sum can never exceed what was paid, whatever runs at once: it is counted, and
//! the refund written, under the order's row lock.
//!
//! Round trips: 8 (look, BEGIN, lock, order, count, refund, task, COMMIT), one more for each of: an idempotency key, a
//! top-up's money set aside, an operator's entry in the log. Commits: 1.

use time::OffsetDateTime;

use super::error::RefundError;
use super::model::{NewRefund, Refund, RefundStatus};
use super::{book, store};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::{self, Action, NewTask};
use crate::idempotency::{self, Keep};
use crate::ids::{MerchantId, RefundId, RefundNo};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::lock::Scene;
use crate::money::Amount;
use crate::orders::{self, Order, OrderKey, OrderKind, OrderStatus};

/// A refund, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Created {
    /// The refund as it stands.
    pub refund: Refund,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Who asks for a refund.
#[derive(Clone, Copy, Debug)]
pub enum AskedBy<'a> {
    /// The merchant's backend, which may have the answer kept.
    Merchant(Option<&'a Keep<Created>>),
    /// An operator, who leaves an entry in the log.
    Operator(&'a Entry),
}

/// Asks for a refund, or gives back the one of that number when it is the same. Above the merchant's limit it waits
/// for an operator; else a task sends the money back. The answer does not wait for the channel.
///
/// # Errors
/// [`RefundError::ParamsMismatch`] names the fields in which the existing one differs;
/// [`RefundError::ExceedsPaid`], [`RefundError::OrderNotPaid`], [`RefundError::InsufficientBalance`]: nothing moved.
pub async fn create(
    app: &App,
    merchant_id: &MerchantId,
    new: &NewRefund,
    asked_by: AskedBy<'_>,
) -> Result<Created, RefundError> {
    let key = OrderKey { merchant_id: merchant_id.clone(), order_no: new.order_no.clone() };
    let lock = app.locks.acquire(Scene::Refund, &key.lock_key()).await;
    if let Err(busy) = lock {
        // One last look: whoever has the lock may be making this very one.
        let found = app.db.retrying(|| look(app, merchant_id, &new.refund_no)).await?;
        return repeated(app, found.ok_or(busy)?, new, asked_by).await;
    }
    // Allotted once: a second run after a lost answer must meet the refund of the first.
    let id = app.ids.refund();
    app.db.retrying(|| create_once(app, &key, id.clone(), new, asked_by)).await
}

/// The refund of that number.
///
/// # Errors
/// [`RefundError::NotFound`] when this merchant has none of that number.
pub async fn find(app: &App, merchant_id: &MerchantId, refund_no: &RefundNo) -> Result<Refund, RefundError> {
    app.db.retrying(|| look(app, merchant_id, refund_no)).await?.ok_or(RefundError::NotFound)
}

async fn look(
    app: &App,
    merchant_id: &MerchantId,
    refund_no: &RefundNo,
) -> Result<Option<Refund>, RefundError> {
    Ok(store::find_by_number(&mut app.db.conn().await?, merchant_id, refund_no).await?)
}

async fn create_once(
    app: &App,
    key: &OrderKey,
    id: RefundId,
    new: &NewRefund,
    asked_by: AskedBy<'_>,
) -> Result<Created, RefundError> {
    if let Some(found) = look(app, &key.merchant_id, &new.refund_no).await? {
        return repeated(app, found, new, asked_by).await;
    }
    let mut tx = app.db.begin().await?;
    let outcome = create_in_tx(&mut tx, key, id, new, asked_by, app.now()).await;
    match effect!("refunds.create", tx.finish(outcome).await).map_err(RefundError::of) {
        Ok(refund) => {
            app.compensation_wake.notify_one();
            Ok(Created { refund, is_new: true })
        }
        // Somebody was faster where there is no lock.
        Err(RefundError::Db(error)) if error.constraint() == Some("refunds_merchant_refund_no_key") => {
            let found = look(app, &key.merchant_id, &new.refund_no).await?;
            repeated(app, found.ok_or(RefundError::NotFound)?, new, asked_by).await
        }
        Err(error) => Err(error),
    }
}

async fn create_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    id: RefundId,
    new: &NewRefund,
    asked_by: AskedBy<'_>,
    now: OffsetDateTime,
) -> Result<Refund, RefundError> {
    let order = orders::lock_in_tx(tx, key).await?.ok_or(RefundError::OrderNotFound)?;
    let refund = ask(tx, &order, id, new, asked_by).await?;
    store::insert_refund(tx, &refund, now).await?;
    if refund.status == RefundStatus::Pending {
        append_task_in_tx(tx, &refund, now).await?;
    }
    match asked_by {
        AskedBy::Merchant(Some(keep)) => {
            let row = keep.row(Created { refund: refund.clone(), is_new: true });
            idempotency::insert(tx, &row, refund.order_no.as_deref(), now).await?;
        }
        AskedBy::Merchant(None) => {}
        AskedBy::Operator(entry) => {
            admin_log::append_in_tx(tx, &Entry { order: Some(key.clone()), ..entry.clone() }, now).await?;
        }
    }
    if order.kind == OrderKind::TopUp {
        book::post_set_aside_in_tx(tx, &refund, &order, now).await?;
    }
    Ok(refund)
}

/// The refund to write, when the locked order has so much left.
async fn ask(
    tx: &mut Tx,
    order: &Order,
    id: RefundId,
    new: &NewRefund,
    asked_by: AskedBy<'_>,
) -> Result<Refund, RefundError> {
    let pay_order_id = match (order.status, &order.paid_by) {
        (OrderStatus::Pending | OrderStatus::Closed, _) | (_, None) => return Err(RefundError::OrderNotPaid),
        (_, Some(pay_order_id)) => pay_order_id.clone(),
    };
    let terms = store::find_terms(tx, &order.key(), &pay_order_id).await?;
    let left = order.amount - terms.asked;
    let amount = new.amount.map_or(left, Amount::minor);
    if amount < 1 || amount > left {
        return Err(RefundError::ExceedsPaid(left));
    }
    let waits = terms.approval_above.is_some_and(|limit| amount > limit);
    Ok(Refund {
        refund_id: id.to_string(),
        refund_no: new.refund_no.to_string(),
        merchant_id: Some(order.merchant_id.to_string()),
        order_no: Some(order.order_no.to_string()),
        pay_order_id: Some(pay_order_id),
        stray_id: None,
        amount,
        currency: order.currency,
        status: if waits { RefundStatus::AwaitingApproval } else { RefundStatus::Pending },
        reason: new.reason.clone(),
        failure: None,
        channel_refund_id: None,
        return_stock: new.return_stock,
        asked_by: match asked_by {
            AskedBy::Merchant(_) => None,
            AskedBy::Operator(entry) => Some(entry.actor.clone()),
        },
    })
}

/// The task that sends the money back, from the transaction that says so.
pub(super) async fn append_task_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let task = NewTask {
        action: Action::DriveRefund,
        subject: &refund.refund_id,
        merchant_id: refund.merchant_id.as_deref(),
        order_no: refund.order_no.as_deref(),
        due_at: now,
    };
    compensation::append(tx, &task, now).await
}

/// The answer to a repeat: the refund as it stands by now, when it is the same.
async fn repeated(
    app: &App,
    refund: Refund,
    new: &NewRefund,
    asked_by: AskedBy<'_>,
) -> Result<Created, RefundError> {
    let differing = refund.differing_fields(new);
    if !differing.is_empty() {
        return Err(RefundError::ParamsMismatch(differing));
    }
    let repeated = Created { refund, is_new: false };
    if let AskedBy::Merchant(Some(keep)) = asked_by {
        let row = keep.row(repeated.clone());
        let (mut conn, order_no) = (app.db.conn().await?, Some(new.order_no.as_str()));
        effect!("refunds.keep", idempotency::insert(&mut conn, &row, order_no, app.now()).await)?;
    }
    Ok(repeated)
}
