//! The rules of asking: what becomes of refunds that are asked for of locked orders, one after the other. Pure.
//!
//! A batch puts on the desk what it has locked (orders, and what the users of top-ups can spend) and what was asked of
//! it before, lets each command ask in its turn, each seeing what the one before it left, and then writes down what
//! the desk has noted.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;

use super::book;
use super::create::{AskedBy, Created};
use super::error::{Left, RefundError};
use super::model::{NewRefund, Refund, RefundStatus};
use crate::ids::{MerchantId, RefundId};
use crate::ledger::{Account, Posting, Wallet};
use crate::money::{Amount, Currency};
use crate::orders::{OrderKey, OrderKind, OrderStatus};

/// Asks for a refund, or for the one of that number.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Its id, should it be new.
    pub(super) refund_id: RefundId,
    pub(super) merchant_id: MerchantId,
    pub(super) new: NewRefund,
    pub(super) asked_by: AskedBy,
    /// Until when its task is in hand, where the caller has a slot for it.
    pub(super) leased_until: Option<OffsetDateTime>,
    pub(super) now: OffsetDateTime,
}

/// What decides over refunds of an order, which is locked.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) kind: OrderKind,
    pub(super) status: OrderStatus,
    pub(super) user_id: String,
    /// Minor units that were paid.
    pub(super) amount: i64,
    pub(super) currency: Currency,
    /// The attempt that paid.
    pub(super) paid_by: Option<String>,
    /// Minor units of its payment's refunds that have not failed, or that the channel made after all, or may have.
    pub(super) asked: i64,
    /// Of these what has gone, or may have, by refunds that stand failed.
    pub(super) gone: i64,
    /// Whether reconciliation charged the user of a top-up for it, and nobody gave that back.
    pub(super) is_charged: bool,
    /// Above so many minor units an operator must let a refund go.
    pub(super) approval_above: Option<i64>,
    /// Whether tasks may be taken: their lane does not rest.
    pub(super) may_begin: bool,
}

/// What a batch has locked, and what is to be written.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) orders: HashMap<OrderKey, Terms>,
    /// What users can spend, by account; one that never had anything is absent.
    pub(super) available: BTreeMap<Account, i64>,
    /// The refunds of the numbers that are asked for: those that were there, and those that are new.
    pub(super) known: HashMap<(String, String), Refund>,
    pub(super) made: Vec<Refund>,
    pub(super) postings: Vec<Posting>,
}

impl Ask {
    /// The order whose money is to go back.
    pub(super) fn order_key(&self) -> OrderKey {
        OrderKey { merchant_id: self.merchant_id.clone(), order_no: self.new.order_no.clone() }
    }

    fn number(&self) -> (String, String) {
        (self.merchant_id.to_string(), self.new.refund_no.to_string())
    }

    /// The refund of its number, which is its own where the answer of a first run was lost.
    fn repeat(&self, found: &Refund) -> Result<Created, RefundError> {
        let differing = found.differing_fields(&self.new);
        if !differing.is_empty() {
            return Err(RefundError::ParamsMismatch(differing));
        }
        let is_new = found.refund_id == self.refund_id.as_str();
        Ok(Created { refund: found.clone(), is_new, task: None })
    }

    fn refund(&self, terms: &Terms, pay_order_id: String, amount: i64) -> Refund {
        let status = match terms.approval_above {
            Some(limit) if amount > limit => RefundStatus::AwaitingApproval,
            // Its channel is asked as soon as it is written.
            _ if self.leased_until.is_some() && terms.may_begin => RefundStatus::Processing,
            _ => RefundStatus::Pending,
        };
        Refund {
            refund_id: self.refund_id.to_string(),
            refund_no: self.new.refund_no.to_string(),
            merchant_id: Some(self.merchant_id.to_string()),
            order_no: Some(self.new.order_no.to_string()),
            pay_order_id: Some(pay_order_id),
            stray_id: None,
            amount,
            currency: terms.currency,
            status,
            reason: self.new.reason.clone(),
            failure: None,
            channel_refund_id: None,
            return_stock: self.new.return_stock,
            asked_by: match &self.asked_by {
                AskedBy::Merchant(_) => None,
                AskedBy::Operator(entry) => Some(entry.actor.clone()),
            },
            made_after_all_at: None,
        }
    }
}

impl Terms {
    /// Where the money of a top-up is.
    pub(super) fn wallet(&self, merchant_id: &MerchantId) -> Wallet {
        Wallet::of(merchant_id.as_str(), &self.user_id, self.currency)
    }
}

impl Desk {
    /// Makes a refund, where so much is left of what was paid and a top-up's user still has it; or gives the one of its
    /// number, where it is the same.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Created, RefundError> {
        if let Some(found) = self.known.get(&ask.number()) {
            return ask.repeat(found);
        }
        let terms = self.orders.get_mut(&ask.order_key()).ok_or(RefundError::OrderNotFound)?;
        let pay_order_id = match (terms.status, &terms.paid_by) {
            (OrderStatus::Pending | OrderStatus::Closed, _) | (_, None) => {
                return Err(RefundError::OrderNotPaid);
            }
            (_, Some(pay_order_id)) => pay_order_id.clone(),
        };
        if terms.is_charged {
            return Err(RefundError::TopUpCharged);
        }
        let left = Left::of(terms.amount, terms.asked, terms.gone);
        let amount = ask.new.amount.map_or(left.amount, Amount::minor);
        if amount < 1 || amount > left.amount {
            return Err(RefundError::ExceedsPaid(left));
        }
        let refund = ask.refund(terms, pay_order_id, amount);
        if terms.kind == OrderKind::TopUp {
            let wallet = terms.wallet(&ask.merchant_id);
            let available = self.available.get_mut(&wallet.available).filter(|has| **has >= amount);
            *available.ok_or(RefundError::InsufficientBalance)? -= amount;
            self.postings.push(book::set_aside(&refund, wallet));
        }
        terms.asked += amount;

        self.known.insert(ask.number(), refund.clone());
        self.made.push(refund.clone());
        Ok(Created { refund, is_new: true, task: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::infra::clock::Clock;

    fn desk(kind: OrderKind, approval_above: Option<i64>) -> Desk {
        let terms = Terms {
            kind,
            status: OrderStatus::Paid,
            user_id: "u".to_owned(),
            amount: 100,
            currency: "CNY".parse().unwrap(),
            paid_by: Some("po_1".to_owned()),
            asked: 0,
            gone: 0,
            is_charged: false,
            approval_above,
            may_begin: true,
        };
        let key = OrderKey { merchant_id: "m".parse().unwrap(), order_no: "A".parse().unwrap() };
        let wallet = terms.wallet(&key.merchant_id);
        Desk {
            orders: HashMap::from([(key, terms)]),
            available: BTreeMap::from([(wallet.available, 50)]),
            ..Desk::default()
        }
    }

    fn ask(number: &str, order_no: &str, amount: Option<i64>) -> Ask {
        let clock = Clock::system();
        Ask {
            refund_id: Ids::random(clock.clone()).refund(),
            merchant_id: "m".parse().unwrap(),
            new: NewRefund {
                refund_no: number.parse().unwrap(),
                order_no: order_no.parse().unwrap(),
                amount: amount.map(|amount| Amount::try_from(amount).unwrap()),
                reason: "requested".to_owned(),
                return_stock: false,
            },
            asked_by: AskedBy::Merchant(None),
            leased_until: None,
            now: clock.now(),
        }
    }

    #[test]
    fn those_of_one_order_take_what_the_ones_before_them_left() {
        let mut desk = desk(OrderKind::Sale, None);
        assert!(desk.ask(&ask("R1", "A", Some(60))).unwrap().is_new);
        let refused = desk.ask(&ask("R2", "A", Some(60)));
        assert!(
            matches!(refused, Err(RefundError::ExceedsPaid(Left { amount: 40, gone: 0 }))),
            "{refused:?}"
        );
        assert_eq!(desk.ask(&ask("R3", "A", None)).unwrap().refund.amount, 40);
        assert!(matches!(
            desk.ask(&ask("R4", "A", None)),
            Err(RefundError::ExceedsPaid(Left { amount: 0, .. }))
        ));
        assert!(matches!(desk.ask(&ask("R4", "B", None)), Err(RefundError::OrderNotFound)));
        assert_eq!(desk.made.iter().map(|made| made.amount).collect::<Vec<_>>(), [60, 40]);
    }

    #[test]
    fn what_was_made_after_all_is_not_left_and_may_be_more_than_was_paid_with_what_was_asked_since() {
        let mut desk = desk(OrderKind::Sale, None);
        desk.orders.values_mut().for_each(|terms| (terms.asked, terms.gone) = (60, 60));
        let refused = desk.ask(&ask("R2", "A", Some(41))).unwrap_err().to_string();
        let said = "40 minor units are left of what was paid: refunds of 60 that did not succeed were made after all, or may have been";
        assert_eq!(refused, said);
        assert_eq!(desk.ask(&ask("R2", "A", None)).unwrap().refund.amount, 40);

        desk.orders.values_mut().for_each(|terms| terms.asked = 120);
        let refused = desk.ask(&ask("R3", "A", None));
        assert!(matches!(refused, Err(RefundError::ExceedsPaid(Left { amount: 0, .. }))), "{refused:?}");
    }

    #[test]
    fn a_number_means_one_refund_also_within_a_batch() {
        let mut desk = desk(OrderKind::Sale, None);
        let first = ask("R1", "A", Some(60));
        desk.ask(&first).unwrap();
        let repeated = desk.ask(&ask("R1", "A", None)).unwrap();
        assert!(!repeated.is_new && repeated.refund.refund_id == first.refund_id.as_str());
        assert!(desk.ask(&first).unwrap().is_new, "its own, whose answer was lost");
        let other = desk.ask(&ask("R1", "B", Some(61)));
        assert!(
            matches!(&other, Err(RefundError::ParamsMismatch(fields)) if *fields == ["order_no", "amount"])
        );
        assert_eq!(desk.made.len(), 1);
    }

    #[test]
    fn what_is_in_hand_begins_unless_it_waits_for_an_operator_or_its_lane_rests() {
        let in_hand = |number| {
            let ask = ask(number, "A", Some(10));
            Ask { leased_until: Some(ask.now), ..ask }
        };
        let mut one = desk(OrderKind::Sale, None);
        assert_eq!(one.ask(&in_hand("R1")).unwrap().refund.status, RefundStatus::Processing);
        assert_eq!(one.ask(&ask("R2", "A", Some(10))).unwrap().refund.status, RefundStatus::Pending);
        one.orders.values_mut().for_each(|terms| terms.may_begin = false);
        assert_eq!(one.ask(&in_hand("R3")).unwrap().refund.status, RefundStatus::Pending);
        let waits = desk(OrderKind::Sale, Some(9)).ask(&in_hand("R1")).unwrap();
        assert_eq!(waits.refund.status, RefundStatus::AwaitingApproval);
    }

    #[test]
    fn a_top_up_that_its_user_was_charged_for_gives_nothing_back() {
        let mut desk = desk(OrderKind::TopUp, None);
        desk.orders.values_mut().for_each(|terms| terms.is_charged = true);
        assert!(matches!(desk.ask(&ask("R1", "A", Some(10))), Err(RefundError::TopUpCharged)));
        assert!(desk.made.is_empty() && desk.postings.is_empty());
    }

    #[test]
    fn a_top_up_gives_what_its_user_has_and_a_limit_makes_it_wait() {
        let mut desk = desk(OrderKind::TopUp, Some(30));
        let waits = desk.ask(&ask("R1", "A", Some(40))).unwrap();
        assert_eq!(waits.refund.status, RefundStatus::AwaitingApproval);
        assert!(matches!(desk.ask(&ask("R2", "A", Some(11))), Err(RefundError::InsufficientBalance)));
        let goes = desk.ask(&ask("R3", "A", Some(10))).unwrap();
        assert_eq!((goes.refund.status, desk.postings.len()), (RefundStatus::Pending, 2));
    }
}
