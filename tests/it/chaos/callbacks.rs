//! Callbacks beside those of the sandbox itself: late and repeated ones of payments that it took in silence, by clocks of
//! its own, and forged ones.

use futures_util::future::join_all;
use payonce::channels::sandbox::signature::{HEADER, Keys};
use serde_json::{Value, json};
use time::Duration;

use super::client::ANSWER_WITHIN;
use super::life::Seller;
use super::told::CALLBACKS;
use crate::support::{Reply, SANDBOX_SECRET};

/// What a right clock takes, an old callback, and one from the future.
const DATED_SECS: [i64; 6] = [0, 0, -200, 200, -900, 900];

/// How far a callback may be dated from now, either way.
const MOST_SKEW_SECS: i64 = 300;

/// A payment that the channel took and has not told of.
pub struct Callback(Value);

impl Callback {
    /// By the receipt, if there is one: what was paid already, or cannot be paid, has none.
    pub fn of(attempt: &str, receipt: &Value) -> Option<Self> {
        receipt["transaction_id"].as_str()?;
        Some(Self(json!({
            "event_id": format!("late-{attempt}"), "transaction_id": receipt["transaction_id"],
            "out_trade_no": attempt, "total_fee": receipt["amount"], "currency": receipt["currency"],
            "trade_status": "SUCCESS", "paid_at": receipt["paid_at"],
        })))
    }
}

impl Seller {
    /// Tells of it once or several times at once, by clocks that agree or not, and notes what was answered. Whatever comes
    /// of it, the payment is true, so the order is paid once, by this or when the channel is asked.
    pub async fn call_back(&mut self, callback: &Callback) {
        let body = serde_json::to_vec(&callback.0).expect("json");
        let keys = Keys::new(&[SANDBOX_SECRET.into()]).expect("a secret");
        let times = 1 + self.chance.one_of(4);
        let dates: Vec<_> = (0..times).map(|_| DATED_SECS[self.chance.one_of(DATED_SECS.len())]).collect();
        let sent = dates.iter().enumerate().map(|(turn, dated)| {
            let signature = keys.sign(&body, self.shop.app.clock.now() + Duration::seconds(*dated));
            self.deliver(turn, &body, signature)
        });
        for (dated, reply) in dates.iter().zip(join_all(sent).await) {
            let Some(reply) = reply else { continue };
            // By the right clock, whatever the machine's shows.
            let verdict = if dated.abs() > MOST_SKEW_SECS { 400 } else { 200 };
            let is_so = reply.status == verdict || matches!(reply.status, 429 | 500 | 503);
            assert!(is_so, "{} to a callback dated {dated} s from now", reply.status);
            self.merchant.note(self.merchant.noted(), CALLBACKS, "", callback.0.clone(), &reply);
        }
    }

    /// Somebody without the secret says that it was paid.
    pub async fn forge(&self, attempt: &str) {
        let app = &self.shop.app;
        let event = format!("forged-{attempt}");
        let body = serde_json::to_vec(&app.success(&event, attempt, &event, 1990)).expect("json");
        let signature = forged(&app.sign(&body));
        for turn in 0..self.merchant.urls.len() {
            if let Some(reply) = self.deliver(turn, &body, signature.clone()).await {
                assert!(matches!(reply.status, 400 | 429 | 503), "{}", reply.status);
            }
        }
    }

    /// The answer, if there is one.
    async fn deliver(&self, turn: usize, body: &[u8], signature: String) -> Option<Reply> {
        let url = &self.merchant.urls[turn % self.merchant.urls.len()];
        let request = self.shop.app.http.post(format!("{url}{CALLBACKS}")).body(body.to_vec());
        let request = request.timeout(ANSWER_WITHIN);
        Some(Reply::of(request.header(HEADER, signature).send().await.ok()?).await)
    }
}

fn forged(right: &str) -> String {
    let (rest, last) = right.split_at(right.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}
