//! The pay URL: one link for one order, or a clear word why there is none.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::{PUBLISHABLE_KEY, Reply, TestApp, TestOptions, minutes, seconds};

fn ask(order_no: &str, payer_id: &str) -> Value {
    json!({"order_no": order_no, "payer_id": payer_id, "channel": "sandbox"})
}

fn ask_with(order_no: &str, payer_id: &str, amount: i64, currency: &str) -> Value {
    json!({"order_no": order_no, "payer_id": payer_id, "channel": "sandbox", "amount": amount, "currency": currency})
}

fn fields_of(reply: &Reply) -> Vec<&str> {
    let errors = reply.body["errors"].as_array().expect("errors");
    errors.iter().map(|error| error["field"].as_str().expect("a field")).collect()
}

fn instant(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(value.as_str().expect("a time"), &Rfc3339).expect("RFC 3339")
}

#[tokio::test]
async fn a_repeat_gets_the_same_link_and_the_channel_is_called_once() {
    let app = TestApp::start().await;
    app.watch_calls(FaultOp::Create, 0).await;
    app.order("A1").await;
    let link = app.pay_url("A1").await.expect(200);
    assert_eq!(link.body["status"], "PAYING");
    for _ in 0..3 {
        assert_eq!(app.pay_url("A1").await.expect(200).body, link.body);
    }
    let renamed = json!({"order_no": "A1", "payer_id": "u1", "channel": "sandbox", "subject": "Tea"});
    assert_eq!(app.post("/pay/url", renamed).await.expect(200).body, link.body);
    assert_eq!(app.calls_of(FaultOp::Create).await, 1);

    let attempt = app.get(&format!("/pay/{}", link.text_of("pay_order_id"))).await.expect(200);
    assert_eq!(
        (&attempt.body["status"], &attempt.body["pay_url"]),
        (&json!("PAYING"), &link.body["pay_url"])
    );
    app.end().await;
}

#[tokio::test]
async fn an_order_is_made_on_the_way_for_a_backend_that_names_an_amount() {
    let app = TestApp::start().await;
    assert_eq!(app.pay_url("A1").await.problem(404), "ORDER_NOT_FOUND");
    let replies = join_all((0..20).map(|_| app.post("/pay/url", ask_with("A1", "u1", 1990, "CNY")))).await;
    for reply in &replies {
        assert_eq!(reply.body, replies[0].body, "{}", reply.text);
    }
    let order = app.find_order("A1").await;
    assert_eq!(
        (&order["user_id"], &order["amount"], &order["currency"]),
        (&json!("u1"), &json!(1990), &json!("CNY"))
    );
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    app.end().await;
}

#[tokio::test]
async fn payers_who_make_the_same_order_at_once_all_get_a_link() {
    let app = TestApp::start().await;
    let payers = ["u1", "u2", "u3", "u4"];
    let asks = payers.map(|payer| app.post("/pay/url", ask_with("A1", payer, 1990, "CNY")));
    for reply in join_all(asks).await {
        reply.expect(200);
    }
    let statuses = app.attempt_statuses("A1").await;
    assert_eq!(statuses.iter().filter(|status| *status == "PAYING").count(), 1, "{statuses:?}");
    let other_amount = app.post("/pay/url", ask_with("A1", "u5", 1991, "CNY")).await;
    assert_eq!(other_amount.problem(422), "ORDER_PARAMS_MISMATCH");
    app.end().await;
}

#[tokio::test]
async fn a_browser_pays_its_own_order_and_names_no_amount() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let browse = async |body: Value| app.call(Method::POST, "/pay/url", PUBLISHABLE_KEY, Some(&body)).await;

    assert_eq!(browse(ask("A1", "u2")).await.problem(404), "ORDER_NOT_FOUND");
    assert_eq!(browse(ask("A2", "u1")).await.problem(404), "ORDER_NOT_FOUND");
    let refused = browse(ask_with("A1", "u1", 1990, "CNY")).await;
    assert_eq!((refused.problem(422), fields_of(&refused)), ("VALIDATION_FAILED", vec!["amount"]));
    let refused = browse(ask_with("A2", "u1", 1990, "CNY")).await;
    assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    assert_eq!((app.count("pay_orders").await, app.count("orders").await), (0, 1));

    let link = browse(ask("A1", "u1")).await.expect(200);
    assert_eq!(app.pay_url("A1").await.expect(200).body, link.body);
    // Somebody else's browser learns nothing of a link that stands, nor of a paid order.
    assert_eq!(browse(ask("A1", "u2")).await.problem(404), "ORDER_NOT_FOUND");
    app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(browse(ask("A1", "u2")).await.problem(404), "ORDER_NOT_FOUND");
    assert_eq!(browse(ask("A1", "u1")).await.problem(409), "ORDER_IS_ALREADY_PAID");
    app.end().await;
}

#[tokio::test]
async fn a_browser_puts_no_words_on_the_cashier_page_and_leads_from_it_to_the_shop_only() {
    let vars = vec![("CORS_ORIGINS", "https://shop.example,https://other.example:8443".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let shopless = TestApp::start().await;
    let browse = async |app: &TestApp, order_no: &str, url: &str| {
        app.order(order_no).await;
        let mut body = ask(order_no, "u1");
        body["subject"] = json!("Pay at https://evil.example");
        body["return_url"] = json!(url);
        app.call(Method::POST, "/pay/url", PUBLISHABLE_KEY, Some(&body)).await.expect(200);
    };
    for (place, url) in [
        "https://evil.example/",
        "https://shop.example.evil.example/",
        "https://shop.example@evil.example/",
        "http://shop.example/",
        "https://shop.example:8443/",
        "https://other.example/",
    ]
    .into_iter()
    .enumerate()
    {
        browse(&app, &format!("E{place}"), url).await;
    }
    assert_eq!(app.count_where("pay_orders", "return_url IS NULL AND status = 'PAYING'").await, 6);
    browse(&shopless, "A1", "https://shop.example/").await;
    assert_eq!(shopless.count_where("pay_orders", "return_url IS NULL").await, 1);

    let shop = "https://shop.example/thanks?for=A1";
    browse(&app, "A1", shop).await;
    assert_eq!(app.count_where("pay_orders", &format!("return_url = '{shop}'")).await, 1);
    assert_eq!(app.count_where("sandbox.trades", "subject LIKE '%evil%'").await, 0);
    app.order("A2").await;
    let mut of_backend = ask("A2", "u1");
    of_backend["subject"] = json!("Tea");
    of_backend["return_url"] = json!("https://anywhere.example/");
    app.post("/pay/url", of_backend).await.expect(200);
    let as_asked = "subject = 'Tea' AND return_url = 'https://anywhere.example/'";
    assert_eq!(app.count_where("sandbox.trades", as_asked).await, 1);
    shopless.end().await;
    app.end().await;
}

#[tokio::test]
async fn another_merchants_order_is_unknown() {
    let app = TestApp::start().await;
    let merchant = json!({"merchant_id": "other", "name": "Other", "reason": "a story"});
    let merchant = app.admin_post("/admin/merchants", merchant).await.expect(201);
    let key = merchant.text_of("secret_key");
    let pay_order = app.order_to_pay("A1").await;
    let as_other = async |path: &str, body: Value| app.call(Method::POST, path, key, Some(&body)).await;

    assert_eq!(as_other("/pay/url", ask("A1", "u1")).await.problem(404), "ORDER_NOT_FOUND");
    assert_eq!(as_other("/orders/A1/close", json!({})).await.problem(404), "ORDER_NOT_FOUND");
    let attempt = app.call(Method::GET, &format!("/pay/{pay_order}"), key, None).await;
    assert_eq!(attempt.problem(404), "NOT_FOUND");
    // The same number is another order there.
    let theirs = as_other("/pay/url", ask_with("A1", "u9", 5, "USD")).await.expect(200);
    assert_ne!(theirs.text_of("pay_order_id"), pay_order);
    assert_eq!(app.find_order("A1").await["amount"], 1990);
    app.end().await;
}

#[tokio::test]
async fn what_differs_from_the_order_is_named() {
    let app = TestApp::start().await;
    app.order("A1").await;
    for (amount, currency, named) in [
        (1991, "CNY", vec!["amount"]),
        (1990, "USD", vec!["currency"]),
        (1, "USD", vec!["amount", "currency"]),
    ] {
        let refused = app.post("/pay/url", ask_with("A1", "u1", amount, currency)).await;
        assert_eq!((refused.problem(422), fields_of(&refused)), ("ORDER_PARAMS_MISMATCH", named));
    }
    // Each is compared by itself; to make an order on the way it takes both.
    let without = |member: &str, order_no: &str| {
        let mut body = ask_with(order_no, "u1", 1991, "CNY");
        body.as_object_mut().expect("an object").remove(member);
        body
    };
    let amount_alone = app.post("/pay/url", without("currency", "A1")).await;
    assert_eq!(
        (amount_alone.problem(422), fields_of(&amount_alone)),
        ("ORDER_PARAMS_MISMATCH", vec!["amount"])
    );
    let incomplete = app.post("/pay/url", without("currency", "A2")).await;
    assert_eq!((incomplete.problem(422), fields_of(&incomplete)), ("VALIDATION_FAILED", vec!["currency"]));
    assert_eq!(app.post("/pay/url", without("amount", "A2")).await.problem(404), "ORDER_NOT_FOUND");
    assert_eq!((app.count("orders").await, app.count("pay_orders").await), (1, 0));
    app.post("/pay/url", ask_with("A1", "u1", 1990, "CNY")).await.expect(200);
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_is_not_there_makes_no_order_and_no_attempt() {
    let app = TestApp::start().await;
    app.order("A1").await;
    for order_no in ["A1", "A2"] {
        let mut body = ask_with(order_no, "u1", 1990, "CNY");
        body["channel"] = json!("carrier_pigeon");
        assert_eq!(app.post("/pay/url", body).await.problem(422), "UNKNOWN_CHANNEL");
    }
    assert_eq!((app.count("orders").await, app.count("pay_orders").await), (1, 0));
    app.end().await;
}

#[tokio::test]
async fn an_order_that_has_come_to_its_end_has_no_link() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("PAID").await;
    app.sandbox_pay(&pay_order, json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.pay_url("PAID").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.pay_url_by("PAID", "u2").await.problem(409), "ORDER_IS_ALREADY_PAID");

    app.order_to_pay("CLOSED").await;
    app.close("CLOSED").await.expect(200);
    assert_eq!(app.pay_url("CLOSED").await.problem(409), "ORDER_CLOSED");

    // Past its deadline it is as good as closed, also before anybody has closed it.
    app.order_to_pay("LATE").await;
    app.order("LATE2").await;
    app.clock.advance(seconds(1_801));
    assert_eq!(app.pay_url("LATE").await.problem(409), "ORDER_CLOSED");
    assert_eq!(app.pay_url("LATE2").await.problem(409), "ORDER_CLOSED");
    app.run_until_idle().await;
    assert_eq!(app.status_of("LATE").await, "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn a_refusal_passes_the_channels_words_on_and_the_next_try_is_a_new_attempt() {
    let app = TestApp::start().await;
    app.order("A1").await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    let refused = app.pay_url("A1").await;
    assert_eq!(refused.problem(402), "CHANNEL_REFUSED");
    assert_eq!(refused.text_of("channel_code"), "SANDBOX_REFUSED");
    assert!(!refused.text_of("channel_message").is_empty());
    let failed = app.attempts_of("A1").await.remove(0);
    assert_eq!((&failed["status"], &failed["channel_code"]), (&json!("FAILED"), &json!("SANDBOX_REFUSED")));
    assert_eq!(app.status_of("A1").await, "PENDING");

    let link = app.pay_url("A1").await.expect(200);
    assert_ne!(link.body["pay_order_id"], failed["pay_order_id"]);
    assert_eq!(app.attempt_statuses("A1").await, ["FAILED", "PAYING"]);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn a_buyer_who_declines_can_begin_again() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    app.sandbox_decline(&first).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["FAILED"]);
    let second = app.pay_url("A1").await.expect(200);
    assert_ne!(second.text_of("pay_order_id"), first);
    app.sandbox_pay(second.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.status_of("A1").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn another_payer_gets_a_link_after_the_first_ones_trade_is_closed() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    let second = app.pay_url_by("A1", "u2").await.expect(200);
    assert_ne!(second.text_of("pay_order_id"), first);
    assert_eq!(app.sandbox_trade(&first).await["status"], "CLOSED");
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"]);
    assert_eq!(app.attempts_of("A1").await[1]["payer_id"], "u2");

    app.sandbox_pay(second.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_order("A1").await["paid_by"], second.body["pay_order_id"]);
    app.end().await;
}

#[tokio::test]
async fn when_the_first_payer_has_paid_already_the_second_is_told_so() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("A1").await;
    app.sandbox_pay(&first, json!({"notify": false})).await.expect(200);
    assert_eq!(app.pay_url_by("A1", "u2").await.problem(409), "ORDER_IS_ALREADY_PAID");
    let order = app.find_order("A1").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(first)));
    assert_eq!(app.attempt_statuses("A1").await, ["PAID"]);
    app.end().await;
}

#[tokio::test]
async fn a_link_that_dies_before_its_order_is_replaced() {
    let app = TestApp::start().await;
    let order =
        json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "amount": 5, "expires_in": 10_800});
    let order = app.order_with(order).await.body;
    let first = app.pay_url("A1").await.expect(200);
    let lives = instant(&first.body["expires_at"]) - instant(&order["created_at"]);
    assert!((7_199..7_210).contains(&lives.whole_seconds()), "{lives}");

    app.clock.advance(minutes(121));
    let second = app.pay_url("A1").await.expect(200);
    assert_ne!(second.body["pay_order_id"], first.body["pay_order_id"]);
    assert_eq!(second.body["expires_at"], order["expires_at"]);
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"]);
    assert_eq!(app.sandbox_trade(first.text_of("pay_order_id")).await["status"], "CLOSED");

    app.sandbox_pay(second.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.status_of("A1").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_link_never_outlives_its_order() {
    let app = TestApp::start().await;
    let order = json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "amount": 5, "expires_in": 60});
    let order = app.order_with(order).await.body;
    app.clock.advance(seconds(30));
    let link = app.pay_url("A1").await.expect(200);
    assert_eq!(link.body["expires_at"], order["expires_at"]);
    let pay_order = link.text_of("pay_order_id");
    assert_eq!(app.sandbox_trade(pay_order).await["expires_at"], order["expires_at"]);

    app.clock.advance(seconds(31));
    assert_eq!(app.sandbox_pay(pay_order, json!({})).await.status, 409, "nobody pays through a dead link");
    app.run_until_idle().await;
    assert_eq!(app.status_of("A1").await, "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn an_order_shows_its_last_hundred_attempts_however_often_its_payer_changed() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let mut made = Vec::new();
    for payer in 0..105 {
        let link = app.post("/pay/url", ask("A1", &format!("payer-{payer}"))).await.expect(200);
        made.push(link.text_of("pay_order_id").to_owned());
    }
    let order = app.find_order("A1").await;
    let shown = order["pay_orders"].as_array().expect("attempts");
    let ids: Vec<&str> = shown.iter().filter_map(|attempt| attempt["pay_order_id"].as_str()).collect();
    assert_eq!(ids, made[5..], "the last hundred, oldest first");
    assert_eq!(shown.last().expect("a last one")["status"], "PAYING");
    // Each of the others can be asked for.
    let first = app.get(&format!("/pay/{}", made[0])).await.expect(200);
    assert_eq!(first.body["status"], "CLOSED");
    app.end().await;
}
