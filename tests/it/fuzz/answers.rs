//! What a channel answers: whatever it is, what is believed of it fits the database, and everything else is silence.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use payonce::channels::bills::check_line;
use payonce::channels::sandbox::{AdapterSettings, SandboxChannel};
use payonce::channels::{
    CallError, Channel, Closing, NewTrade, Payment, PayoutCall, PayoutState, RefundCall, RefundState,
    Refusal, StatementLine, TradeRef, TradeState,
};
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::money::{Amount, Money};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::cases;

/// A gateway that answers everything with what it was given last.
#[derive(Clone, Default)]
struct Gateway(Arc<Mutex<Vec<u8>>>);

impl Gateway {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let answer = async |State(Self(body)): State<Self>| body.lock().expect("no panic").clone();
        let router = axum::Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }
}

/// A number, a link or a word, as a channel may send it.
fn text() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => "[0-9A-Za-z_]{1,64}".prop_map(Value::from),
        2 => "\\PC{0,200}".prop_map(Value::from),
        2 => ".{0,200}".prop_map(|text| Value::from(format!("{text}\0\u{7f}\r\n"))),
        1 => (127..131_usize).prop_map(|length| Value::from("n".repeat(length))),
        1 => (2_040..2_060_usize).prop_map(|length| Value::from("n".repeat(length))),
        1 => Just(Value::Null),
        1 => any::<i64>().prop_map(Value::from),
    ]
}

fn amount() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (1..1_000_000_i64).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
    ]
}

fn moment() -> impl Strategy<Value = Value> {
    let any_day = "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:00:00(Z|[+-][0-9]{2}:00)".prop_map(Value::from);
    prop_oneof![3 => Just(Value::from("2026-11-23T10:00:00Z")), 1 => any_day]
}

const STATES: [&str; 9] =
    ["unseen", "pending", "paid", "declined", "closed", "succeeded", "taken_back", "payment", "else"];

/// An answer in form, with whatever in it; sometimes anything at all.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let currency = prop_oneof![3 => Just(json!("CNY")), 1 => text()];
    let in_form =
        (prop::sample::select(&STATES[..]), text(), text(), amount(), currency, moment(), any::<bool>());
    let in_form = in_form.prop_map(|(word, one, other, amount, currency, at, is_done)| {
        let line = json!({"kind": word, "our_id": one, "channel_id": other, "amount": amount, "currency": currency, "at": at});
        let answer = json!({"state": word, "transaction_id": one, "number": one, "pay_url": one, "amount": amount,
                            "currency": currency, "paid_at": at, "expires_at": at, "lines": [line]});
        let told = if is_done {
            json!({"outcome": "done", "answer": answer})
        } else {
            json!({"outcome": "refused", "code": one, "message": other})
        };
        told.to_string().into_bytes()
    });
    prop_oneof![9 => in_form, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn is_number(text: &str) -> bool {
    (1..=128).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_payment(payment: &Payment) -> bool {
    is_number(&payment.transaction_id) && payment.money.amount.minor() > 0 && is_moment(payment.paid_at)
}

fn is_moment(at: time::OffsetDateTime) -> bool {
    at.offset().is_utc() && at.year() >= 2000
}

fn is_line(line: &StatementLine) -> bool {
    let is_kept = |id: &str| id.chars().count() <= 128 && !id.chars().any(char::is_control);
    is_kept(&line.our_id) && is_kept(&line.channel_id) && !line.channel_id.is_empty() && line.amount > 0
}

/// Whether an answer that was believed, or a refusal, can be kept; silence always can.
fn holds<T>(answer: &Result<T, CallError>, is_sound: impl Fn(&T) -> bool) -> bool {
    let is_short = |refusal: &Refusal| {
        let words = [(&refusal.code, 64), (&refusal.message, 500)];
        words.iter().all(|(text, most)| text.chars().count() <= *most && !text.chars().any(char::is_control))
    };
    match answer {
        Ok(told) => is_sound(told),
        Err(CallError::Refused(refusal)) => is_short(refusal),
        Err(CallError::NotNow | CallError::NotMade(_)) => false,
        Err(CallError::Silent(_)) => true,
    }
}

fn holds_of_trade(state: &TradeState) -> bool {
    if let TradeState::Paid(payment) = state { is_payment(payment) } else { true }
}

/// Asks everything; gives whether all that was answered can be kept, and how much of it was believed.
async fn ask(channel: &SandboxChannel) -> (bool, usize) {
    let (ids, now) = (Ids::random(Clock::system()), Clock::system().now());
    let money =
        Money { amount: Amount::try_from(1990).expect("an amount"), currency: "CNY".parse().expect("one") };
    let trade = TradeRef { pay_order_id: ids.pay_order(), channel_ref: None, money, expires_at: now };
    let refund = RefundCall {
        refund_id: ids.refund(),
        trade: trade.clone(),
        transaction_id: "txn".to_owned(),
        money,
        taken: money,
        reason: "a story".to_owned(),
    };
    let payout = PayoutCall { payout_id: "wd_1".to_owned(), money, account: "an account".to_owned() };
    let new = NewTrade {
        pay_order_id: trade.pay_order_id.clone(),
        money,
        subject: "tea".to_owned(),
        payer_id: "u1".parse().expect("a user"),
        return_url: None,
        expires_at: now,
    };

    let created = channel.create(&new).await;
    let queried = channel.query(&trade).await;
    let closed = channel.close(&trade).await;
    let refunded = [channel.refund(&refund).await, channel.query_refund(&refund).await];
    let paid_out = [channel.payout(&payout).await, channel.query_payout(&payout).await];
    let page = channel.statement(now.date(), None).await;

    let is_refund = |state: &RefundState| {
        if let RefundState::Succeeded { channel_refund_id } = state {
            is_number(channel_refund_id)
        } else {
            true
        }
    };
    let is_payout = |state: &PayoutState| {
        if let PayoutState::Succeeded { channel_payout_id } = state {
            is_number(channel_payout_id)
        } else {
            true
        }
    };
    let is_link = |link: &str| (1..=2_048).contains(&link.len()) && !link.chars().any(char::is_control);
    let is_sound = holds(&created, |created| is_link(&created.pay_url) && is_moment(created.expires_at))
        && holds(&queried, holds_of_trade)
        && holds(
            &closed,
            |closing| !matches!(closing, Closing::AlreadyPaid(Some(payment)) if !is_payment(payment)),
        )
        && refunded.iter().all(|answer| holds(answer, is_refund))
        && paid_out.iter().all(|answer| holds(answer, is_payout))
        // Whoever fetches a statement looks at each line, and names the one that cannot be kept.
        && holds(&page, |page| page.lines.iter().all(|line| check_line(line).is_err() || is_line(line)));
    let believed = [created.is_ok(), queried.is_ok(), closed.is_ok(), page.is_ok()];
    (is_sound, believed.into_iter().filter(|is_ok| *is_ok).count())
}

#[test]
fn no_answer_of_a_channel_meets_a_defect_and_what_is_believed_can_be_kept() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let gateway = Gateway::default();
    let settings = AdapterSettings {
        secrets: vec![SecretString::from("a secret of a story")],
        notify_url: "http://127.0.0.1/webhooks/sandbox".to_owned(),
        deadline: Duration::from_secs(5),
        http: payonce::infra::http_client::builder().build().expect("a client"),
        clock: Clock::system(),
    };
    let url = runtime.block_on(gateway.start());
    let channel = SandboxChannel::remote(&url, settings).expect("a channel");
    let (believed, asked) = (Mutex::new(0), Mutex::new(0));
    let outcome = TestRunner::new(cases(400)).run(&answer(), |answer| {
        *gateway.0.lock().expect("no panic") = answer;
        let (is_sound, count) = runtime.block_on(ask(&channel));
        *believed.lock().expect("no panic") += count;
        *asked.lock().expect("no panic") += 4;
        prop_assert!(is_sound);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let (believed, asked) = (believed.into_inner().expect("no panic"), asked.into_inner().expect("no panic"));
    assert!(believed > asked / 20 && believed < asked, "{believed} of {asked} answers were believed");
}
