//! The books as a story sees them: balances, bookings, the trial balance.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::app::TestApp;

impl TestApp {
    /// Makes a top-up of so many CNY for a user, and its pay URL; gives the pay-order id.
    pub async fn top_up_to_pay(&self, order_no: &str, user_id: &str, amount: i64) -> String {
        let order = json!({"order_no": order_no, "user_id": user_id, "currency": "CNY", "amount": amount, "kind": "TOPUP"});
        self.order_with(order).await;
        let link = self.pay_url_by(order_no, user_id).await.expect(200);
        link.text_of("pay_order_id").to_owned()
    }

    /// Tops a user up, through the sandbox.
    pub async fn top_up(&self, order_no: &str, user_id: &str, amount: i64) {
        let id = self.top_up_to_pay(order_no, user_id, amount).await;
        self.sandbox_pay(&id, json!({})).await.expect(200);
        self.run_until_idle().await;
    }

    /// What a user of the demo merchant has: (currency, available, held, receivable).
    pub async fn balances_of(&self, user_id: &str) -> Vec<(String, i64, i64, i64)> {
        let answer = self.get(&format!("/users/{user_id}/balances")).await.expect(200).body;
        let minor = |balance: &Value, field: &str| balance[field].as_i64().expect("minor units");
        let balance = |one: &Value| {
            let currency = one["currency"].as_str().expect("a currency").to_owned();
            (currency, minor(one, "available"), minor(one, "held"), minor(one, "receivable"))
        };
        answer["data"].as_array().expect("balances").iter().map(balance).collect()
    }

    /// Available and held CNY of a user who has nothing else.
    pub async fn cny_of(&self, user_id: &str) -> (i64, i64) {
        self.balances_of(user_id).await.first().map_or((0, 0), |(_, available, held, _)| (*available, *held))
    }

    /// What is not zero in the trial balance, as `KIND owner CURRENCY`: a debit is positive, a credit negative. It must
    /// be balanced.
    pub async fn trial_balance(&self) -> BTreeMap<String, i64> {
        let answer = self.admin_get("/admin/ledger/trial-balance").await.expect(200).body;
        assert_eq!(answer["balanced"], true, "{answer}");
        for total in answer["totals"].as_array().expect("totals") {
            assert_eq!(total["debit"], total["credit"], "{answer}");
        }
        let row = |row: &Value| {
            let owner = row["merchant_id"].as_str().or(row["channel"].as_str()).unwrap_or("-");
            let text = |field: &str| row[field].as_str().expect("text").to_owned();
            let minor = |field: &str| row[field].as_i64().expect("minor units");
            (format!("{} {owner} {}", text("kind"), text("currency")), minor("debit") - minor("credit"))
        };
        let rows = answer["accounts"].as_array().expect("accounts").iter().map(row);
        rows.filter(|(_, amount)| *amount != 0).collect()
    }

    /// What the demo merchant bears of its users' debts in CNY: what was written off, less what came back of it.
    pub async fn borne(&self) -> i64 {
        sqlx::query_scalar(
            "SELECT coalesce(sum(amount), 0)::bigint
             FROM ledger_entries
             WHERE account_id = 'MERCHANT:demo:CNY' AND kind IN ('WRITE_OFF', 'CLAW_BACK', 'CHARGE_PAID_BACK')",
        )
        .fetch_one(self.instance.app.db.pool())
        .await
        .expect("a sum")
    }

    /// A booking's sides by account: a debit is positive, a credit negative; `None` when nothing is booked so.
    pub async fn booking(&self, id: &str) -> Option<BTreeMap<String, i64>> {
        let reply = self.admin_get(&format!("/admin/ledger/transactions/{id}")).await;
        if reply.status == 404 {
            return None;
        }
        let body = reply.expect(200).body;
        let side = |side: &Value| {
            let minor = |field: &str| side[field].as_i64().expect("minor units");
            (side["account"].as_str().expect("an account").to_owned(), minor("debit") - minor("credit"))
        };
        Some(body["entries"].as_array().expect("entries").iter().map(side).collect())
    }
}

/// The expected form of [`TestApp::trial_balance`] and [`TestApp::booking`].
pub fn sides<const N: usize>(sides: [(&str, i64); N]) -> BTreeMap<String, i64> {
    sides.into_iter().map(|(account, amount)| (account.to_owned(), amount)).collect()
}
