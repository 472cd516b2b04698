//! Callbacks that are signed well and say anything.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::infra::fuzz::cases;

fn word() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => "[a-z_0-9]{1,20}".prop_map(Value::from),
        1 => ".{0,140}".prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (-2..=MAX_FEE + 2).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => "[0-9]{1,5}".prop_map(Value::from),
    ]
}

const MAX_FEE: i64 = crate::money::MAX_MINOR;
const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 00:00 UTC);

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let is_read = read(&bytes, NOW).is_ok();
        prop_assert!(!is_read);
    }

    #[test]
    fn money_is_read_as_it_was_said_or_not_at_all(
        names in (word(), word(), word()),
        fee in number(),
        currency in prop_oneof![Just("CNY"), Just("USD"), Just("cny"), Just("XXY")],
        status in prop_oneof![Just("SUCCESS"), Just("FAILED"), Just("CLOSED"), Just("MAYBE")],
        paid_at in prop::option::of("[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-9]{2}(Z|[+-][0-2][0-9]:[0-9]{2})"),
    ) {
        let (event_id, transaction_id, out_trade_no) = names;
        let mut body = json!({
            "event_id": event_id, "transaction_id": transaction_id, "out_trade_no": out_trade_no,
            "total_fee": fee, "currency": currency, "trade_status": status,
        });
        if let Some(paid_at) = paid_at {
            body["paid_at"] = json!(paid_at);
        }
        let Ok((id, event)) = read(body.to_string().as_bytes(), NOW) else { return Ok(()) };
        prop_assert_eq!(json!(id), event_id);
        let CallbackEvent::Trade { pay_order_id, state } = event else { return Err(TestCaseError::fail("no trade")) };
        prop_assert!((1..=128).contains(&pay_order_id.len()) && !pay_order_id.contains(char::is_control));
        prop_assert_eq!(json!(pay_order_id), out_trade_no);
        if let TradeState::Paid(payment) = state {
            prop_assert_eq!(json!(payment.money.amount.minor()), fee);
            prop_assert_eq!(payment.money.currency.as_str(), currency);
            prop_assert_eq!(json!(payment.transaction_id), transaction_id);
            prop_assert_eq!(status, "SUCCESS");
            prop_assert!(payment.paid_at.offset().is_utc() && payment.paid_at.year() >= 2000);
        } else {
            prop_assert_ne!(status, "SUCCESS");
        }
    }
}
