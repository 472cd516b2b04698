//! The audit looks at everything once, and at nothing once for each row of something else.

use serde_json::Value;

use super::{enter, plan, quiet_night, statements};
use crate::support::stores;

/// What is taken from as fast as it fills, and so was empty when it was vacuumed, and where millions may stand since.
const EMPTIED_AT_TIMES: [&str; 2] = ["outbox_queue", "deliveries"];

/// The settings of the snapshot that an audit looks at.
const IN_A_SNAPSHOT: &str =
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on;
                             SET LOCAL max_parallel_workers_per_gather = 0";

/// Whether a part of this plan walks through the table anew for each row of something else.
fn walks_again(node: &Value, table: &str, is_repeated: bool) -> bool {
    let is_repeated = is_repeated || node["Parent Relationship"] == "SubPlan";
    if node["Node Type"] == "Seq Scan" && node["Relation Name"] == table {
        return is_repeated;
    }
    let mut parts = node["Plans"].as_array().into_iter().flatten();
    parts.any(|part| {
        // What is materialized, hashed or sorted is walked through once.
        let is_inner = node["Node Type"] == "Nested Loop"
            && part["Parent Relationship"] == "Inner"
            && part["Node Type"] == "Seq Scan";
        walks_again(part, table, is_repeated || is_inner)
    })
}

#[tokio::test]
async fn no_check_of_the_audit_walks_for_each_row_through_what_was_empty_when_it_was_planned() {
    let checks = statements(|text| text.contains("WITH clock AS"));
    assert!(checks.len() > 90, "{}", checks.len());
    let config = stores::database_config(&stores::fresh_database().await);
    for table in EMPTIED_AT_TIMES {
        let seed = format!(
            "{}; SET LOCAL session_replication_role = replica; TRUNCATE {table};
             UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE oid = '{table}'::regclass; {IN_A_SNAPSHOT}",
            quiet_night(20_000)
        );
        let mut tx = enter(&config, &seed).await;
        for check in &checks {
            let plan = plan(&mut tx, check).await;
            assert!(!walks_again(&plan[0]["Plan"], table, false), "{table}: {plan:#} of {check}");
        }
    }
}
