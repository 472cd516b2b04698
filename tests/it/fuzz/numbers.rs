//! Decimals and whole numbers as strangers write them, against a reading of their own digits.

use payonce::money::{Amount, Currency, MAX_MINOR};
use payonce::settlement::{Factor, Rate};
use payonce::usage::{MAX_UNITS, Price, Units};
use proptest::prelude::*;

use super::cases;

/// The number in units of its last place of so many, by its digits alone; nothing where it is none, or has more places.
fn by_digits(text: &str, places: usize) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > places {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

/// Decimals, most of them near what may be.
fn decimal() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[0-9]{1,14}(\\.[0-9]{1,12})?",
        2 => "[01](\\.[0-9]{1,10})?",
        1 => "10{0,12}(\\.0{0,10}1?)?",
        1 => "0{1,5}[0-9]\\.[0-9]{1,4}0{0,8}",
    ]
}

fn anything() -> impl Strategy<Value = String> {
    prop_oneof!["[-+0-9.eE_ ,]{0,40}", "\\PC{0,30}", "[0-9]{20,60}(\\.[0-9]{0,60})?"]
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_rate_is_what_its_digits_say(text in decimal()) {
        let expected = by_digits(&text, 8).filter(|units| *units <= 100_000_000);
        let read = Rate::try_from(text).ok();
        prop_assert_eq!(read.map(|rate| by_digits(&rate.to_string(), 8)), expected.map(Some));
    }

    #[test]
    fn a_factor_is_what_its_digits_say(text in decimal()) {
        let expected = by_digits(&text, 4).filter(|units| (1..=100_000).contains(units));
        let read = Factor::try_from(text).ok();
        let told = read.map(|factor| by_digits(&rust_decimal::Decimal::from(factor).to_string(), 4));
        prop_assert_eq!(told, expected.map(Some));
    }

    #[test]
    fn a_price_is_what_its_digits_say(text in decimal()) {
        let expected = by_digits(&text, 10).filter(|units| *units <= i128::from(MAX_MINOR) * 10_000_000_000);
        let read = Price::try_from(text).ok();
        prop_assert_eq!(read.map(|price| by_digits(&price.to_string(), 10)), expected.map(Some));
    }

    #[test]
    fn a_total_is_rounded_once_and_loses_nothing(text in decimal(), units in 0..=MAX_UNITS) {
        let Ok(price) = Price::try_from(text) else { return Ok(()) };
        // Wholes and parts by themselves, so that no product is as wide as the one that is checked.
        let units_of_price = by_digits(&price.to_string(), 10).expect("a price");
        let (one, count) = (10_000_000_000_i128, i128::from(units));
        let (whole, part) = (units_of_price / one, units_of_price % one);
        let (parts, rest) = ((part * count) / one, (part * count) % one);
        let up = whole * count + parts + i128::from(rest > 0);
        let half_up = whole * count + parts + i128::from(2 * rest >= one);
        let within = |total: i128| i64::try_from(total).ok().filter(|total| *total <= MAX_MINOR);
        prop_assert_eq!(price.times_ceil(units), within(up));
        prop_assert_eq!(price.times_half_up(units), within(half_up));
    }

    #[test]
    fn what_is_no_number_is_refused_and_breaks_nothing(text in anything()) {
        for places in [4, 8, 10] {
            let is_number = by_digits(&text, places).is_some();
            let is_read = match places {
                4 => Factor::try_from(text.clone()).is_ok(),
                8 => Rate::try_from(text.clone()).is_ok(),
                _ => Price::try_from(text.clone()).is_ok(),
            };
            // A sign or a bare point may be read; never what is not made of one number's characters.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-._".contains(&byte));
            prop_assert!(!is_read || is_number || is_plain, "{text:?} with {places} places");
        }
    }

    #[test]
    fn whole_numbers_are_read_within_their_bounds(number in any::<i64>(), near in -3..3_i64) {
        for number in [number, near, MAX_MINOR + near, MAX_UNITS + near] {
            let (amount, units) = (Amount::try_from(number), Units::try_from(number));
            prop_assert_eq!(amount.ok().map(Amount::minor), Some(number).filter(|n| (1..=MAX_MINOR).contains(n)));
            prop_assert_eq!(units.ok().map(Units::count), Some(number).filter(|n| (0..=MAX_UNITS).contains(n)));
            // The same by JSON, and nothing between two whole numbers.
            let (part, text) = (format!("{number}.5"), format!("\"{number}\""));
            let read: Result<Amount, _> = serde_json::from_str(&number.to_string());
            prop_assert_eq!(read.ok().map(Amount::minor), Some(number).filter(|n| (1..=MAX_MINOR).contains(n)));
            prop_assert!(serde_json::from_str::<Amount>(&part).is_err());
            prop_assert!(serde_json::from_str::<Amount>(&text).is_err());
        }
    }

    #[test]
    fn a_currency_is_three_upper_case_letters_or_nothing(text in prop_oneof!["[A-Z]{3}", "[A-Za-z]{2,4}", "\\PC{0,6}"]) {
        if let Ok(currency) = text.parse::<Currency>() {
            prop_assert_eq!(currency.as_str(), text.as_str());
            prop_assert!(text.len() == 3 && text.bytes().all(|letter| letter.is_ascii_uppercase()));
        }
    }
}
