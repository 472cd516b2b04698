//! Reading a webhook of the sandbox whose signature holds.
//!
//! Always true: what is read fits the database (no control characters, bounded length, real amounts,
//! currencies and moments), and money is never read out of a body that does not say all of it.

use serde::Deserialize;
use time::OffsetDateTime;

use crate::channels::{CallbackError, CallbackEvent, Payment, RefundState, Refusal, TradeState, text};
use crate::money::{Amount, Currency, Money};

use super::protocol::refund_number;

/// The fields of both kinds of body. Fields we do not know are tolerated.
#[derive(Debug, Deserialize)]
struct Body {
    event_id: String,
    kind: Option<String>,
    out_trade_no: Option<String>,
    // Of payments.
    transaction_id: Option<String>,
    total_fee: Option<i64>,
    trade_status: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    paid_at: Option<OffsetDateTime>,
    // Of refunds.
    refund_id: Option<String>,
    refund_fee: Option<i64>,
    status: Option<String>,
    // Of both.
    currency: Option<String>,
}

/// Reads a body into its event id and what it reports.
pub(super) fn read(
    body: &[u8],
    received_at: OffsetDateTime,
) -> Result<(String, CallbackEvent), CallbackError> {
    let body: Body = serde_json::from_slice(body).map_err(|_| CallbackError::Malformed)?;
    let event_id = number(Some(&body.event_id))?;
    let event = match body.kind.as_deref() {
        None | Some("PAYMENT") => trade_event(&body, received_at)?,
        Some("REFUND") => refund_event(&body)?,
        // A kind of event that came after this release: stored and acknowledged.
        Some(_) => CallbackEvent::Other,
    };
    Ok((event_id, event))
}

fn trade_event(body: &Body, received_at: OffsetDateTime) -> Result<CallbackEvent, CallbackError> {
    let state = match body.trade_status.as_deref() {
        Some("SUCCESS") => TradeState::Paid(Payment {
            transaction_id: number(body.transaction_id.as_ref())?,
            money: money(body.total_fee, body.currency.as_deref())?,
            paid_at: text::moment(body.paid_at.unwrap_or(received_at)).ok_or(CallbackError::Malformed)?,
        }),
        Some("FAILED") => TradeState::Failed(Refusal {
            code: "TRADE_DECLINED".to_owned(),
            message: "the buyer declined the trade".to_owned(),
        }),
        Some("CLOSED") => TradeState::Closed,
        _ => return Err(CallbackError::Malformed),
    };
    Ok(CallbackEvent::Trade { pay_order_id: number(body.out_trade_no.as_ref())?, state })
}

fn refund_event(body: &Body) -> Result<CallbackEvent, CallbackError> {
    let refund_id = number(body.refund_id.as_ref())?;
    let money = Some(money(body.refund_fee, body.currency.as_deref())?);
    let state = match body.status.as_deref() {
        Some("SUCCEEDED") => RefundState::Succeeded { channel_refund_id: refund_number(&refund_id) },
        Some("FAILED") => RefundState::Failed(Refusal {
            code: "REFUND_FAILED".to_owned(),
            message: "the sandbox could not give the money back".to_owned(),
        }),
        _ => return Err(CallbackError::Malformed),
    };
    Ok(CallbackEvent::Refund { refund_id, money, state })
}

fn number(value: Option<&String>) -> Result<String, CallbackError> {
    value.and_then(|text| text::number(text)).ok_or(CallbackError::Malformed)
}

fn money(minor: Option<i64>, currency: Option<&str>) -> Result<Money, CallbackError> {
    let amount = minor.and_then(|minor| Amount::try_from(minor).ok());
    let currency = currency.and_then(|code| code.parse::<Currency>().ok());
    amount.zip(currency).map(|(amount, currency)| Money { amount, currency }).ok_or(CallbackError::Malformed)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);

    fn payment() -> Value {
        json!({
            "event_id": "evt_1", "transaction_id": "txn_1", "out_trade_no": "po_1", "total_fee": 1990,
            "currency": "CNY", "trade_status": "SUCCESS", "paid_at": "2025-12-31T23:59:58Z",
        })
    }

    fn with(mut body: Value, field: &str, value: Value) -> Value {
        body[field] = value;
        body
    }

    fn read_value(body: &Value) -> Result<CallbackEvent, CallbackError> {
        read(body.to_string().as_bytes(), NOW).map(|(_, event)| event)
    }

    #[test]
    fn a_payment_is_read_with_fields_we_do_not_know() {
        let event = read_value(&with(payment(), "buyer", json!({"vip": true}))).unwrap();
        let CallbackEvent::Trade { pay_order_id, state: TradeState::Paid(payment) } = event else {
            panic!("{event:?}");
        };
        assert_eq!((pay_order_id.as_str(), payment.transaction_id.as_str()), ("po_1", "txn_1"));
        assert_eq!(payment.money.amount.minor(), 1990);
        assert_eq!(payment.paid_at, datetime!(2025-12-31 23:59:58 UTC));
    }

    #[test]
    fn money_that_is_none_is_malformed() {
        for fee in
            [json!(0), json!(-1), json!(1_000_000_000_001_i64), json!(19.9), json!("1990"), Value::Null]
        {
            assert_eq!(read_value(&with(payment(), "total_fee", fee)), Err(CallbackError::Malformed));
        }
        assert!(read_value(&with(payment(), "currency", json!("cny"))).is_err());
    }

    #[test]
    fn texts_that_the_database_cannot_hold_are_malformed() {
        for bad in [json!(""), json!("a\u{0}b"), json!("x".repeat(129)), json!(7), Value::Null] {
            for field in ["event_id", "transaction_id", "out_trade_no"] {
                assert!(read_value(&with(payment(), field, bad.clone())).is_err(), "{field}: {bad}");
            }
        }
    }

    #[test]
    fn moments_are_told_in_utc_and_those_that_no_calendar_has_are_malformed() {
        let east =
            read_value(&with(payment(), "paid_at", json!("2026-01-01T08:00:00.123456789+08:00"))).unwrap();
        let CallbackEvent::Trade { state: TradeState::Paid(east), .. } = east else { panic!("{east:?}") };
        assert_eq!(east.paid_at, datetime!(2026-01-01 00:00:00.123456 UTC));
        assert!(east.paid_at.offset().is_utc());
        for none in ["9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+00:01", "1970-01-01T00:00:00+08:00"] {
            assert!(read_value(&with(payment(), "paid_at", json!(none))).is_err(), "{none}");
        }
    }

    #[test]
    fn failure_needs_no_money_and_unknown_words_are_sorted_out() {
        let failed = json!({"event_id": "e", "out_trade_no": "po_1", "trade_status": "FAILED"});
        assert!(matches!(
            read_value(&failed).unwrap(),
            CallbackEvent::Trade { state: TradeState::Failed(_), .. }
        ));
        assert_eq!(read_value(&json!({"event_id": "e", "kind": "DISPUTE"})), Ok(CallbackEvent::Other));
        assert!(read_value(&with(payment(), "trade_status", json!("MAYBE"))).is_err());
    }

    #[test]
    fn a_refund_is_read() {
        let refund = json!({
            "event_id": "evt_2", "kind": "REFUND", "refund_id": "rf_1", "out_trade_no": "po_1",
            "refund_fee": 500, "currency": "CNY", "status": "SUCCEEDED",
        });
        let expected = CallbackEvent::Refund {
            refund_id: "rf_1".into(),
            money: Some(Money { amount: Amount::try_from(500).unwrap(), currency: "CNY".parse().unwrap() }),
            state: RefundState::Succeeded { channel_refund_id: "sr_rf_1".into() },
        };
        assert_eq!(read_value(&refund), Ok(expected));
        assert!(matches!(
            read_value(&with(refund, "status", json!("FAILED"))).unwrap(),
            CallbackEvent::Refund { state: RefundState::Failed(_), .. }
        ));
    }
}
