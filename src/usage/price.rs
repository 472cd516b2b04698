//! Prices, and what so many units come to: whole numbers only, rounded once, on the total.

use std::fmt;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};

use crate::infra::numeric::numeric;
use crate::money::MAX_MINOR;

/// Decimal places of a price.
const PLACES: u32 = 10;
/// What a minor unit is in units of a price's last place.
const ONE: i128 = 10_i128.pow(PLACES);

/// A price that is not from 0 to 10^12, or has more than 10 places.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected a decimal from 0 to 1000000000000 with 10 places at most")]
pub struct InvalidPrice;

/// Minor units for one unit, with 10 decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "Decimal")]
pub struct Price(i128);

impl Price {
    /// What so many units cost, rounded up: for what is set aside. `None` when it is more than any amount may be.
    #[must_use]
    pub fn times_ceil(self, units: i64) -> Option<i64> {
        self.times(units, ONE - 1)
    }

    /// What so many units cost, halves rounded up: for what is charged. `None` as above.
    #[must_use]
    pub fn times_half_up(self, units: i64) -> Option<i64> {
        self.times(units, ONE / 2)
    }

    /// At most 10^22 × 10^12, and 128 bits hold 10^38.
    fn times(self, units: i64, to_round: i128) -> Option<i64> {
        let minor = i64::try_from((self.0 * i128::from(units) + to_round) / ONE).ok()?;
        (0..=MAX_MINOR).contains(&minor).then_some(minor)
    }
}

impl TryFrom<Decimal> for Price {
    type Error = InvalidPrice;
    fn try_from(price: Decimal) -> Result<Self, InvalidPrice> {
        let price = price.normalize();
        let is_price = price.scale() <= PLACES
            && !price.is_sign_negative() | price.is_zero()
            && price <= Decimal::from(MAX_MINOR);
        let in_places = is_price.then(|| price.checked_mul(Decimal::from(10_i64.pow(PLACES)))).flatten();
        in_places.and_then(|units| units.to_i128()).map(Self).ok_or(InvalidPrice)
    }
}

impl TryFrom<String> for Price {
    type Error = InvalidPrice;
    fn try_from(text: String) -> Result<Self, InvalidPrice> {
        // Exactly: what would have to be rounded is refused.
        Decimal::from_str_exact(&text).map_err(|_| InvalidPrice)?.try_into()
    }
}

impl From<Price> for Decimal {
    fn from(price: Price) -> Self {
        Self::from_i128_with_scale(price.0, PLACES).normalize()
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal::from(*self).fmt(f)
    }
}

numeric!(Price);

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        Price::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_total_is_rounded_once_up_for_a_hold_and_half_up_for_a_charge() {
        for (text, units, ceil, half_up) in [
            ("0.0003", 0, 0, 0),
            ("0.0003", 1, 1, 0),
            ("0.0003", 1_666, 1, 0),
            ("0.0003", 1_667, 1, 1),
            ("0.0003", 10_000, 3, 3),
            ("0.5", 1, 1, 1),
            ("0.5", 3, 2, 2),
            ("0.4999999999", 1, 1, 0),
            ("0.0000000001", 1_000_000_000_000, 100, 100),
            ("3", 7, 21, 21),
            ("0", 1_000_000_000_000, 0, 0),
        ] {
            assert_eq!(price(text).times_ceil(units), Some(ceil), "{text} × {units}");
            assert_eq!(price(text).times_half_up(units), Some(half_up), "{text} × {units}");
        }
    }

    #[test]
    fn a_total_that_no_amount_may_be_is_none() {
        assert_eq!(price("1").times_ceil(MAX_MINOR), Some(MAX_MINOR));
        assert_eq!(price("1.0000000001").times_ceil(MAX_MINOR), None);
        assert_eq!(price("1000000000000").times_half_up(1_000_000_000_000), None);
    }

    #[test]
    fn prices_end_where_the_contract_ends_and_read_as_they_were_written() {
        for text in ["0", "0.0003", "1000000000000", "999999999999.9999999999", "12.5"] {
            assert_eq!(price(text).to_string(), text);
        }
        for bad in ["-1", "-0.0000000001", "1000000000000.1", "0.00000000001", "1e3", "", "x", "NaN"] {
            assert!(Price::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
