//! Amounts and times as files write them. No float: digits are moved, not numbers.

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::{BadStatement, Fault, Window};
use crate::money::{Currency, MAX_MINOR};

/// What is behind the last place of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Must be nothing.
    Refused,
    /// Is rounded half up: fees may be parts of a cent.
    Rounded,
}

/// Minor units of a decimal such as `-12.30`, by so many places; no more than one movement may be.
pub(super) fn minor(text: &str, places: usize, rest: Rest) -> Option<i64> {
    sum(text, places, rest).filter(|minor| (-MAX_MINOR..=MAX_MINOR).contains(minor))
}

/// The same for what many movements come to.
pub(super) fn sum(text: &str, places: usize, rest: Rest) -> Option<i64> {
    let text = text.trim();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let (kept, behind) = fraction.split_at(fraction.len().min(places));
    let mut minor: i64 = format!("{whole}{kept:0<places$}").parse().ok()?;
    match rest {
        Rest::Refused if behind.bytes().any(|digit| digit != b'0') => return None,
        Rest::Rounded if behind.bytes().next().is_some_and(|digit| digit >= b'5') => {
            minor = minor.checked_add(1)?;
        }
        Rest::Refused | Rest::Rounded => {}
    }
    Some(if is_negative { -minor } else { minor })
}

/// Decimal places of a currency in files that write major units.
pub(super) fn places(currency: Currency) -> usize {
    let known = iso_currency::Currency::from_code(currency.as_str());
    known.and_then(iso_currency::Currency::exponent).map_or(2, usize::from)
}

/// A currency as files write it, in upper or lower case.
pub(super) fn currency(text: &str, line: u64) -> Result<Currency, BadStatement> {
    let text = text.trim().to_ascii_uppercase();
    text.parse().map_err(|_| {
        BadStatement::new(Fault::Currency, format!("line {line}: `{text}` is no currency of ISO 4217"))
    })
}

const WALL: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// A wall clock of the channel's, such as `2026-06-05 16:01:38`.
pub(super) fn wall(text: &str, window: Window) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(text.trim(), WALL).ok().and_then(|wall| window.instant(wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yuan_become_fen_by_their_digits() {
        for (text, fen) in [
            ("0.01", 1),
            ("88.80", 8880),
            ("88.8", 8880),
            ("7", 700),
            ("-0.29", -29),
            ("+1.10", 110),
            ("0.00000", 0),
            ("4503599627.37", 450_359_962_737),
        ] {
            assert_eq!(minor(text, 2, Rest::Refused), Some(fen), "{text}");
        }
        for bad in
            ["", ".", "-", "1.234", "1,00", "1e3", "٣", "99999999999999", "0x1", "1.2.3", "10000000000.01"]
        {
            assert_eq!(minor(bad, 2, Rest::Refused), None, "{bad}");
        }
        assert_eq!(minor("0.00600", 2, Rest::Rounded), Some(1));
        assert_eq!(minor("-0.01499", 2, Rest::Rounded), Some(-1));
    }

    #[test]
    fn places_are_those_of_the_currency() {
        let places_of = |code: &str| places(code.parse().unwrap());
        assert_eq!(["CNY", "JPY", "KWD", "ISK"].map(places_of), [2, 0, 3, 0]);
        assert_eq!(minor("5.00", 0, Rest::Refused), Some(5));
    }
}
