//! The timeline of an order in pages: nothing twice, and nothing left out.

use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};

use crate::commands::{environment, json_of, run};
use crate::support::{OPERATOR, TestApp};

/// All entries, so many at a time.
async fn paged(app: &TestApp, path: &str, limit: usize) -> Vec<Value> {
    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let mut url = Url::parse(&format!("{}{path}?limit={limit}", app.url)).expect("a URL");
        if !after.is_empty() {
            url.query_pairs_mut().append_pair("starting_after", &after);
        }
        let asked = app.http.get(url).bearer_auth(OPERATOR);
        let page: Value = asked.send().await.expect("an answer").json().await.expect("a page");
        let rows = page["data"].as_array().unwrap_or_else(|| panic!("no page: {page}"));
        entries.extend(rows.iter().cloned());
        if page["has_more"] == false {
            return entries;
        }
        assert_eq!(rows.len(), limit, "{page:#}");
        after = rows.last().expect("a row")["entry_id"].as_str().expect("an id").to_owned();
    }
}

#[tokio::test]
async fn a_timeline_is_paged_by_the_places_of_its_entries() {
    let app = TestApp::start().await;
    let key = app.merchant("keeper", "hold").await;
    // A callback whose name cannot stand in a URL as it is.
    let pay_order = app.order_to_pay_as(&key, "T1").await;
    app.webhook(&app.success("evt/1 \u{fc}.?&", &pay_order, "txn_1", 1989)).await.expect(400);
    app.deliver(&app.success("evt_2", &pay_order, "txn_2", 1990)).await;
    app.run_until_idle().await;
    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.clock.advance(Duration::from_secs(2));
    app.run_until_idle().await;

    let path = "/admin/orders/T1/timeline";
    let whole = app.admin_get(path).await.expect(200).body;
    let entries = whole["data"].as_array().expect("a page");
    assert!(whole["has_more"] == false && entries.len() > 20, "{whole:#}");
    for limit in [1, 2, 7, entries.len() - 1, entries.len()] {
        assert_eq!(paged(&app, path, limit).await, *entries, "by {limit}");
    }
    let last = entries.last().expect("one")["entry_id"].as_str().expect("an id");
    let behind = app.admin_get(&format!("{path}?starting_after={last}")).await.expect(200).body;
    assert_eq!(behind, json!({"data": [], "has_more": false}));

    for query in ["limit=0", "limit=1001", "limit=x", "starting_after=x", "starting_after=", "surprise=1"] {
        assert_eq!(
            app.admin_get(&format!("{path}?{query}")).await.problem(422),
            "VALIDATION_FAILED",
            "{query}"
        );
    }
    let page = ["admin", "timeline", "T1", "--limit", "2", "-o", "json"];
    let said = json_of(&run(&page, &environment(&app.database_url, &app.redis_url)).await);
    assert_eq!((said["data"].as_array().map(Vec::len), &said["has_more"]), (Some(2), &json!(true)));
    app.end().await;
}
