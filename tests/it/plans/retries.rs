//! What is tried again of one order or one thing is found by it, whatever else has failed or was given up.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

use super::rows_read;
use crate::support::{TestApp, TestOptions};

/// Of each order one task, which has failed or was given up.
const FAILED: &str = "
    INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, last_error, due_at,
                               created_at, updated_at)
    SELECT 'REDO_BUSINESS', 'DRIVE_REFUND', 'rf_' || g, 'demo', 'O' || g, CASE g % 2 WHEN 0 THEN 'DEAD' ELSE 'READY' END, 3,
           'silent', now() + interval '1 h', now(), now()
    FROM generate_series(1, 20000) AS g";

#[tokio::test]
async fn a_retry_of_one_order_or_one_thing_reads_nothing_of_others() {
    let app = TestApp::start().await;
    for order_no in ["O6", "O7", "UNTRIED"] {
        app.order(order_no).await;
    }
    app.sql(FAILED).await;
    // The guard of a call that failed, which no worker has tried yet.
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    app.pay_url("UNTRIED").await.expect(503);
    // A connection tells what it read when it is closed.
    let looking = TestApp::start_with(TestOptions::over(&app)).await;
    let before = rows_read(&app, &["compensations"]).await;
    // Often enough for a plan that knows nothing of what is asked for.
    for _ in 0..8 {
        for order_no in ["O6", "O7", "UNTRIED"] {
            let path = format!("/admin/orders/{order_no}/compensate");
            let tried =
                looking.admin_post(&path, json!({"reason": "the buyer waits"})).await.expect(200).body;
            assert_eq!(tried, json!({"retried": 1, "written": 0}), "{order_no}");
        }
        for mut filter in [
            json!({"order_no": "O8"}),
            json!({"merchant_id": "demo", "order_no": "O9"}),
            json!({"subject": "rf_10"}),
            json!({"subject": "rf_11", "order_no": "O11"}),
        ] {
            filter["dry_run"] = json!(true);
            let found =
                looking.admin_post("/admin/compensations/retry", filter.clone()).await.expect(200).body;
            assert_eq!(found["matched"], 1, "{filter}");
        }
    }
    looking.instance.app.db.close().await;
    let after = rows_read(&app, &["compensations"]).await;
    let read = after[0].1 - before[0].1;
    println!("{read} rows of compensations were read");
    // One walk is more.
    assert!(read < 10_000, "{read} rows of compensations were read");
    app.sql("DELETE FROM compensations WHERE subject LIKE 'rf_%'").await;
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("UNTRIED").await, ["PAYING"]);
    app.end().await;
}
