//! The words and rows of receivables.

use serde::Serialize;
use time::OffsetDateTime;

use super::error::ReceivableError;
use crate::ids::{ClearingNo, MerchantId, UserId};
use crate::infra::repeat::differing;
use crate::infra::words::words;
use crate::ledger::{Account, Posting, PostingKind};
use crate::money::{Amount, Currency};
use crate::outbox::Event;

words! {
    /// How a debt is cleared.
    pub enum ClearingKind {
        /// It is taken from what its user has.
        Collection = "COLLECTION",
        /// It is the merchant's loss.
        WriteOff = "WRITE_OFF",
    }
}

/// Who owes, and in which currency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debtor<'a> {
    /// Whose user.
    pub(crate) merchant_id: &'a str,
    /// Who owes.
    pub(crate) user_id: &'a str,
    /// Of what.
    pub(crate) currency: Currency,
}

impl Debtor<'_> {
    /// What they have.
    pub(crate) fn available(self) -> Account {
        Account::user_available(self.merchant_id, self.user_id, self.currency)
    }

    /// What they owe.
    pub(crate) fn receivable(self) -> Account {
        Account::user_receivable(self.merchant_id, self.user_id, self.currency)
    }

    /// Adds to a booking that they pay so many minor units to an account, as far as they have so many, and owe the rest. With
    /// how much that is.
    pub(crate) fn charge(self, booking: Posting, to: &Account, amount: i64, has: i64) -> (Posting, i64) {
        let taken = amount.min(has);
        let owed = amount - taken;
        let booking = booking.transfer(self.available(), to.clone(), taken);
        (booking.transfer(self.receivable(), to.clone(), owed), owed)
    }

    /// What their merchant has, which bears what is written off: when the debt came to be it was credited in full, or its channel was.
    pub(crate) fn merchant(self) -> Account {
        Account::merchant(self.merchant_id, self.currency)
    }
}

/// A debt to clear.
#[derive(Clone, Debug)]
pub struct NewClearing {
    /// Whose user.
    pub merchant_id: MerchantId,
    /// The operator's number.
    pub clearing_no: ClearingNo,
    /// How.
    pub kind: ClearingKind,
    /// Who owes.
    pub user_id: UserId,
    /// How much; nothing for all that is owed, as far as it is there where it is collected.
    pub amount: Option<Amount>,
    /// Of what.
    pub currency: Currency,
}

impl NewClearing {
    pub(super) fn debtor(&self) -> Debtor<'_> {
        Debtor {
            merchant_id: self.merchant_id.as_str(),
            user_id: self.user_id.as_str(),
            currency: self.currency,
        }
    }

    /// How much is cleared of so much that is owed, by somebody who has so much.
    pub(super) fn due(&self, owes: i64, has: i64) -> Result<i64, ReceivableError> {
        let most = match self.kind {
            ClearingKind::Collection => owes.min(has),
            ClearingKind::WriteOff => owes,
        };
        match self.amount.map(Amount::minor) {
            _ if owes == 0 => Err(ReceivableError::NothingOwed),
            Some(amount) if amount > owes => Err(ReceivableError::ExceedsOwed(owes)),
            Some(amount) if amount <= most => Ok(amount),
            None if most > 0 => Ok(most),
            _ => Err(ReceivableError::InsufficientBalance),
        }
    }

    pub(super) fn cleared(&self, amount: i64, now: OffsetDateTime) -> Clearing {
        Clearing {
            merchant_id: self.merchant_id.clone(),
            clearing_no: self.clearing_no.clone(),
            kind: self.kind,
            user_id: self.user_id.clone(),
            amount,
            currency: self.currency,
            recovered: 0,
            created_at: now,
        }
    }
}

/// A debt, or a part of it, that was cleared.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Clearing {
    /// Whose user.
    pub merchant_id: MerchantId,
    /// The operator's number.
    pub clearing_no: ClearingNo,
    /// How.
    pub kind: ClearingKind,
    /// Who owes it no more.
    pub user_id: UserId,
    /// Minor units.
    #[schema(example = 150)]
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// Minor units that came back of what was written off, because what its user had owed it for was undone.
    #[schema(example = 0)]
    pub recovered: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

impl Clearing {
    /// The fields in which a repeat differs. An amount that it leaves out is as it was.
    pub(super) fn differing_fields(&self, new: &NewClearing) -> Vec<&'static str> {
        differing([
            ("kind", self.kind == new.kind),
            ("user_id", self.user_id == new.user_id),
            ("amount", new.amount.is_none_or(|amount| amount.minor() == self.amount)),
            ("currency", self.currency == new.currency),
        ])
    }

    /// Takes it off what is owed: from what the user has, or as the merchant's loss.
    pub(super) fn posting(&self, debtor: Debtor<'_>) -> Posting {
        let (kind, debit) = match self.kind {
            ClearingKind::Collection => (PostingKind::Collection, debtor.available()),
            ClearingKind::WriteOff => (PostingKind::WriteOff, debtor.merchant()),
        };
        Posting::new(kind, &format!("{}:{}", self.merchant_id, self.clearing_no))
            .of(Some(self.merchant_id.as_str()), None)
            .transfer(debit, debtor.receivable(), self.amount)
    }

    pub(super) fn announcement(&self) -> Event {
        let (clearing_no, user_id) = (self.clearing_no.to_string(), self.user_id.to_string());
        let (amount, currency) = (self.amount, self.currency);
        match self.kind {
            ClearingKind::Collection => Event::ReceivableCollected { clearing_no, user_id, amount, currency },
            ClearingKind::WriteOff => Event::ReceivableWrittenOff { clearing_no, user_id, amount, currency },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(kind: ClearingKind, amount: Option<i64>, owes: i64, has: i64) -> Result<i64, String> {
        let new = NewClearing {
            merchant_id: "m".parse().unwrap(),
            clearing_no: "C".parse().unwrap(),
            kind,
            user_id: "u".parse().unwrap(),
            amount: amount.map(|minor| Amount::try_from(minor).unwrap()),
            currency: "CNY".parse().unwrap(),
        };
        new.due(owes, has).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn what_is_cleared_is_owed_and_what_is_collected_is_there() {
        use ClearingKind::{Collection, WriteOff};
        let no = |why: &str| Err(why.to_owned());
        for (kind, amount, owes, has, expected) in [
            (Collection, None, 7, 10, Ok(7)),
            (Collection, None, 7, 4, Ok(4)),
            (Collection, None, 7, 0, no("InsufficientBalance")),
            (Collection, Some(4), 7, 4, Ok(4)),
            (Collection, Some(5), 7, 4, no("InsufficientBalance")),
            (Collection, Some(8), 7, 10, no("ExceedsOwed(7)")),
            (Collection, None, 0, 10, no("NothingOwed")),
            (WriteOff, None, 7, 0, Ok(7)),
            (WriteOff, Some(7), 7, 0, Ok(7)),
            (WriteOff, Some(8), 7, 10, no("ExceedsOwed(7)")),
            (WriteOff, Some(1), 0, 10, no("NothingOwed")),
        ] {
            assert_eq!(due(kind, amount, owes, has), expected, "{kind} {amount:?} of {owes} by {has}");
        }
    }
}
