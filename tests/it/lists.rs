//! What a merchant made, and what operators look for, page by page.

use serde_json::{Value, json};

use crate::support::{Reply, TestApp};

fn withdrawal(withdrawal_no: &str, user_id: &str) -> Value {
    json!({"withdrawal_no": withdrawal_no, "user_id": user_id, "amount": 100, "currency": "CNY",
           "channel": "sandbox", "account": "u@example.com"})
}

/// What the entries of a page say under that name, and whether there are more.
fn told(page: &Reply, name: &str) -> (Vec<String>, bool) {
    assert_eq!(page.status, 200, "{}", page.text);
    let entries = page.body["data"].as_array().expect("entries");
    let words = entries.iter().map(|entry| entry[name].as_str().expect("text").to_owned());
    (words.collect(), page.body["has_more"].as_bool().expect("a word"))
}

impl TestApp {
    /// Every entry of a list, newest first, two a page.
    async fn all_of(&self, path: &str, id: &str, name: &str) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}limit=2{after}")).await;
            let (mut words, has_more) = told(&page, name);
            assert!(words.len() <= 2, "{}", page.text);
            all.append(&mut words);
            if !has_more {
                return all;
            }
            after = format!("&starting_after={}", told(&page, id).0.last().expect("an entry"));
        }
    }
}

#[tokio::test]
async fn a_merchant_reads_all_of_its_withdrawals_or_those_of_a_user_or_in_a_state() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    app.top_up("T-u2", "u2", 1_000).await;
    for (no, user_id) in [("W1", "u1"), ("W2", "u2"), ("W3", "u1"), ("W4", "u1")] {
        app.post("/withdrawals", withdrawal(no, user_id)).await.expect(201);
    }
    app.run_until_idle().await;
    app.post("/withdrawals", withdrawal("W5", "u1")).await.expect(201);

    let (id, no) = ("withdrawal_id", "withdrawal_no");
    assert_eq!(app.all_of("/withdrawals?", id, no).await, ["W5", "W4", "W3", "W2", "W1"]);
    assert_eq!(app.all_of("/withdrawals?user_id=u1&", id, no).await, ["W5", "W4", "W3", "W1"]);
    assert_eq!(app.all_of("/withdrawals?status=SUCCEEDED&", id, no).await, ["W4", "W3", "W2", "W1"]);
    assert_eq!(app.all_of("/withdrawals?status=DEBITED&", id, no).await, ["W5"]);
    assert_eq!(app.all_of("/withdrawals?status=SUCCEEDED&user_id=u2&", id, no).await, ["W2"]);
    assert!(app.all_of("/withdrawals?user_id=nobody&", id, no).await.is_empty());

    // As each looks by itself, with its legs.
    let listed = app.get("/withdrawals").await.expect(200).body;
    for one in listed["data"].as_array().expect("entries") {
        let alone =
            app.get(&format!("/withdrawals/{}", one["withdrawal_no"].as_str().expect("a number"))).await;
        assert_eq!(*one, alone.expect(200).body);
        assert_eq!(one["legs"].as_array().map(Vec::len), Some(2), "{one}");
    }
    for wrong in
        ["limit=0", "limit=101", "status=GONE", "user_id=", "merchant_id=second", "starting_after=W1"]
    {
        let refused = app.get(&format!("/withdrawals?{wrong}")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{wrong}");
    }
    app.assert_books_balance().await;
    app.end().await;
}

#[tokio::test]
async fn operators_find_the_withdrawals_of_all_merchants_and_of_one() {
    let app = TestApp::start().await;
    let second = app.admin_post("/admin/merchants", json!({"merchant_id": "second", "name": "Second"})).await;
    second.expect(201);
    app.top_up("T-u1", "u1", 1_000).await;
    app.post("/withdrawals", withdrawal("W1", "u1")).await.expect(201);
    app.run_until_idle().await;
    app.post("/withdrawals", withdrawal("W2", "u1")).await.expect(201);
    // A user of that name is somebody else there; what the channel refused came back to them.
    let theirs = "INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account,
                                           status, failure, created_at, updated_at, version)
                  VALUES ('wd_zz', 'second', 'W1', 'u1', 7, 'CNY', 'sandbox', 'a', 'REVERSED', 'no', now(), now(), 5)";
    app.sql(theirs).await;
    for (query, numbers) in [
        ("", &["second W1", "demo W2", "demo W1"] as &[&str]),
        ("?starting_after=wd_zz", &["demo W2", "demo W1"]),
        ("?limit=1", &["second W1"]),
        ("?status=DEBITED", &["demo W2"]),
        ("?status=REVERSED", &["second W1"]),
        ("?status=REVERSED&starting_after=wd_zz", &[]),
        ("?merchant_id=demo", &["demo W2", "demo W1"]),
        ("?merchant_id=demo&starting_after=wd_zz", &["demo W2", "demo W1"]),
        ("?merchant_id=demo&status=REVERSED", &[]),
        ("?merchant_id=demo&user_id=u1&status=DEBITED", &["demo W2"]),
        ("?merchant_id=demo&user_id=u2", &[]),
        ("?merchant_id=second&user_id=u1", &["second W1"]),
        ("?merchant_id=second&status=REVERSED", &["second W1"]),
    ] {
        let page = app.admin_get(&format!("/admin/withdrawals{query}")).await;
        let (whose, numbered) = (told(&page, "merchant_id").0, told(&page, "withdrawal_no").0);
        let found: Vec<String> = whose.iter().zip(&numbered).map(|(id, no)| format!("{id} {no}")).collect();
        assert_eq!(found, numbers, "{query}");
    }
    // Nobody else sees it.
    let mine = app.get("/withdrawals?starting_after=wd_zzz").await;
    assert_eq!(told(&mine, "withdrawal_no"), (vec!["W2".to_owned(), "W1".to_owned()], false));
    app.sql("DELETE FROM withdrawals WHERE merchant_id = 'second'").await;
    // Two merchants' users of one name are not one user.
    let refused = app.admin_get("/admin/withdrawals?user_id=u1").await;
    assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    app.end().await;
}

#[tokio::test]
async fn a_merchant_reads_all_refunds_of_an_order_also_more_than_the_order_shows() {
    let app = TestApp::start().await;
    for order_no in ["A-1", "A-2"] {
        app.paid_order(order_no, json!({"user_id": "u1", "currency": "CNY", "amount": 1_000})).await;
    }
    for number in 0..103 {
        let body = json!({"refund_no": format!("R{number:03}"), "order_no": "A-1", "amount": 1});
        app.post("/refunds", body).await.expect(201);
    }
    app.post("/refunds", json!({"refund_no": "OTHER", "order_no": "A-2", "amount": 1})).await.expect(201);
    app.run_until_idle().await;

    let newest_first: Vec<String> = (0..103).rev().map(|number| format!("R{number:03}")).collect();
    assert_eq!(app.all_of("/orders/A-1/refunds?", "refund_id", "refund_no").await, newest_first);
    assert_eq!(app.all_of("/orders/A-2/refunds?", "refund_id", "refund_no").await, ["OTHER"]);
    // The order shows the last hundred of them, oldest first.
    let order = app.find_order("A-1").await;
    let shown = order["refunds"].as_array().expect("refunds").iter();
    let shown: Vec<&str> = shown.map(|refund| refund["refund_no"].as_str().expect("a number")).collect();
    let last: Vec<&str> = newest_first[..100].iter().rev().map(String::as_str).collect();
    assert_eq!(shown, last);

    app.order_to_pay("A-3").await;
    assert!(app.all_of("/orders/A-3/refunds?", "refund_id", "refund_no").await.is_empty());
    assert_eq!(app.get("/orders/NONE/refunds").await.problem(404), "ORDER_NOT_FOUND");
    for wrong in ["limit=0", "starting_after=R001", "order_no=A-2"] {
        let refused = app.get(&format!("/orders/A-1/refunds?{wrong}")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{wrong}");
    }
    app.assert_books_balance().await;
    app.end().await;
}
