//! Many first payments at once.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Executor, raw_sql};

use crate::support::TestApp;

/// As many of each kind.
const ORDERS: i64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_wants_one_thing_or_tops_one_user_up_is_paid_whoever_has_that_in_hand() {
    let app = TestApp::start().await;
    app.stock("TEA", ORDERS).await;
    let sales = join_all((0..ORDERS).map(|index| {
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        let order = json!({"order_no": format!("S{index}"), "user_id": "u1", "currency": "CNY", "amount": 1990,
                           "items": items});
        let app = &app;
        async move {
            app.order_with(order).await.expect(201);
            let link = app.pay_url(&format!("S{index}")).await.expect(200);
            app.success(&format!("s{index}"), link.text_of("pay_order_id"), &format!("ts{index}"), 1990)
        }
    }))
    .await;
    let top_ups = join_all((0..ORDERS).map(|index| {
        let app = &app;
        async move {
            let id = app.top_up_to_pay(&format!("T{index}"), "u2", index + 1).await;
            app.success(&format!("t{index}"), &id, &format!("tt{index}"), index + 1)
        }
    }))
    .await;
    // Batches wait for it, side by side, and are split.
    let mut holder = app.direct_connection().await;
    let held = "BEGIN; SELECT 1 FROM skus WHERE sku = 'TEA' FOR UPDATE";
    holder.execute(raw_sql(held)).await.expect("in hand");
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        holder.execute("ROLLBACK").await.expect("free");
    };
    let all = sales.iter().chain(&top_ups).map(|callback| app.deliver(callback));
    tokio::join!(join_all(all), let_go);

    assert_eq!(app.count_where("orders", "status = 'PAID'").await, 2 * ORDERS);
    assert_eq!(app.stock_of("TEA").await, (0, 0));
    assert_eq!(app.balances_of("u2").await, [("CNY".into(), ORDERS * (ORDERS + 1) / 2, 0, 0)]);
    app.end().await;
}
