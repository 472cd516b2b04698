//! Where the money of a refund was collected: by the attempt that paid an order, or as stray money.

use super::model::{Refund, StrayPayment};
use super::store;
use crate::infra::db::{Conn, DbError, Tx};
use crate::ledger::Account;
use crate::money::Currency;
use crate::orders::{self, Order, OrderKey, OrderKind};
use crate::pay::{self, Attempt};
use crate::receivables::Debtor;

/// What a refund gives back.
#[derive(Clone, Debug)]
pub(super) enum Collected {
    /// What paid an order, or a part of it.
    Payment(Box<Payment>),
    /// Stray money, all of it.
    Stray(Box<StrayPayment>),
}

/// The attempt that paid an order.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) attempt: Attempt,
    pub(super) order: Order,
}

/// What a refund gives back, as it stands.
pub(super) async fn find(conn: &mut Conn, refund: &Refund) -> Result<Option<Collected>, DbError> {
    if let Some(stray_id) = &refund.stray_id {
        let stray = store::find_stray(conn, stray_id).await?;
        return Ok(stray.map(Box::new).map(Collected::Stray));
    }
    let Some(id) = &refund.pay_order_id else { return Ok(None) };
    let Some(attempt) = pay::find_attempt(conn, id).await? else { return Ok(None) };
    let order = orders::find_in(conn, &attempt.order_key()).await?;
    Ok(order.map(|order| Collected::Payment(Box::new(Payment { attempt, order }))))
}

/// A refund and what it gives back.
pub(super) async fn find_with_refund(
    conn: &mut Conn,
    refund_id: &str,
) -> Result<Option<(Refund, Collected)>, DbError> {
    let Some(refund) = store::find_refund(conn, refund_id).await? else { return Ok(None) };
    Ok(find(conn, &refund).await?.map(|collected| (refund, collected)))
}

/// The same, both locked: the order first, as by everybody, also where the money is none of its own, because what is
/// told of it is told under the order's number and in its order; then the stray payment.
pub(super) async fn lock_with_refund(
    tx: &mut Tx,
    refund_id: &str,
) -> Result<Option<(Refund, Collected)>, DbError> {
    let Some(refund) = store::find_refund(tx, refund_id).await? else { return Ok(None) };
    let order = match refund.order_key() {
        Some(key) => orders::lock_in_tx(tx, &key).await?,
        None => None,
    };
    let collected = match (&refund.stray_id, order, &refund.pay_order_id) {
        (Some(stray_id), ..) => store::lock_stray(tx, stray_id).await?.map(Box::new).map(Collected::Stray),
        (None, Some(order), Some(id)) => pay::find_attempt(tx, id)
            .await?
            .map(|attempt| Collected::Payment(Box::new(Payment { attempt, order }))),
        _ => None,
    };
    store::lock_refund(tx, refund_id).await?;
    // Read again under the locks: its state may have moved while we waited.
    Ok(store::find_refund(tx, refund_id).await?.zip(collected))
}

/// A stray payment, locked behind its order: as with a refund of it.
pub(super) async fn lock_stray_with_order(
    tx: &mut Tx,
    stray_id: &str,
) -> Result<Option<StrayPayment>, DbError> {
    let Some(stray) = store::find_stray(tx, stray_id).await? else { return Ok(None) };
    if let Some(key) = OrderKey::from_columns(stray.merchant_id.as_deref(), stray.order_no.as_deref()) {
        orders::lock_in_tx(tx, &key).await?;
    }
    store::lock_stray(tx, stray_id).await
}

impl Collected {
    pub(super) fn channel(&self) -> &str {
        match self {
            Self::Payment(payment) => &payment.attempt.channel,
            Self::Stray(stray) => &stray.channel,
        }
    }

    /// The channel's number of the trade that took the money.
    pub(super) fn transaction_id(&self) -> &str {
        match self {
            Self::Payment(payment) => payment.attempt.transaction_id.as_deref().unwrap_or_default(),
            Self::Stray(stray) => &stray.transaction_id,
        }
    }

    /// The pay order that the channel knows the trade by.
    pub(super) fn out_trade_no(&self) -> &str {
        match self {
            Self::Payment(payment) => payment.attempt.pay_order_id.as_str(),
            Self::Stray(stray) => &stray.out_trade_no,
        }
    }

    /// Whose books the money leaves when it goes back.
    pub(super) fn account(&self) -> Account {
        match self {
            Self::Stray(stray) => Account::suspense(&stray.channel, stray.currency),
            Self::Payment(payment) => {
                let Order { kind, merchant_id, user_id, currency, .. } = &payment.order;
                account_of(*kind, merchant_id.as_str(), user_id.as_str(), *currency)
            }
        }
    }

    /// Whether the money had to be set aside before it may go back: a user could have spent it meanwhile.
    pub(super) fn is_set_aside(&self) -> bool {
        self.user().is_some()
    }

    /// Whose it is to spend, where it is a top-up's.
    pub(super) fn user(&self) -> Option<Debtor<'_>> {
        match self {
            Self::Payment(payment) if payment.order.kind == OrderKind::TopUp => {
                let Order { merchant_id, user_id, currency, .. } = &payment.order;
                let (merchant_id, user_id) = (merchant_id.as_str(), user_id.as_str());
                Some(Debtor { merchant_id, user_id, currency: *currency })
            }
            Self::Payment(_) | Self::Stray(_) => None,
        }
    }
}

/// Whose books the money of an order leaves when it goes back: the merchant's, or what was set aside of its user's
/// top-up.
pub(super) fn account_of(kind: OrderKind, merchant_id: &str, user_id: &str, currency: Currency) -> Account {
    match kind {
        OrderKind::Sale => Account::merchant(merchant_id, currency),
        OrderKind::TopUp => Account::user_held(merchant_id, user_id, currency),
    }
}

impl Refund {
    /// The order that it belongs to, where it is known.
    pub(super) fn order_key(&self) -> Option<OrderKey> {
        OrderKey::from_columns(self.merchant_id.as_deref(), self.order_no.as_deref())
    }
}
