//! Who owes what, in pages.

use serde_json::{Value, json};

use super::{collect, owing};
use crate::support::TestApp;

/// Who owes how much, and has how much, on all pages of two.
async fn debtors(app: &TestApp) -> Vec<(String, i64, i64)> {
    let (mut debtors, mut after) = (Vec::new(), String::new());
    loop {
        let page = app.admin_get(&format!("/admin/receivables?limit=2{after}")).await.expect(200).body;
        let rows = page["data"].as_array().expect("a page");
        let text = |row: &Value, field: &str| row[field].as_str().expect("text").to_owned();
        let minor = |row: &Value, field: &str| row[field].as_i64().expect("minor units");
        debtors.extend(
            rows.iter().map(|row| (text(row, "user_id"), minor(row, "amount"), minor(row, "available"))),
        );
        if page["has_more"] == false {
            return debtors;
        }
        let last = rows.last().expect("one");
        let key = ["merchant_id", "user_id", "currency"].map(|field| text(last, field)).join(":");
        after = format!("&starting_after={key}");
    }
}

#[tokio::test]
async fn everybody_who_owes_something_is_on_one_page_and_nobody_else_is() {
    let app = TestApp::start().await;
    for (user_id, owed) in [("c", 30), ("a", 10), ("e", 50), ("b", 20), ("d", 40), ("a-b", 60)] {
        owing(&app, user_id, owed).await;
    }
    app.top_up("rich", "rich", 1_000).await;
    app.top_up("B-d", "d", 15).await;
    // In the order of their accounts: a hyphen comes before a colon.
    let all = [("a-b", 60, 0), ("a", 10, 0), ("b", 20, 0), ("c", 30, 0), ("d", 40, 15), ("e", 50, 0)];
    let all = all.map(|(user_id, owed, has)| (user_id.to_owned(), owed, has));
    assert_eq!(debtors(&app).await, all);

    app.top_up("B-b", "b", 100).await;
    collect(&app, "C1", "b", None).await.expect(201);
    let left: Vec<_> = all.iter().filter(|(user_id, ..)| user_id != "b").cloned().collect();
    assert_eq!(debtors(&app).await, left);
    let of = async |query: &str| {
        let page = app.admin_get(&format!("/admin/receivables?{query}")).await.expect(200).body;
        page["data"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((of("merchant_id=demo").await, of("merchant_id=other").await), (5, 0));
    assert_eq!(of("merchant_id=demo&starting_after=demo:c:CNY").await, 2);
    // A merchant's page neither begins before it nor goes on behind it.
    assert_eq!(of("merchant_id=demo&starting_after=a:z:CNY").await, 5);
    assert_eq!(of("merchant_id=demo&starting_after=z:a:CNY").await, 0);
    assert_eq!((of("merchant_id=dem").await, of("merchant_id=demo.").await), (0, 0));
    for bad in ["starting_after=demo", "starting_after=demo:a", "limit=0", "merchant_id=a%20b", "user_id=a"] {
        let refused = app.admin_get(&format!("/admin/receivables?{bad}")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{bad}");
    }

    let shown =
        json!({"merchant_id": "demo", "user_id": "a-b", "currency": "CNY", "amount": 60, "available": 0});
    let first = app.admin_get("/admin/receivables?limit=1").await.expect(200).body;
    assert_eq!((&first["data"][0], &first["has_more"]), (&shown, &json!(true)));
    app.end().await;
}
