//! The books as a whole: the trial balance, and a look at one booking.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;
use time::OffsetDateTime;

use super::model::{AccountKind, PostingKind};
use super::store;
use crate::infra::db::{Db, DbError};
use crate::money::Currency;

/// Every account's balance, on the side where it stands. Minor units.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct TrialBalance {
    /// Whether debits and credits are equal in every currency.
    pub balanced: bool,
    /// What both sides come to, by currency.
    pub totals: Vec<TrialTotal>,
    /// The accounts; those of one merchant's users are one row for each kind.
    pub accounts: Vec<TrialRow>,
}

/// What the accounts of one currency come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TrialTotal {
    /// Of what.
    pub currency: Currency,
    /// The sum of the debits.
    #[schema(example = 1990)]
    pub debit: i64,
    /// The sum of the credits.
    #[schema(example = 1990)]
    pub credit: i64,
}

/// What accounts of one kind and owner come to: one of both sides is zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TrialRow {
    /// Of what.
    pub currency: Currency,
    /// What the accounts stand for.
    pub kind: AccountKind,
    /// Whose they are, where they are a merchant's or those of its users.
    #[schema(example = "demo")]
    pub merchant_id: Option<String>,
    /// Which channel's, where they are one's.
    #[schema(example = "sandbox")]
    pub channel: Option<String>,
    /// What they come to where debits prevail.
    #[schema(example = 0)]
    pub debit: i64,
    /// What they come to where credits prevail.
    #[schema(example = 1990)]
    pub credit: i64,
}

/// One booking.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Booking {
    /// Its id: what was booked, and which one.
    #[schema(example = "PAYMENT:po_06H8K2M4N6P8R0T2V4X6Z8B0D2")]
    pub transaction_id: String,
    /// What was booked.
    pub kind: PostingKind,
    /// Whose, where that is known.
    #[schema(example = "demo")]
    pub merchant_id: Option<String>,
    /// Of which order, where it is one's.
    #[schema(example = "A-1")]
    pub order_no: Option<String>,
    /// The booking that this one takes back.
    pub reverses: Option<String>,
    /// The booking that takes this one back.
    pub reversed_by: Option<String>,
    /// When it was booked.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Its entries: debits and credits are equal in every currency.
    pub entries: Vec<BookingEntry>,
}

/// One side of a booking.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BookingEntry {
    /// The account: kind, owner and currency.
    #[schema(example = "CHANNEL:sandbox:CNY")]
    pub account: String,
    /// Minor units on the debit side.
    #[schema(example = 1990)]
    pub debit: i64,
    /// Minor units on the credit side.
    #[schema(example = 0)]
    pub credit: i64,
}

/// The id of a booking, as it may stand in a path.
#[derive(Clone, Debug)]
pub struct TransactionId(String);

/// A text that is no booking's id.
#[derive(Debug, thiserror::Error)]
#[error("expected the id of a booking, such as PAYMENT:po_…")]
pub struct NoTransactionId;

/// Longer than any: a kind, a kind, and two identifiers.
const MAX_TRANSACTION_ID: usize = 200;

impl FromStr for TransactionId {
    type Err = NoTransactionId;
    fn from_str(text: &str) -> Result<Self, NoTransactionId> {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':');
        let is_id = (1..=MAX_TRANSACTION_ID).contains(&text.len()) && text.bytes().all(is_part);
        if is_id { Ok(Self(text.to_owned())) } else { Err(NoTransactionId) }
    }
}

/// Adds all accounts up, with what is not folded into their balances yet: one statement, so one snapshot.
///
/// # Errors
/// When the database cannot be reached.
pub async fn trial_balance(db: &Db) -> Result<TrialBalance, DbError> {
    let mut tx = db.conn().await?.begin_snapshot().await?;
    let rows = store::sum_accounts(&mut tx).await;
    Ok(TrialBalance::of(tx.finish(rows).await?))
}

/// The booking of that id.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find_booking(db: &Db, id: &TransactionId) -> Result<Option<Booking>, DbError> {
    db.retrying(|| async { store::find_booking(&mut db.conn().await?, &id.0).await }).await
}

impl TrialBalance {
    fn of(accounts: Vec<TrialRow>) -> Self {
        let mut sums: BTreeMap<Currency, (i128, i128)> = BTreeMap::new();
        for row in &accounts {
            let (debit, credit) = sums.entry(row.currency).or_default();
            *debit += i128::from(row.debit);
            *credit += i128::from(row.credit);
        }
        let shown = |sum: i128| i64::try_from(sum).unwrap_or(i64::MAX);
        let balanced = sums.values().all(|(debit, credit)| debit == credit);
        let totals = sums.into_iter().map(|(currency, (debit, credit))| TrialTotal {
            currency,
            debit: shown(debit),
            credit: shown(credit),
        });
        Self { balanced, totals: totals.collect(), accounts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_balance_is_balanced_in_each_currency_or_not_at_all() {
        let row = |currency: &str, debit, credit| TrialRow {
            currency: currency.parse().unwrap(),
            kind: AccountKind::Channel,
            merchant_id: None,
            channel: None,
            debit,
            credit,
        };
        let even =
            TrialBalance::of(vec![row("CNY", 7, 0), row("USD", 0, 2), row("CNY", 0, 7), row("USD", 2, 0)]);
        assert!(even.balanced);
        assert_eq!(even.totals.len(), 2);
        assert!(!TrialBalance::of(vec![row("CNY", 7, 0), row("USD", 0, 7)]).balanced);
        let most = TrialBalance::of(vec![row("CNY", i64::MAX, 0), row("CNY", 1, 0), row("CNY", 0, i64::MAX)]);
        assert!(!most.balanced, "sums do not stop where a bigint does");
    }

    #[test]
    fn ids_of_bookings_are_checked() {
        assert!("REVERSAL:REFUND:rf_1".parse::<TransactionId>().is_ok());
        for bad in ["", "PAYMENT:a b", "PAYMENT:\0", &"x".repeat(201)] {
            assert!(bad.parse::<TransactionId>().is_err(), "{bad}");
        }
    }
}
