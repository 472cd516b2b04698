//! Answers of an operator's endpoint, right and wrong.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::Line;
use super::*;
use crate::infra::fuzz::cases;
use crate::orders::OrderKey;

/// Questions about orders of so many lines each.
fn questions(lines: &[usize]) -> Vec<Question> {
    let order = OrderKey { merchant_id: "m".parse().expect("one"), order_no: "A".parse().expect("one") };
    let question = |count: &usize| Question {
        order: order.clone(),
        user_id: "u".parse().expect("one"),
        lines: vec![Line { sku: None, amount: 1 }; *count],
        listed: Quote { rates: Vec::new(), factor: Factor::ONE },
    };
    lines.iter().map(question).collect()
}

/// What may stand where a decimal should, most of it one.
fn decimal() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => "0\\.[0-9]{1,8}".prop_map(Value::from),
        1 => "1?[0-9](\\.[0-9]{0,12})?".prop_map(Value::from),
        1 => "\\PC{0,10}".prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

/// Some orders, as the endpoint answers them.
fn answer() -> impl Strategy<Value = Vec<(Vec<Value>, Value)>> {
    prop::collection::vec((prop::collection::vec(decimal(), 0..4), decimal()), 0..4)
}

/// What an answer says, where all of it says something.
fn said(orders: &[(Vec<Value>, Value)]) -> Option<Vec<Quote>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rate = |value: &Value| Rate::try_from(text(value)?).ok();
    let quote = |(rates, factor): &(Vec<Value>, Value)| {
        let rates = rates.iter().map(rate).collect::<Option<_>>()?;
        Some(Quote { rates, factor: Factor::try_from(text(factor)?).ok()? })
    };
    orders.iter().map(quote).collect()
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_bytes_break_the_reader(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[{}\\[\\]\",:0-9. a-z]{0,120}".prop_map(String::into_bytes),
    ]) {
        prop_assert!(read(&bytes, &questions(&[1])).is_err());
    }

    #[test]
    fn an_answer_is_read_as_it_was_said_or_not_at_all(
        orders in answer(),
        others in prop::option::of(prop::collection::vec(0..4_usize, 0..4)),
    ) {
        let answered: Vec<usize> = orders.iter().map(|(rates, _)| rates.len()).collect();
        let asked = others.unwrap_or_else(|| answered.clone());
        let told: Vec<Value> = orders.iter().map(|(rates, factor)| json!({"rates": rates, "factor": factor})).collect();
        let quotes = read(json!({ "orders": told }).to_string().as_bytes(), &questions(&asked)).ok();
        prop_assert_eq!(quotes, said(&orders).filter(|_| asked == answered));
    }

    #[test]
    fn half_an_answer_is_none(orders in answer(), place in any::<prop::sample::Index>()) {
        let asked: Vec<usize> = orders.iter().map(|(rates, _)| rates.len()).collect();
        let told: Vec<Value> = orders.iter().map(|(rates, factor)| json!({"rates": rates, "factor": factor})).collect();
        let whole = json!({ "orders": told }).to_string().into_bytes();
        prop_assert!(read(&whole[..place.index(whole.len())], &questions(&asked)).is_err());
    }
}
