//! Money: whole minor units of one currency. No float comes near it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// Largest amount of one order, payment or refund, in minor units: 10^12.
pub const MAX_MINOR: i64 = 1_000_000_000_000;

/// An amount that is not between 1 and 10^12 minor units.
#[derive(Debug, thiserror::Error)]
#[error("expected a whole number of minor units from 1 to 1000000000000")]
pub struct InvalidAmount;

/// A positive amount in minor units (cents, fen) without its currency: 1 … 10^12.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(try_from = "i64", into = "i64")]
#[schema(value_type = i64, minimum = 1, maximum = 1_000_000_000_000_i64, example = 1990)]
pub struct Amount(i64);

impl Amount {
    /// The number of minor units.
    #[must_use]
    pub const fn minor(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for Amount {
    type Error = InvalidAmount;
    fn try_from(minor: i64) -> Result<Self, InvalidAmount> {
        if (1..=MAX_MINOR).contains(&minor) { Ok(Self(minor)) } else { Err(InvalidAmount) }
    }
}

impl From<Amount> for i64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

/// A code that is not a currency of ISO 4217.
#[derive(Debug, thiserror::Error)]
#[error("expected an upper-case currency code of ISO 4217, such as CNY or USD")]
pub struct UnknownCurrency;

/// A currency of ISO 4217, such as `CNY`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 3, max_length = 3, example = "CNY")]
pub struct Currency([u8; 3]);

impl Currency {
    /// The three letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("???")
    }
}

impl FromStr for Currency {
    type Err = UnknownCurrency;
    fn from_str(code: &str) -> Result<Self, UnknownCurrency> {
        // The crate's own parser is case-insensitive in places; the contract is not.
        let letters: [u8; 3] = code.as_bytes().try_into().map_err(|_| UnknownCurrency)?;
        let is_upper_case = letters.iter().all(u8::is_ascii_uppercase);
        if is_upper_case && iso_currency::Currency::from_code(code).is_some() {
            Ok(Self(letters))
        } else {
            Err(UnknownCurrency)
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = UnknownCurrency;
    fn try_from(code: String) -> Result<Self, UnknownCurrency> {
        code.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Type<Postgres> for Currency {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
    fn compatible(ty: &PgTypeInfo) -> bool {
        <str as Type<Postgres>>::compatible(ty)
    }
}

impl Encode<'_, Postgres> for Currency {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.as_str(), buf)
    }
}

impl<'r> Decode<'r, Postgres> for Currency {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(<&str as Decode<Postgres>>::decode(value)?.parse()?)
    }
}

/// A positive amount of one currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Money {
    /// How many minor units.
    pub amount: Amount,
    /// Of what.
    pub currency: Currency,
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (minor units)", self.amount.minor(), self.currency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_end_where_the_contract_ends() {
        for (minor, is_valid) in [(i64::MIN, false), (-1, false), (0, false), (1, true), (MAX_MINOR, true)] {
            assert_eq!(Amount::try_from(minor).is_ok(), is_valid, "{minor}");
        }
        assert!(Amount::try_from(MAX_MINOR + 1).is_err());
    }

    #[test]
    fn only_upper_case_codes_of_the_standard_pass() {
        assert_eq!("CNY".parse::<Currency>().unwrap().as_str(), "CNY");
        for bad in ["cny", "XXY", "", "CN", "CNYY", "人民"] {
            assert!(bad.parse::<Currency>().is_err(), "{bad}");
        }
    }
}
