//! The cashier page and a shop's page, as a buyer meets them: in a browser.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::{Value, json};
use thirtyfour::WebDriver;
use tokio::net::TcpListener;

use crate::support::app::{OPERATOR, PUBLISHABLE_KEY};
use crate::support::browser::{browse, find, press, text};
use crate::support::{Reply, TestApp, TestOptions};

/// Asks for a pay URL with the publishable key, as a shop's page does, and shows what came of it.
const SHOP: &str = r##"<!doctype html><title>The shop</title><p id="result"></p>
<script>
  const asked = new URLSearchParams(location.search);
  const show = (text) => { document.querySelector("#result").textContent = text; };
  const call = (path, more) => fetch(asked.get("api") + path, {
    headers: { Authorization: "Bearer " + asked.get("key"), "Content-Type": "application/json" }, ...more,
  });
  const order = () => call("/pay/url", { method: "POST", body: JSON.stringify({
    order_no: asked.get("order_no"), payer_id: "u1", channel: "sandbox", return_url: location.origin + "/thanks",
  }) });
  const run = async () => {
    if (asked.get("path")) return show("status " + (await call(asked.get("path"))).status);
    const link = await (await order()).json();
    const attempt = await (await call("/pay/" + link.pay_order_id)).json();
    show(attempt.status + " " + link.pay_url);
  };
  if (asked.get("api")) run().catch((error) => show("blocked: " + error.name));
</script>"##;

/// A shop on an origin of its own.
async fn open_shop() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let shop = Router::new()
        .route("/", get(|| async { Html(SHOP) }))
        .route("/thanks", get(|| async { Html("<!doctype html><h1>Thank you</h1>") }));
    tokio::spawn(async move { axum::serve(listener, shop).await });
    origin
}

/// An instance that lets the pages of this origin call it.
async fn start_for(origin: &str) -> TestApp {
    let vars = vec![("CORS_ORIGINS", origin.to_owned())];
    TestApp::start_with(TestOptions { workers: true, vars, ..TestOptions::default() }).await
}

/// Opens the shop's page and waits for what its script shows.
async fn ask_from(page: &WebDriver, shop: &str, app: &TestApp, key: &str, more: &str) -> String {
    let address = format!("{shop}/?api={}&key={key}&{more}", app.url);
    page.goto(address).await.expect("the shop");
    find(page, "#result:not(:empty)").await;
    text(page, "#result").await
}

async fn state_of(page: &WebDriver) -> String {
    find(page, "#state").await.attr("data-state").await.expect("an attribute").expect("a state")
}

async fn wait_for_status(app: &TestApp, path: &str, status: &str) {
    app.eventually(&format!("{path} is {status}"), || async {
        app.get(path).await.expect(200).body["status"] == status
    })
    .await;
}

async fn link_with_return(app: &TestApp, order_no: &str, return_url: &str) -> Reply {
    let channel = "sandbox";
    let body = json!({"order_no": order_no, "payer_id": "u1", "channel": channel, "return_url": return_url});
    app.post("/pay/url", body).await.expect(200)
}

#[tokio::test]
async fn a_buyer_presses_pay_and_the_order_is_paid() {
    let (app, shop) = (TestApp::start_working().await, open_shop().await);
    app.order("C1").await;
    let link = link_with_return(&app, "C1", &format!("{shop}/thanks")).await;

    browse(async |page| {
        page.goto(link.text_of("pay_url")).await.expect("the cashier");
        assert_eq!(text(&page, ".amount").await, "CNY 19.90");
        assert_eq!(state_of(&page).await, "open");
        assert!(find(&page, "figure svg").await.is_displayed().await.expect("a QR code"));

        press(&page, "#pay").await;
        find(&page, "#state[data-state=paid]").await;
        assert!(text(&page, "#state").await.starts_with("Paid"));
        assert!(page.find(thirtyfour::By::Css("#pay")).await.is_err(), "a paid trade has no button");
        wait_for_status(&app, "/orders/C1", "PAID").await;

        press(&page, "#back").await;
        assert_eq!(text(&page, "h1").await, "Thank you");
    })
    .await;
    app.end().await;
}

#[tokio::test]
async fn a_buyer_who_declines_gets_a_new_link() {
    let app = TestApp::start_working().await;
    app.order("C2").await;
    let declined = app.pay_url("C2").await.expect(200);

    browse(async |page| {
        page.goto(declined.text_of("pay_url")).await.expect("the cashier");
        press(&page, "#decline").await;
        find(&page, "#state[data-state=declined]").await;
        wait_for_status(&app, &format!("/pay/{}", declined.text_of("pay_order_id")), "FAILED").await;
        assert_eq!(app.status_of("C2").await, "PENDING");

        let link = app.pay_url("C2").await.expect(200);
        assert_ne!(link.body["pay_order_id"], declined.body["pay_order_id"]);
        page.goto(link.text_of("pay_url")).await.expect("the cashier");
        press(&page, "#pay").await;
        find(&page, "#state[data-state=paid]").await;
        wait_for_status(&app, "/orders/C2", "PAID").await;
    })
    .await;
    app.end().await;
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_gets_the_link_and_its_buyer_pays() {
    let shop = open_shop().await;
    let app = start_for(&shop).await;
    app.order("C3").await;

    browse(async |page| {
        let shown = ask_from(&page, &shop, &app, PUBLISHABLE_KEY, "order_no=C3").await;
        let pay_url = shown.strip_prefix("PAYING ").unwrap_or_else(|| panic!("{shown}"));
        page.goto(pay_url).await.expect("the cashier");
        press(&page, "#pay").await;
        press(&page, "#state[data-state=paid] ~ #back").await;
        assert_eq!(text(&page, "h1").await, "Thank you");
        wait_for_status(&app, "/orders/C3", "PAID").await;

        // Two routes are for browsers; no page reads the others, whatever key it holds.
        let closed = ask_from(&page, &shop, &app, PUBLISHABLE_KEY, "path=/orders/C3").await;
        assert_eq!(closed, "blocked: TypeError");
        let closed = ask_from(&page, &shop, &app, OPERATOR, "path=/admin/orders").await;
        assert_eq!(closed, "blocked: TypeError");
    })
    .await;
    app.end().await;
}

#[tokio::test]
async fn a_page_of_another_origin_is_blocked() {
    let (allowed, other) = (open_shop().await, open_shop().await);
    let app = start_for(&allowed).await;
    app.order("C4").await;

    browse(async |page| {
        let shown = ask_from(&page, &other, &app, PUBLISHABLE_KEY, "order_no=C4").await;
        assert_eq!(shown, "blocked: TypeError");
    })
    .await;
    let order = app.find_order("C4").await;
    assert_eq!(
        order["pay_orders"],
        Value::Array(Vec::new()),
        "the browser asked first, and then did nothing"
    );
    app.end().await;
}
