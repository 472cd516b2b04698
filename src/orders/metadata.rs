//! A merchant's own notes on an order: a JSON object whose values come back as they were written, numbers to their last digit.
//! The order of its keys, a key's earlier values, and how a number is written (`1e5`) do not stay.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sqlx::types::Json;

/// Characters of a number at most.
const MAX_NUMBER: usize = 1000;
/// How far its exponent may move a number's point, either way: PostgreSQL writes the zeros out.
const MAX_EXPONENT: u32 = 308;
/// And how far the exponents of all its numbers may, together.
const MAX_EXPONENTS: u32 = 10_000;

/// Notes that PostgreSQL can hold.
#[derive(Clone, Debug, Serialize, sqlx::Type)]
#[serde(transparent)]
#[sqlx(transparent)]
pub struct Metadata(Json<Box<RawValue>>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Box::<RawValue>::deserialize(deserializer)?;
        // What was not looked into may be too deep, or hold half a surrogate. The value itself would hold floats.
        let value: Value = serde_json::from_str(written.get()).map_err(D::Error::custom)?;
        if !value.is_object() {
            return Err(D::Error::custom("expected a JSON object"));
        }
        let exponents = numbers(written.get()).try_fold(0, |sum, number| Some(sum + exponent_of(number)?));
        if exponents.is_none_or(|sum| sum > MAX_EXPONENTS) {
            return Err(D::Error::custom(format!(
                "expected numbers of at most {MAX_NUMBER} characters, with exponents from -{MAX_EXPONENT} to \
                 {MAX_EXPONENT}, which come to {MAX_EXPONENTS} at most together"
            )));
        }
        Ok(Self(Json(written)))
    }
}

/// The numbers in a text that is known to be JSON.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let ends_number = move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_in_string,
            '"' => is_in_string = !is_in_string,
            _ => {}
        }
        is_in_string || !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
    };
    // An `e` alone is the end of `true` or `false`.
    json.split(ends_number).filter(|text| text.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
}

/// How far its exponent moves a number's point; nothing where that, or the number, is more than can be kept.
fn exponent_of(number: &str) -> Option<u32> {
    let exponent = number.split_once(['e', 'E']).map_or(Ok(0), |(_, exponent)| exponent.parse::<i32>());
    let exponent = exponent.ok()?.unsigned_abs();
    (number.len() <= MAX_NUMBER && exponent <= MAX_EXPONENT).then_some(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_what_looks_like_them() {
        let json = r#"{"1":"2\"3\\","a":[true,-4.5e+6,false,{"\\":7}],"b" : 8E-9 ,"c":null,"d":0}"#;
        assert_eq!(numbers(json).collect::<Vec<_>>(), ["-4.5e+6", "7", "8E-9", "0"]);
    }

    #[test]
    fn notes_are_kept_as_they_were_written_or_refused() {
        for written in [
            "{}",
            r#"{"trade":2013112011001004330000121536, "rate": 1.10}"#,
            r#"{"a":1e308,"b":1E-308,"text":"1e999"}"#,
        ] {
            let metadata: Metadata = serde_json::from_str(written).expect(written);
            assert_eq!(serde_json::to_string(&metadata).expect("JSON"), written);
        }
        let long = format!(r#"{{"a":0.{}}}"#, "1".repeat(MAX_NUMBER));
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        let wrong = [
            "[]",
            "5",
            "\"x\"",
            r#"{"a":1e309}"#,
            r#"{"a":1e-309}"#,
            r#"{"a":1e-99999999999}"#,
            r#"{"a":"\ud800"}"#,
        ];
        let many = format!(r#"{{"a":[{}0]}}"#, "1e300,".repeat(34));
        for written in wrong.into_iter().chain([long.as_str(), deep.as_str(), many.as_str()]) {
            assert!(serde_json::from_str::<Metadata>(written).is_err(), "{written}");
        }
    }
}
