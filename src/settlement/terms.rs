//! What a commission is computed from, and how: whole numbers only, rounded down once.

use std::fmt;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};

use crate::infra::numeric::numeric;

/// Decimal places of a rate.
const RATE_PLACES: u32 = 8;
/// Decimal places of a factor.
const FACTOR_PLACES: u32 = 4;
/// What a factor of 1 is in its own units.
const FACTOR_ONE: i64 = 10_i64.pow(FACTOR_PLACES);
/// What the product of a rate and a factor of 1 is in their own units.
const UNIT: i128 = 10_i128.pow(RATE_PLACES + FACTOR_PLACES);

/// The number in units of its last place, if it has no more places than that.
fn in_units(value: Decimal, places: u32) -> Option<i64> {
    let value = value.normalize();
    if value.scale() > places {
        return None;
    }
    value.checked_mul(Decimal::from(10_i64.pow(places)))?.to_i64()
}

/// A rate that is not from 0 to 1, or has more than 8 places.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected a decimal from 0 to 1 with 8 places at most")]
pub struct InvalidRate;

/// A share, from 0 to 1 with 8 decimal places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "Decimal")]
pub struct Rate(i64);

impl TryFrom<Decimal> for Rate {
    type Error = InvalidRate;
    fn try_from(rate: Decimal) -> Result<Self, InvalidRate> {
        let units = in_units(rate, RATE_PLACES).filter(|units| (0..=10_i64.pow(RATE_PLACES)).contains(units));
        units.map(Self).ok_or(InvalidRate)
    }
}

impl TryFrom<String> for Rate {
    type Error = InvalidRate;
    fn try_from(text: String) -> Result<Self, InvalidRate> {
        // Exactly: what would have to be rounded is refused.
        Decimal::from_str_exact(&text).map_err(|_| InvalidRate)?.try_into()
    }
}

impl From<Rate> for Decimal {
    fn from(rate: Rate) -> Self {
        Self::new(rate.0, RATE_PLACES).normalize()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal::from(*self).fmt(f)
    }
}

/// A factor that is not above 0 and at most 10, or has more than 4 places.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected a decimal above 0 and at most 10 with 4 places at most")]
pub struct InvalidFactor;

/// What a user's commissions are multiplied by: above 0 and at most 10, with 4 decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "Decimal")]
pub struct Factor(i64);

impl Factor {
    /// Of users without a level.
    pub const ONE: Self = Self(FACTOR_ONE);
}

impl TryFrom<Decimal> for Factor {
    type Error = InvalidFactor;
    fn try_from(factor: Decimal) -> Result<Self, InvalidFactor> {
        let units = in_units(factor, FACTOR_PLACES).filter(|units| (1..=10 * FACTOR_ONE).contains(units));
        units.map(Self).ok_or(InvalidFactor)
    }
}

impl TryFrom<String> for Factor {
    type Error = InvalidFactor;
    fn try_from(text: String) -> Result<Self, InvalidFactor> {
        // Exactly: what would have to be rounded is refused.
        Decimal::from_str_exact(&text).map_err(|_| InvalidFactor)?.try_into()
    }
}

impl From<Factor> for Decimal {
    fn from(factor: Factor) -> Self {
        Self::new(factor.0, FACTOR_PLACES).normalize()
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal::from(*self).fmt(f)
    }
}

numeric!(Rate, Factor);

/// The terms of one order: its lines with their rates, and the factor of who earns.
#[derive(Clone, Debug)]
pub struct Terms {
    amount: i64,
    /// The amounts of the lines by their rates, in units of a rate.
    weight: i128,
    factor: Factor,
}

impl Terms {
    /// Of an order of so much (minor units, 1 to 10^12), whose lines make it up.
    #[must_use]
    pub fn new(amount: i64, lines: impl IntoIterator<Item = (i64, Rate)>, factor: Factor) -> Self {
        // At most 10^12 × 10^8.
        let weight = lines.into_iter().map(|(line, rate)| i128::from(line) * i128::from(rate.0)).sum();
        Self { amount, weight, factor }
    }

    /// floor(Σ line amount × rate × factor × base / amount), in minor units: what is due on so much of the amount.
    #[must_use]
    pub fn commission_floor(&self, base: i64) -> i64 {
        // At most 10^20 × 10^5 × 10^12 = 10^37, and 128 bits hold 1.7 × 10^38; by at least 10^12.
        let numerator = self.weight * i128::from(self.factor.0) * i128::from(base);
        let commission = numerator / (i128::from(self.amount) * UNIT);
        // At most ten times the base.
        i64::try_from(commission).unwrap_or(i64::MAX)
    }

    /// The rate over all lines, without what is behind its last place.
    #[must_use]
    pub fn rate_floor(&self) -> Rate {
        Rate(i64::try_from(self.weight / i128::from(self.amount)).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::money::MAX_MINOR;

    fn rate(text: &str) -> Rate {
        text.to_owned().try_into().unwrap()
    }

    fn factor(text: &str) -> Factor {
        text.to_owned().try_into().unwrap()
    }

    fn commission(lines: &[(i64, &str)], by: &str, base: i64) -> i64 {
        let amount = lines.iter().map(|(line, _)| line).sum();
        let lines = lines.iter().map(|(line, text)| (*line, rate(text)));
        Terms::new(amount, lines, factor(by)).commission_floor(base)
    }

    #[test]
    fn a_commission_is_rounded_down_once() {
        for (lines, by, base, expected) in [
            (&[(1990, "0.05")][..], "1", 1990, 99),
            (&[(1990, "0.05")], "1.2", 1990, 119),
            // Two halves of a unit each: 0.5 + 0.5, where rounding each line would give nothing.
            (&[(10, "0.05"), (10, "0.05")], "1", 20, 1),
            (&[(1000, "0.1"), (500, "0"), (490, "1")], "1", 1990, 590),
            (&[(1000, "0.1"), (1000, "0.3")], "1", 1000, 200),
            (&[(1000, "0.1")], "1", 999, 99),
            (&[(1, "0.99999999")], "1", 1, 0),
            (&[(1, "1")], "10", 1, 10),
            (&[(1990, "0")], "10", 1990, 0),
            (&[(MAX_MINOR, "1")], "10", MAX_MINOR, 10 * MAX_MINOR),
            (&[(MAX_MINOR, "0.99999999")], "9.9999", MAX_MINOR - 1, 9_999_899_899_991),
            (&[(MAX_MINOR, "0.00000001")], "0.0001", MAX_MINOR, 1),
        ] {
            assert_eq!(commission(lines, by, base), expected, "{lines:?} {by} {base}");
        }
    }

    /// Long multiplication and division by hand, in decimal digits: slow, and with no width to overflow.
    fn by_hand(weight: i128, factor: i64, base: i64, amount: i64) -> i64 {
        let mut digits: Vec<u8> = weight.to_string().bytes().rev().map(|digit| digit - b'0').collect();
        for by in [factor, base] {
            let mut carry: i128 = 0;
            let mut product = Vec::new();
            for digit in digits {
                carry += i128::from(digit) * i128::from(by);
                product.push(u8::try_from(carry % 10).unwrap());
                carry /= 10;
            }
            while carry > 0 {
                product.push(u8::try_from(carry % 10).unwrap());
                carry /= 10;
            }
            digits = product;
        }
        let (mut rest, mut quotient, divisor) = (0_i128, 0_i64, i128::from(amount) * UNIT);
        for digit in digits.into_iter().rev() {
            rest = rest * 10 + i128::from(digit);
            quotient = quotient * 10 + i64::try_from(rest / divisor).unwrap();
            rest %= divisor;
        }
        quotient
    }

    #[test]
    fn nothing_overflows_and_every_unit_is_right() {
        let seed = rand::rng().random::<u64>();
        let mut random = StdRng::seed_from_u64(seed);
        let top = 10_i64.pow(RATE_PLACES);
        for _ in 0..20_000 {
            let count = random.random_range(1..=5);
            let most = MAX_MINOR / count;
            let extreme = random.random_bool(0.3);
            let lines: Vec<(i64, Rate)> = (0..count)
                .map(|_| match extreme {
                    true => (most, Rate(top - random.random_range(0..2))),
                    false => (random.random_range(1..=most), Rate(random.random_range(0..=top))),
                })
                .collect();
            let amount = lines.iter().map(|(line, _)| line).sum::<i64>();
            let factor = if extreme { 10 * FACTOR_ONE } else { random.random_range(1..=10 * FACTOR_ONE) };
            let base = if extreme { amount } else { random.random_range(0..=amount) };
            let terms = Terms::new(amount, lines, Factor(factor));
            let expected = by_hand(terms.weight, factor, base, amount);
            assert_eq!(terms.commission_floor(base), expected, "seed {seed}: {terms:?} on {base}");
            assert!(terms.rate_floor() <= Rate(top));
        }
    }

    #[test]
    fn rates_and_factors_end_where_they_should() {
        for (text, is_rate, is_factor) in [
            ("0", true, false),
            ("1", true, true),
            ("1.00000000", true, true),
            ("0.00000001", true, false),
            ("0.000000001", false, false),
            ("1.00000001", false, false),
            ("-0.1", false, false),
            ("10", false, true),
            ("10.0001", false, false),
            ("0.0001", true, true),
            ("79228162514264337593543950335", false, false),
        ] {
            let value: Decimal = text.parse().unwrap();
            assert_eq!(Rate::try_from(value).is_ok(), is_rate, "{text}");
            assert_eq!(Factor::try_from(value).is_ok(), is_factor, "{text}");
        }
        assert_eq!(rate("0.050").to_string(), "0.05");
    }
}
