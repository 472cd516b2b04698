//! What merchants and operators see of metered work.

use payonce::usage;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::metering::hold_with;
use crate::support::{OPERATOR, SECRET_KEY, TestApp, seconds};

fn ids_of(page: &Value) -> Vec<String> {
    let data = page["data"].as_array().expect("a page").iter();
    data.map(|hold| hold["hold_id"].as_str().expect("an id").to_owned()).collect()
}

/// All pages of a list, three holds at a time.
async fn walk(app: &TestApp, token: &str, list: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map(|id| format!("&starting_after={id}")).unwrap_or_default();
        let path = format!("{list}&limit=3{after}");
        let page = app.call(Method::GET, &path, token, None).await.expect(200).body;
        found.extend(ids_of(&page));
        if page["has_more"] == false {
            return found;
        }
    }
}

#[tokio::test]
async fn merchant_and_operator_see_holds_and_products() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("0.0003", json!({"cycle_quota": 1_000_000, "allow_compensating_charge": true}))
        .await
        .expect(200);
    app.tokens_with("0.0004", json!({"fx_version": "v2"})).await.expect(200);
    let ids: Vec<String> = vec![app.held("k1", "u1", 10).await, app.held("k2", "u1", 10).await];
    app.confirm(&ids[0], Some(10)).await.expect(200);
    let mut newest_first = ids.clone();
    newest_first.sort();
    newest_first.reverse();
    assert_eq!(ids_of(&app.get("/users/u1/usage").await.expect(200).body), newest_first);
    assert_eq!(ids_of(&app.get("/users/u1/usage?status=CONFIRMED").await.expect(200).body), [ids[0].clone()]);
    assert_eq!(
        ids_of(&app.admin_get("/admin/usage/holds?status=HELD").await.expect(200).body),
        [ids[1].clone()]
    );
    let after =
        format!("/admin/usage/holds?merchant_id=demo&user_id=u1&limit=1&starting_after={}", newest_first[0]);
    let second = app.admin_get(&after).await.expect(200).body;
    assert_eq!((ids_of(&second), &second["has_more"]), (vec![newest_first[1].clone()], &json!(false)));

    let balances = app.get("/users/u1/balances").await.expect(200).body;
    assert_eq!(balances["data"][0], json!({"currency": "CNY", "available": 999, "held": 1, "receivable": 0}));
    let seen = app.admin_get("/admin/users/u1/balances?merchant_id=demo").await.expect(200).body;
    assert_eq!(seen, balances);

    let products = app.admin_get("/admin/products?merchant_id=demo").await.expect(200).body;
    let prices: Vec<_> =
        products["data"].as_array().expect("a page").iter().map(|row| row["unit_price"].clone()).collect();
    assert_eq!(prices, [json!("0.0003"), json!("0.0004")]);
    let rest =
        app.admin_get("/admin/products?merchant_id=demo&starting_after=tokens:CNY:").await.expect(200).body;
    assert_eq!(rest["data"][0]["fx_version"], "v2");
    for bad in ["-1", "0.00000000001", "x", "1e3", ""] {
        assert_eq!(app.tokens_with(bad, json!({})).await.problem(422), "VALIDATION_FAILED", "{bad}");
    }
    let nobodys = json!({"merchant_id": "nobody"});
    assert_eq!(app.tokens_with("1", nobodys).await.problem(404), "NOT_FOUND");
    assert_eq!(app.count_where("admin_log", "action = 'products.set'").await, 2);
    app.end().await;
}

/// A hold of a story, as its filters know it.
struct Made {
    merchant: &'static str,
    user: &'static str,
    status: &'static str,
    id: String,
}

/// Two of each kind, mixed.
async fn holds_of_every_kind(app: &TestApp, keys: [(&'static str, &str); 2]) -> Vec<Made> {
    let mut made = Vec::new();
    for n in 0..32 {
        let ((merchant, key), user) = (keys[n % 2], ["u1", "u2"][n / 2 % 2]);
        let status = ["HELD", "CONFIRMED", "RELEASED", "EXPIRED"][n / 4 % 4];
        let life = if status == "EXPIRED" { 1 } else { 900 };
        let body = hold_with(&format!("k{n}"), user, 0, json!({"expires_in": life}));
        let taken = app.call(Method::POST, "/usage/holds", key, Some(&body)).await.expect(201);
        let id = taken.text_of("hold_id").to_owned();
        let end = match status {
            "CONFIRMED" => Some(("confirm", json!({"units": 5}))),
            "RELEASED" => Some(("release", json!({}))),
            _ => None,
        };
        if let Some((deed, body)) = end {
            let path = format!("/usage/holds/{id}/{deed}");
            app.call(Method::POST, &path, key, Some(&body)).await.expect(200);
        }
        made.push(Made { merchant, user, status, id });
    }
    app.clock.advance(seconds(2));
    usage::expire_due(&app.instance.app).await.expect("a run");
    made
}

#[tokio::test]
async fn pages_give_each_hold_once_and_newest_first_whichever_are_asked_for() {
    let app = TestApp::start().await;
    let other = app.merchant("other", "hold").await;
    app.tokens("0").await;
    app.tokens_with("0", json!({"merchant_id": "other"})).await.expect(200);
    let made = holds_of_every_kind(&app, [("demo", SECRET_KEY), ("other", &other)]).await;

    for status in ["", "HELD", "CONFIRMED", "RELEASED", "EXPIRED"] {
        let of_status = if status.is_empty() { String::new() } else { format!("&status={status}") };
        let expected = |merchant: &str, user: &str| -> Vec<String> {
            let is = |wanted: &str, one: &str| wanted.is_empty() || wanted == one;
            let wanted =
                |one: &&Made| is(merchant, one.merchant) && is(user, one.user) && is(status, one.status);
            made.iter().rev().filter(wanted).map(|one| one.id.clone()).collect()
        };
        for (merchant, user) in [("", ""), ("demo", ""), ("other", ""), ("demo", "u1"), ("other", "u2")] {
            let filter = |name: &str, value: &str| {
                if value.is_empty() { String::new() } else { format!("&{name}={value}") }
            };
            let list = format!(
                "/admin/usage/holds?{}{}{of_status}",
                filter("merchant_id", merchant),
                filter("user_id", user)
            );
            assert_eq!(
                walk(&app, OPERATOR, &list.replace("?&", "?")).await,
                expected(merchant, user),
                "{list}"
            );
        }
        for (merchant, key) in [("demo", SECRET_KEY), ("other", &other)] {
            let list = format!("/users/u1/usage?{of_status}").replace("?&", "?");
            assert_eq!(walk(&app, key, &list).await, expected(merchant, "u1"), "{list} of {merchant}");
        }
    }
    // A user is somebody's.
    let refused = app.admin_get("/admin/usage/holds?user_id=u1").await;
    assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    assert_eq!(refused.body["errors"][0]["field"], "merchant_id");
    app.end().await;
}
