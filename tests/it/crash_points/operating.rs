//! What an operator sets up while processes die.

use reqwest::Method;
use serde_json::json;

use crate::support::TestApp;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service};

const MERCHANTS: &str = "/admin/merchants";

fn merchant_of(number: &str) -> String {
    number.to_lowercase()
}

pub async fn operate(service: &Service, number: &str) -> Result<(), Gone> {
    let id = merchant_of(number);
    let keys = format!("/admin/merchants/{id}/keys");
    for (path, body) in [
        (MERCHANTS.to_owned(), json!({"merchant_id": id, "name": "A shop"})),
        (keys.clone(), json!({"reason": "the story wants it"})),
        ("/admin/skus".to_owned(), json!({"merchant_id": id, "sku": "CUP", "stock": 7})),
        ("/admin/rebate-rules".to_owned(), json!({"merchant_id": id, "sku": "CUP", "rate": "0.05"})),
        (
            "/admin/user-levels".to_owned(),
            json!({"merchant_id": id, "user_id": "u1", "level": "GOLD", "factor": "1.2"}),
        ),
        ("/admin/lanes/SWEEP/pause".to_owned(), json!({"reason": "the story wants it"})),
        ("/admin/lanes/SWEEP/resume".to_owned(), json!({"reason": "the story wants it"})),
    ] {
        let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
        // Made before, and the answer was lost: its keys are replaced by the next call.
        let is_there = path == MERCHANTS && done.status == 409 && done.body["code"] == "MERCHANT_EXISTS";
        assert!(is_there || matches!(done.status, 200 | 201), "{path}: {}", done.text);
        if path == keys {
            assert_open(service, done.text_of("secret_key"), "/orders/NONE").await?;
            assert_open(service, done.text_of("publishable_key"), "/pay/po_none").await?;
        }
    }
    Ok(())
}

/// Whoever comes with that key is let in, and there is nothing.
async fn assert_open(service: &Service, key: &str, path: &str) -> Result<(), Gone> {
    let found = service.ask(Method::GET, path, key, None).await?;
    assert_eq!(found.status, 404, "{path}: {}", found.text);
    Ok(())
}

pub async fn has_ended(app: &TestApp, number: &str) -> bool {
    let of_merchant = format!("merchant_id = '{}'", merchant_of(number));
    for (table, what) in [
        ("skus", "sku = 'CUP' AND stock = 7"),
        ("rebate_rules", "sku = 'CUP' AND rate = 0.05"),
        ("user_levels", "user_id = 'u1' AND level = 'GOLD' AND factor = 1.2"),
        // Those of before have an end.
        ("api_keys", "kind = 'SECRET' AND expires_at IS NULL"),
        ("api_keys", "kind = 'PUBLISHABLE' AND expires_at IS NULL"),
    ] {
        if app.count_where(table, &format!("{of_merchant} AND {what}")).await != 1 {
            println!("{number}: {table} where {what}");
            return false;
        }
    }
    app.count_where("compensation_lanes", "paused_at IS NOT NULL").await == 0
}
