//! The worst that a lock in Redis can do: two instances work on one order, each with the lock in its hand.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::lock::Scene;
use serde_json::json;

use super::TestApp;

/// How long the channel keeps the first instance busy with a link; a failover must fit in.
const LINK_MS: u32 = 9000;
/// How long it keeps it busy with a close.
const CLOSE_MS: u32 = 2500;

/// Variables for instances of such a story.
pub fn vars() -> Vec<(&'static str, String)> {
    vec![("CHANNEL_DEADLINE_MS", "10000".to_owned()), ("LOCK_TTL_MS", "60000".to_owned())]
}

/// The first makes a link, and closes an order, under a lock that `lose` takes away meanwhile, so that the second
/// gets the same lock and does the same: one attempt, one payment, one close.
pub async fn has_one_effect(first: &TestApp, second: &TestApp, mut lose: impl AsyncFnMut()) {
    first.order("D1").await;
    first.fault(FaultOp::Create, FaultKind::Delay, 1, Some(LINK_MS)).await;
    let (slow, quick) = tokio::join!(first.pay_url("D1"), async {
        first.eventually("it has begun", async || first.count_where("pay_orders", "true").await == 1).await;
        lose().await;
        granted_again(second, "D1").await;
        assert_eq!(first.attempt_statuses("D1").await, ["INIT"], "the first is still at it");
        second.pay_url("D1").await
    });
    let (slow, quick) = (slow.expect(200), quick.expect(200));
    assert_eq!(slow.body["pay_order_id"], quick.body["pay_order_id"]);
    assert_eq!(slow.body["pay_url"], quick.body["pay_url"]);
    assert_eq!(first.count_where("pay_orders", "order_no = 'D1'").await, 1, "one attempt");

    let id = slow.text_of("pay_order_id").to_owned();
    let paid = first.success("e1", &id, "t1", 1990);
    tokio::join!(first.deliver(&paid), second.deliver(&paid));
    assert_eq!(first.find_order("D1").await["paid_by"], id);

    first.order_to_pay("D2").await;
    first.fault(FaultOp::Close, FaultKind::Delay, 1, Some(CLOSE_MS)).await;
    let (slow, quick) = tokio::join!(first.close("D2"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        lose().await;
        granted_again(second, "D2").await;
        assert_eq!(first.status_of("D2").await, "PENDING", "the first is still at it");
        second.close("D2").await
    });
    assert_eq!(
        (slow.expect(200).body["status"].clone(), quick.expect(200).body["status"].clone()),
        (json!("CLOSED"), json!("CLOSED"))
    );
    for (event, order_no, count) in
        [("order.paid", "D1", 1), ("order.closed", "D2", 1), ("order.closed", "D1", 0)]
    {
        let told =
            first.count_where("outbox", &format!("event = '{event}' AND order_no = '{order_no}'")).await;
        assert_eq!(told, count, "{event} of {order_no}");
    }
    assert_eq!(first.count("stray_payments").await, 0);
    first.run_until_idle().await;
}

/// The lock that the first still works under can be had by the second.
async fn granted_again(second: &TestApp, order_no: &str) {
    let key = format!("lock:ORDER:demo:{order_no}");
    second
        .eventually("the lock is granted to another", async || {
            let guard = second.instance.app.locks.acquire(Scene::Close, &key).await;
            guard.is_ok_and(|guard| !guard.is_degraded())
        })
        .await;
}
