//! Everything that moves one user's money, at the same time and without any lock: nothing is lost, doubled or stuck.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Chance, TestApp, TestOptions};

const ORDERS: usize = 10;

/// Sells, settles and gives an order back in two parts, of which the channel takes the first one back.
async fn live(app: &TestApp, n: usize, pauses: [std::time::Duration; 3]) {
    let order_no = format!("A{n}");
    let settle = async {
        tokio::time::sleep(pauses[0]).await;
        let settled = app.settle(&order_no).await;
        let is_told = matches!(settled.status, 200 | 201) || settled.body["code"] == "ORDER_NOT_SETTLEABLE";
        assert!(is_told, "{settled:?}");
    };
    let refund = async {
        tokio::time::sleep(pauses[1]).await;
        let parts = [("1", Some(700)), ("2", None)];
        for (part, amount) in parts {
            let refund_no = format!("R{n}-{part}");
            let body =
                json!({"refund_no": refund_no, "order_no": order_no, "amount": amount, "return_stock": true});
            app.post("/refunds", body).await.expect(201);
            app.eventually("it has gone back", async || {
                app.run_until_idle().await;
                app.find_refund(&refund_no).await["status"] == "SUCCEEDED"
            })
            .await;
        }
        tokio::time::sleep(pauses[2]).await;
        let order = app.find_order(&order_no).await;
        let paid_by = order["paid_by"].as_str().expect("an attempt").to_owned();
        let refund_id = sqlx::query_scalar::<_, String>("SELECT refund_id FROM refunds WHERE refund_no = $1");
        let refund_id = refund_id.bind(format!("R{n}-1")).fetch_one(app.instance.app.db.pool()).await;
        app.take_refund_back(&format!("back-{n}"), &refund_id.expect("its id"), &paid_by, 700).await;
    };
    tokio::join!(settle, refund);
}

/// Takes the user's money out again and again, and gives a part of the top-up back.
async fn spend(app: &TestApp) {
    for n in 0..ORDERS {
        let body = json!({"withdrawal_no": format!("W{n}"), "user_id": "u1", "amount": 60, "currency": "CNY",
                          "channel": "sandbox", "account": "a"});
        let made = app.post("/withdrawals", body).await;
        assert!(matches!(made.status, 201 | 422), "{made:?}");
        let body = json!({"refund_no": format!("T{n}"), "order_no": "TOP", "amount": 20});
        let made = app.post("/refunds", body).await;
        assert!(matches!(made.status, 201 | 422), "{made:?}");
        app.run_until_idle().await;
    }
}

/// Settles in batches beside it, folds, and looks at the books.
async fn watch(app: &TestApp) {
    for _ in 0..ORDERS {
        let body = json!({"older_than_days": 0, "reason": "the story wants it"});
        app.admin_post("/admin/settlements/run", body).await.expect(200);
        app.run_until_idle().await;
        app.trial_balance().await;
        let report = payonce::audit::audit(&app.instance.app.db, app.clock.now()).await.expect("an audit");
        let broken: Vec<_> = report.checks.iter().filter(|check| check.violations > 0).collect();
        assert!(broken.is_empty() && report.failed.is_empty(), "{broken:#?}, {:#?}", report.failed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_moves_one_users_money_at_once_comes_out_exactly() {
    let redis_url = Some("redis://127.0.0.1:1".to_owned());
    let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
    let mut chance = Chance::new();
    app.rebate_rule(None, "0.05").await;
    app.stock("TEA", 100).await;
    app.top_up("TOP", "u1", 300).await;
    for n in 0..ORDERS {
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        app.order_with(
            json!({"order_no": format!("A{n}"), "user_id": "u1", "currency": "CNY", "items": items}),
        )
        .await;
        let paid = app.pay_url(&format!("A{n}")).await.expect(200).text_of("pay_order_id").to_owned();
        app.sandbox_pay(&paid, json!({})).await.expect(200);
    }
    app.run_until_idle().await;

    let lives: Vec<_> = (0..ORDERS)
        .map(|n| live(&app, n, [chance.pause(800_000), chance.pause(800_000), chance.pause(300_000)]))
        .collect();
    tokio::join!(join_all(lives), spend(&app), watch(&app));
    app.run_until_idle().await;
    for n in 0..ORDERS {
        assert_eq!(app.refunded(&format!("A{n}")).await, ("PARTIALLY_REFUNDED".into(), 1_290));
    }
    app.end_without_deadlocks().await;
}
