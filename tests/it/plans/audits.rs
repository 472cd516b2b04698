//! The audit looks at everything once, and at nothing once for each row of something else.

use serde_json::Value;

use super::{enter, plan, quiet_night, statements};
use crate::support::stores;

/// What is taken from as fast as it fills, and so was empty when it was vacuumed, and where millions may stand since.
const EMPTIED_AT_TIMES: [&str; 2] = ["outbox_queue", "deliveries"];

/// The settings of the snapshot that an audit looks at.
const IN_A_SNAPSHOT: &str =
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on;
                             SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL work_mem = '128MB'";

/// Whether a part of this plan walks through the table anew for each row of something else.
fn walks_again(node: &Value, table: &str, is_repeated: bool) -> bool {
    let is_repeated = match node["Parent Relationship"].as_str() {
        Some("SubPlan") => true,
        // What is materialized is walked through once, however often it is read.
        Some("InitPlan") => false,
        _ => is_repeated && node["Node Type"] != "Materialize",
    };
    if node["Node Type"] == "Seq Scan" && node["Relation Name"] == table {
        return is_repeated;
    }
    let mut parts = node["Plans"].as_array().into_iter().flatten();
    parts.any(|part| {
        let is_inner = node["Node Type"] == "Nested Loop" && part["Parent Relationship"] == "Inner";
        walks_again(part, table, is_repeated || is_inner)
    })
}

/// Ways to ask for what stands there for each row of something else.
const LOOK_UPS: [&str; 3] = [
    "SELECT id FROM outbox AS event WHERE (SELECT event_id FROM {table} WHERE event_id = event.id LIMIT 1) IS NULL",
    "SELECT id, found.event_id FROM outbox AS event
     LEFT JOIN LATERAL (SELECT event_id FROM {table} WHERE event_id = event.id LIMIT 1) AS found ON true",
    "SELECT id, found.count FROM outbox AS event
     CROSS JOIN LATERAL (SELECT count(*) FROM {table} WHERE event_id = event.id) AS found",
];

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
        for look_up in LOOK_UPS {
            let plan = plan(&mut tx, &look_up.replace("{table}", table)).await;
            assert!(walks_again(&plan[0]["Plan"], table, false), "this story sees nothing: {plan:#}");
        }
        for check in &checks {
            let plan = plan(&mut tx, check).await;
            assert!(!walks_again(&plan[0]["Plan"], table, false), "{table}: {plan:#} of {check}");
        }
    }
}
