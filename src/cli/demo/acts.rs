//! The five acts.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};

use super::Line;
use super::client::{Client, text};
use super::progress::Progress;

/// How many there are.
pub(super) const COUNT: u64 = 5;
/// Equal requests for one pay URL.
const REQUESTS: usize = 100;
/// Times that a callback is repeated.
const CALLBACKS: usize = 50;
/// Orders that are paid around their deadline.
const RACES: u64 = 12;
/// Longest wait for the workers.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// Whether it held, and what was seen.
type Seen = Result<(bool, String), String>;

/// Plays all acts; one that cannot be played did not hold.
pub(super) async fn play(client: &Client, progress: &Progress) -> Vec<Line> {
    let mut lines = Vec::new();
    macro_rules! act {
        ($promise:literal, $play:expr) => {
            progress.begin($promise);
            let (held, seen) = $play.await.unwrap_or_else(|problem| (false, problem));
            lines.push(Line { promise: $promise, held, seen });
            progress.step();
        };
    }
    act!("a hundred requests at once are one attempt and one link", storm(client));
    act!("fifty repeats of a callback have one effect", repeats(client));
    act!("paid or closed at the deadline, never both, and no money lost", deadline(client));
    act!("stray money goes back", stray(client));
    act!("every invariant holds", audit(client));
    lines
}

async fn storm(client: &Client) -> Seen {
    let order_no = client.order(1800).await?;
    let replies = try_join_all((0..REQUESTS).map(|_| client.pay_url(&order_no))).await?;
    let good = replies.iter().filter(|reply| reply.status == 200).count();
    let links: BTreeSet<&str> = replies.iter().filter_map(|reply| reply.body["pay_url"].as_str()).collect();
    let attempts = list(&client.find_order(&order_no).await?, "pay_orders").len();
    let seen = format!("{good} of {REQUESTS} answered 200, {} links, {attempts} attempts", links.len());
    Ok((good == REQUESTS && links.len() == 1 && attempts == 1, seen))
}

async fn repeats(client: &Client) -> Seen {
    let (order_no, pay_order_id) = client.order_to_pay(1800).await?;
    let paid = client.press_pay(&pay_order_id, &json!({"notify": false})).await?.good("Pay")?;
    let callback = json!({
        "event_id": format!("evt_{order_no}"), "transaction_id": text(&paid, "transaction_id")?,
        "out_trade_no": pay_order_id, "total_fee": 1990, "currency": "CNY", "trade_status": "SUCCESS",
        "paid_at": text(&paid, "paid_at")?,
    });
    let replies = try_join_all((0..CALLBACKS).map(|_| client.callback(&callback))).await?;
    let good = replies.iter().filter(|reply| reply.status == 200 && reply.text == "SUCCESS").count();
    let order = client.find_order(&order_no).await?;
    let timeline = client
        .admin(&format!("/admin/orders/{order_no}/timeline?merchant_id={}", whose(client, &order_no).await?))
        .await?;
    let entries = list(&timeline, "data");
    let count = |kind: &str, event: &str| {
        entries.iter().filter(|entry| entry["kind"] == kind && entry["event"] == event).count()
    };
    let (kept, payments) = (count("CALLBACK", "RECEIVED"), count("ORDER", "PAYMENT_CONFIRMED"));
    let strays = list(&order, "stray_payments").len();
    let status = order["status"].as_str().unwrap_or("?");
    let seen = format!(
        "{good} of {CALLBACKS} acknowledged, {kept} kept, {payments} payment, {strays} stray, the order is {status}"
    );
    Ok((good == CALLBACKS && (kept, payments, strays, status) == (1, 1, 0, "PAID"), seen))
}

/// The merchant behind the key: the admin routes want it where two merchants share a number.
async fn whose(client: &Client, order_no: &str) -> Result<String, String> {
    text(&client.admin(&format!("/admin/orders/{order_no}")).await?, "merchant_id")
}

async fn deadline(client: &Client) -> Seen {
    let ends = join_all((0..RACES).map(|race| pay_at_deadline(client, race))).await;
    let ends = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
    let count = |end: End| ends.iter().filter(|seen| **seen == end).count();
    let (paid, closed, refused, other) =
        (count(End::Paid), count(End::ClosedAndRefunded), count(End::ClosedUnpaid), count(End::Other));
    let seen = format!(
        "{RACES} orders: {paid} paid, {closed} closed with the money returned or held, {refused} closed before money was \
         taken, {other} anything else"
    );
    Ok((other == 0, seen))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Paid,
    ClosedAndRefunded,
    ClosedUnpaid,
    Other,
}

/// Pays an order of one second, each a little later than the one before.
async fn pay_at_deadline(client: &Client, race: u64) -> Result<End, String> {
    let (order_no, pay_order_id) = client.order_to_pay(1).await?;
    tokio::time::sleep(Duration::from_millis(600 + 100 * race)).await;
    // Forced: this channel takes money also for a trade that was closed a moment ago.
    let pressed = client.press_pay(&pay_order_id, &json!({"force": true})).await?;
    let is_taken = pressed.status == 200;
    let mut end = End::Other;
    for _ in 0..LOOKS {
        let order = client.find_order(&order_no).await?;
        end = end_of(&order, is_taken);
        if end != End::Other {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(end)
}

fn end_of(order: &Value, is_taken: bool) -> End {
    let strays = list(order, "stray_payments");
    let all_back = strays.iter().all(|stray| has_come_to_rest(stray) && stray["amount"] == 1990);
    match (order["status"].as_str(), strays.len(), is_taken) {
        (Some("PAID"), 0, true) => End::Paid,
        (Some("CLOSED"), 1, true) if all_back => End::ClosedAndRefunded,
        (Some("CLOSED"), 0, false) => End::ClosedUnpaid,
        _ => End::Other,
    }
}

async fn stray(client: &Client) -> Seen {
    let (order_no, pay_order_id) = client.order_to_pay(1800).await?;
    client.shop_post(&format!("/orders/{order_no}/close"), &json!({})).await?.good("the close")?;
    client.press_pay(&pay_order_id, &json!({"force": true})).await?.good("Pay")?;
    let mut order = Value::Null;
    for _ in 0..LOOKS {
        order = client.find_order(&order_no).await?;
        if list(&order, "stray_payments").iter().any(has_come_to_rest) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let sum = |name: &str, status: &str| -> i64 {
        let those = list(&order, name).iter().filter(|one| one["status"] == status);
        those.filter_map(|one| one["amount"].as_i64()).sum()
    };
    let (held, taken) = (sum("stray_payments", "HELD"), sum("stray_payments", "REFUNDED"));
    let back = sum("refunds", "SUCCEEDED");
    let status = order["status"].as_str().unwrap_or("?");
    let seen = match held {
        0 => format!("1990 taken too late, {back} returned of {taken} stray, the order stays {status}"),
        _ => format!(
            "1990 taken too late, {held} held for a person, {back} returned, the order stays {status}"
        ),
    };
    Ok((status == "CLOSED" && matches!((held, taken, back), (0, 1990, 1990) | (1990, 0, 0)), seen))
}

async fn audit(client: &Client) -> Seen {
    let report = client.admin("/admin/audit").await?;
    let checks = list(&report, "checks");
    let is_violated = |check: &&Value| check["violations"].as_i64() != Some(0);
    let violated: Vec<&str> =
        checks.iter().filter(is_violated).map(|check| check["id"].as_str().unwrap_or("?")).collect();
    let held = report["ok"] == true && violated.is_empty() && !checks.is_empty();
    let seen = format!("{} checks, {} violated {}", checks.len(), violated.len(), violated.join(", "));
    Ok((held, seen.trim_end().to_owned()))
}

/// Whether stray money went back, or is held for a person, where that is its merchant's policy.
fn has_come_to_rest(stray: &Value) -> bool {
    matches!(stray["status"].as_str(), Some("REFUNDED" | "HELD"))
}

fn list<'a>(body: &'a Value, member: &str) -> &'a [Value] {
    body[member].as_array().map(Vec::as_slice).unwrap_or_default()
}
