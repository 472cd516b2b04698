//! Statements as stories make them, and days that they are compared with.

use std::time::Duration;

use payonce::infra::duty::Batch;
use payonce::reconciliation;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Date, OffsetDateTime};

use super::app::{OPERATOR, TestApp};
use super::reply::Reply;

/// A line of the sandbox's statement.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Line {
    pub kind: String,
    pub our_id: String,
    pub channel_id: String,
    pub amount: i64,
    pub currency: String,
    pub at: OffsetDateTime,
}

/// A whole statement, which says of itself what these lines come to.
pub fn sandbox_csv(day: Date, lines: &[Line]) -> String {
    let mut text = format!("#statement,sandbox,{day}\nkind,our_id,channel_id,amount,currency,at,fee\n");
    for line in lines {
        let Line { kind, our_id, channel_id, amount, currency, at } = line;
        let at = at.format(&Rfc3339).expect("a time");
        text.push_str(&format!("{kind},{our_id},{channel_id},{amount},{currency},{at},0\n"));
    }
    let sum: i64 = lines.iter().map(|line| line.amount).sum();
    text.push_str(&format!("#end,{},{sum}\n", lines.len()));
    text
}

impl TestApp {
    /// Moves the clock to ten o'clock of its next day, so that no story runs over midnight.
    pub fn wait_for_ten(&self) -> Date {
        let now = self.clock.now();
        let ten = now.date().next_day().expect("a day").with_hms(10, 0, 0).expect("ten").assume_utc();
        self.clock.advance((ten - now).try_into().expect("forward"));
        self.clock.now().date()
    }

    /// A day later by the clock.
    pub fn sleep_over(&self) {
        self.clock.advance(Duration::from_secs(86_400));
    }

    /// The channel finds the money of an order in its books after all.
    pub async fn found_after_all(&self, order_no: &str) {
        self.sql(&format!(
            "UPDATE sandbox.trades SET status = 'PAID'
             WHERE pay_order_id IN (SELECT pay_order_id FROM pay_orders WHERE order_no = '{order_no}');
             INSERT INTO sandbox.payments (transaction_id, pay_order_id, number, amount, currency, paid_at, created_at, updated_at)
             SELECT transaction_id, pay_order_id, 1, amount, currency, paid_at, paid_at, paid_at FROM pay_orders
             WHERE order_no = '{order_no}'"
        ))
        .await;
    }

    /// Begins a day, carries it out, and gives what became of it.
    pub async fn reconcile(&self, day: Date) -> Value {
        let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
        let begun = self.admin_post("/admin/reconciliations", body).await.expect(200);
        self.carry_out(begun.text_of("reconciliation_id")).await
    }

    /// Brings a file, and carries its day out.
    pub async fn reconcile_file(&self, channel: &str, day: Date, file: &[u8]) -> Value {
        let id = self.bring(channel, day, file).await;
        self.carry_out(&id).await
    }

    /// Brings a file that is taken; gives its day.
    pub async fn bring(&self, channel: &str, day: Date, file: &[u8]) -> String {
        let uploaded = self.upload(channel, day, file, "").await.expect(200).body;
        uploaded["reconciliation"]["reconciliation_id"].as_str().expect("an id").to_owned()
    }

    /// Carries a day on until it stands so; nothing is done about its differences.
    pub async fn carry_until(&self, id: &str, status: &str) {
        while self.reconciliation(id).await["status"] != status {
            reconciliation::run_due(&self.instance.app).await.expect("carried on");
        }
    }

    /// Brings a file.
    pub async fn upload(&self, channel: &str, day: Date, file: &[u8], more: &str) -> Reply {
        let path = format!("/admin/reconciliations/upload?channel={channel}&day={day}&reason=a+story{more}");
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(OPERATOR).body(file.to_vec());
        Reply::of(request.send().await.expect("an answer")).await
    }

    /// Carries a day out to its end, or to where it waits for another statement.
    pub async fn carry_out(&self, id: &str) -> Value {
        for _ in 0..500 {
            let run = self.reconciliation(id).await;
            if run["status"] == "DONE" || run["fault"].is_string() {
                return run;
            }
            self.carry_on().await;
        }
        panic!("it never ends: {}", self.reconciliation(id).await);
    }

    /// One step of whatever is due; the clock moves when nothing is.
    pub async fn carry_on(&self) {
        let app = &self.instance.app;
        let carried = reconciliation::run_due(app).await.expect("carried on");
        let acted = reconciliation::act_due(app).await.expect("acted");
        if (carried, acted) == (Batch::Done, Batch::Done) {
            self.clock.advance(Duration::from_secs(6));
        }
    }

    pub async fn reconciliation(&self, id: &str) -> Value {
        self.admin_get(&format!("/admin/reconciliations/{id}")).await.expect(200).body
    }

    /// All differences of a day.
    pub async fn differences(&self, run: &Value) -> Vec<Value> {
        let id = run["reconciliation_id"].as_str().expect("an id");
        let (mut all, mut after) = (Vec::<Value>::new(), String::new());
        loop {
            let page = self.admin_get(&format!("/admin/reconciliations/{id}/items?limit=100{after}")).await;
            let page = page.expect(200).body;
            all.extend(page["data"].as_array().expect("a page").clone());
            if page["has_more"] == false {
                return all;
            }
            after =
                format!("&starting_after={}", all.last().expect("one")["item_id"].as_str().expect("an id"));
        }
    }

    /// An operator's decision about a difference.
    pub async fn decide(&self, item: &Value, verb: &str) -> Reply {
        let id = item["item_id"].as_str().expect("an id");
        let path = format!("/admin/reconciliation-items/{id}/{verb}");
        let mut body = json!({"reason": "the story wants it"});
        if verb != "reverse-charge" {
            let seen =
                ["our_id", "currency", "ours", "theirs"].map(|name| (name.to_owned(), item[name].clone()));
            body["seen"] = seen.into_iter().collect();
        }
        if verb == "approve" {
            body["moves_money"] = item["moves_money"].clone();
        }
        self.admin_post(&path, body).await
    }

    /// What the sandbox has of a day.
    pub async fn book_lines(&self, day: Date) -> Vec<Line> {
        let from = day.midnight().assume_utc();
        sqlx::query_as(
            "SELECT kind, our_id, channel_id, amount, currency, at
             FROM (SELECT 'PAYMENT' AS kind, pay_order_id AS our_id, transaction_id AS channel_id, amount, currency,
                          paid_at AS at FROM sandbox.payments
                   UNION ALL
                   SELECT 'REFUND', refund_id, 'sr_' || refund_id, amount, currency, refunded_at FROM sandbox.refunds
                   UNION ALL
                   SELECT 'PAYOUT', payout_id, 'so_' || payout_id, amount, currency, paid_out_at FROM sandbox.payouts)
                  AS movement
             WHERE at >= $1 AND at < $1 + interval '1 day' ORDER BY kind, at, channel_id",
        )
        .bind(from)
        .fetch_all(self.instance.app.db.pool())
        .await
        .expect("the books")
    }
}

/// Nothing is left that neither a difference nor the day's edge explains.
#[track_caller]
pub fn assert_explained(run: &Value) {
    for total in run["totals"].as_array().expect("totals") {
        if total["kind"] != "OTHER" {
            assert_eq!(total["unexplained"], 0, "{run:#}");
        }
    }
}
