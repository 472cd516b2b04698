//! Every documented route, on one screen: what stories about all of them go through.

use super::{OPERATOR, SECRET_KEY};

/// Whose credential a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody's.
    Anyone,
    /// A merchant's secret key.
    Secret,
    /// Either key of a merchant.
    AnyKey,
    /// An operator or a viewer.
    Viewer,
    /// An operator.
    Operator,
    /// A channel, by its signature.
    Channel,
}

impl Who {
    /// A right credential.
    pub fn token(self) -> &'static str {
        match self {
            Self::Secret | Self::AnyKey => SECRET_KEY,
            Self::Viewer | Self::Operator => OPERATOR,
            Self::Anyone | Self::Channel => "",
        }
    }
}

/// A route, with a right body where it takes one.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub who: Who,
    pub body: Option<&'static str>,
}

impl Route {
    const fn get(path: &'static str, who: Who) -> Self {
        Self { method: "GET", path, who, body: None }
    }

    const fn post(path: &'static str, who: Who, body: &'static str) -> Self {
        Self { method: "POST", path, who, body: Some(body) }
    }

    /// The path with ids that name nothing, except the merchant.
    pub fn url(&self) -> String {
        self.path
            .replace("{merchant_id}", "demo")
            .replace("{order_no}", "NONE")
            .replace("{withdrawal_no}", "NONE")
            .replace("{refund_no}", "NONE")
            .replace("{hold_id}", "uh_none")
            .replace("{task_id}", "0")
            .replace("{user_id}", "nobody")
            .replace("{transaction_id}", "PAYMENT:po_none")
            .replace("{pay_order_id}", "po_none")
            .replace("{exception_id}", "ex_none")
            .replace("{webhook_id}", "sandbox:none")
            .replace("{run_id}", "sr_none")
            .replace("{event_id}", "evt_0")
            .replace("{reconciliation_id}", "rc_none")
            .replace("{item_id}", "ri_none")
            .replace("{lane}", "SWEEP")
            .replace("{channel}", "sandbox")
    }

    /// Whether its body is JSON of ours.
    pub fn takes_json(&self) -> bool {
        self.body.is_some() && self.who != Who::Channel
    }
}

pub const ROUTES: &[Route] = &[
    Route::post("/orders", Who::Secret, r#"{"order_no":"R1","user_id":"u1","currency":"CNY","amount":1990}"#),
    Route::get("/orders/{order_no}", Who::Secret),
    Route::post("/orders/{order_no}/close", Who::Secret, "{}"),
    Route::post("/pay/url", Who::AnyKey, r#"{"order_no":"NONE","payer_id":"u1","channel":"sandbox"}"#),
    Route::get("/pay/{pay_order_id}", Who::AnyKey),
    Route::post("/settlements", Who::Secret, r#"{"order_no":"NONE"}"#),
    Route::get("/settlements/{order_no}", Who::Secret),
    Route::post(
        "/withdrawals",
        Who::Secret,
        r#"{"withdrawal_no":"R1","user_id":"u1","amount":1,"currency":"CNY","channel":"sandbox","account":"a"}"#,
    ),
    Route::get("/withdrawals", Who::Secret),
    Route::get("/withdrawals/{withdrawal_no}", Who::Secret),
    Route::post("/refunds", Who::Secret, r#"{"refund_no":"R1","order_no":"NONE"}"#),
    Route::get("/refunds/{refund_no}", Who::Secret),
    Route::get("/orders/{order_no}/refunds", Who::Secret),
    Route::post(
        "/admin/refunds",
        Who::Operator,
        r#"{"refund_no":"R1","order_no":"NONE","reason":"a story"}"#,
    ),
    Route::get("/admin/refunds", Who::Viewer),
    Route::post("/admin/refunds/{refund_no}/approve", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/refunds/{refund_no}/reject", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/refunds/{refund_no}/not-made", Who::Operator, r#"{"reason":"a story"}"#),
    Route::get("/admin/withdrawals", Who::Viewer),
    Route::post("/admin/withdrawals/{withdrawal_no}/returned", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post(
        "/usage/holds",
        Who::Secret,
        r#"{"request_id":"R1","user_id":"u1","product_code":"p","idempotency_key":"R1","currency":"CNY","estimated_units":1}"#,
    ),
    Route::get("/usage/holds/{hold_id}", Who::Secret),
    Route::post(
        "/usage/holds/{hold_id}/progress",
        Who::Secret,
        r#"{"message_id":"m1","cumulative_units":1}"#,
    ),
    Route::post("/usage/holds/{hold_id}/confirm", Who::Secret, r#"{"units":1}"#),
    Route::post("/usage/holds/{hold_id}/release", Who::Secret, "{}"),
    Route::get("/users/{user_id}/usage", Who::Secret),
    Route::post(
        "/admin/products",
        Who::Operator,
        r#"{"merchant_id":"demo","product_code":"p","currency":"CNY","unit_price":"1"}"#,
    ),
    Route::get("/admin/products", Who::Viewer),
    Route::get("/admin/usage/holds", Who::Viewer),
    Route::get("/admin/users/{user_id}/balances", Who::Viewer),
    Route::get("/users/{user_id}/balances", Who::Secret),
    Route::get("/users/{user_id}/entries", Who::Secret),
    Route::get("/events", Who::Secret),
    Route::get("/events/{event_id}", Who::Secret),
    Route::post("/webhooks/{channel}", Who::Channel, "{}"),
    Route::post("/admin/merchants", Who::Operator, r#"{"merchant_id":"r2","name":"Second"}"#),
    Route::get("/admin/merchants", Who::Viewer),
    Route::get("/admin/merchants/{merchant_id}/keys", Who::Viewer),
    Route::post(
        "/admin/merchants/{merchant_id}/keys",
        Who::Operator,
        r#"{"overlap_seconds":60,"reason":"a story"}"#,
    ),
    Route::post(
        "/admin/merchants/{merchant_id}/notify-url",
        Who::Operator,
        r#"{"notify_url":"https://shop.example/hook","reason":"a story"}"#,
    ),
    Route::post(
        "/admin/merchants/{merchant_id}/notify-secret",
        Who::Operator,
        r#"{"overlap_seconds":60,"reason":"a story"}"#,
    ),
    Route::get("/admin/outbox", Who::Viewer),
    Route::get("/admin/outbox/{event_id}", Who::Viewer),
    Route::post("/admin/outbox/{event_id}/resend", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post(
        "/admin/outbox/resend",
        Who::Operator,
        r#"{"merchant_id":"demo","since":"2026-01-01T00:00:00Z","dry_run":true,"reason":"a story"}"#,
    ),
    Route::post("/admin/skus", Who::Operator, r#"{"merchant_id":"demo","sku":"R1","stock":1}"#),
    Route::get("/admin/skus", Who::Viewer),
    Route::post("/admin/rebate-rules", Who::Operator, r#"{"merchant_id":"demo","rate":"0.05"}"#),
    Route::get("/admin/rebate-rules", Who::Viewer),
    Route::post(
        "/admin/user-levels",
        Who::Operator,
        r#"{"merchant_id":"demo","user_id":"u1","level":"GOLD","factor":"1.2"}"#,
    ),
    Route::get("/admin/user-levels", Who::Viewer),
    Route::post("/admin/settlements/run", Who::Operator, r#"{"older_than_days":30,"dry_run":true}"#),
    Route::get("/admin/settlements/runs", Who::Viewer),
    Route::get("/admin/settlements/runs/{run_id}", Who::Viewer),
    Route::post(
        "/admin/reconciliations",
        Who::Operator,
        r#"{"channel":"sandbox","day":"2026-11-20","reason":"a story"}"#,
    ),
    Route::get("/admin/reconciliations", Who::Viewer),
    Route { method: "POST", path: "/admin/reconciliations/upload", who: Who::Operator, body: None },
    Route::get("/admin/reconciliations/{reconciliation_id}", Who::Viewer),
    Route::get("/admin/reconciliations/{reconciliation_id}/items", Who::Viewer),
    Route::get("/admin/reconciliations/{reconciliation_id}/items.csv", Who::Viewer),
    Route::post("/admin/reconciliation-items/{item_id}/approve", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/reconciliation-items/{item_id}/dismiss", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post(
        "/admin/reconciliation-items/{item_id}/reverse-charge",
        Who::Operator,
        r#"{"reason":"a story"}"#,
    ),
    Route::get("/admin/receivables", Who::Viewer),
    Route::post(
        "/admin/receivables/collect",
        Who::Operator,
        r#"{"merchant_id":"demo","user_id":"u1","currency":"CNY","clearing_no":"R1","reason":"a story"}"#,
    ),
    Route::post(
        "/admin/receivables/write-off",
        Who::Operator,
        r#"{"merchant_id":"demo","user_id":"u1","currency":"CNY","clearing_no":"R1","reason":"a story"}"#,
    ),
    Route::get("/admin/orders", Who::Viewer),
    Route::get("/admin/orders/{order_no}", Who::Viewer),
    Route::get("/admin/exceptions", Who::Viewer),
    Route::get("/admin/orders/{order_no}/timeline", Who::Viewer),
    Route::post(
        "/admin/exceptions/{exception_id}/resolve",
        Who::Operator,
        r#"{"action":"NONE","reason":"a story"}"#,
    ),
    Route::get("/admin/webhooks", Who::Viewer),
    Route::post("/admin/webhooks/{webhook_id}/replay", Who::Operator, r#"{"dry_run":true}"#),
    Route::get("/admin/overview", Who::Viewer),
    Route::get("/admin/delay-queue", Who::Viewer),
    Route::get("/admin/compensations", Who::Viewer),
    Route::post("/admin/compensations/{task_id}/retry", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/compensations/retry", Who::Operator, r#"{"status":"DEAD","dry_run":true}"#),
    Route::post("/admin/orders/{order_no}/compensate", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/sweep", Who::Operator, r#"{"dry_run":true}"#),
    Route::get("/admin/lanes", Who::Viewer),
    Route::post("/admin/lanes/{lane}/pause", Who::Operator, r#"{"reason":"a story"}"#),
    Route::post("/admin/lanes/{lane}/resume", Who::Operator, r#"{"reason":"a story"}"#),
    Route::get("/admin/admin-log", Who::Viewer),
    Route::get("/admin/stray-payments", Who::Viewer),
    Route::get("/admin/ledger/trial-balance", Who::Viewer),
    Route::get("/admin/ledger/transactions/{transaction_id}", Who::Viewer),
    Route::get("/admin/audit", Who::Viewer),
    Route::get("/livez", Who::Anyone),
    Route::get("/readyz", Who::Anyone),
    Route::get("/metrics", Who::Anyone),
    Route::post("/sandbox/trades/{pay_order_id}/pay", Who::Anyone, r#"{"amount":1990}"#),
    Route::post("/sandbox/trades/{pay_order_id}/decline", Who::Anyone, r#"{"notify":true}"#),
    Route::get("/sandbox/trades/{pay_order_id}", Who::Anyone),
    Route {
        method: "PUT",
        path: "/sandbox/faults",
        who: Who::Operator,
        body: Some(r#"{"op":"create","fault":"delay","ms":1}"#),
    },
    // A viewer is refused here too: faults are for operators.
    Route::get("/sandbox/faults", Who::Operator),
    Route { method: "DELETE", path: "/sandbox/faults", who: Who::Operator, body: None },
];
