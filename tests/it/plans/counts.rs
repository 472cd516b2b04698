//! What a batch counts of itself, so that one part of a statement comes before another, is counted once.

use serde_json::Value;

use super::{each_part, enter, plan, quiet_night, statements};
use crate::support::stores;

/// The joins that count a part of the statement, which is the same for all rows, anew for each row of the other side.
fn counted_anew(plan: &Value) -> usize {
    let mut found = 0;
    each_part(plan, &mut |node| {
        let inner = &node["Plans"][1];
        let counted = &inner["Plans"][0];
        let is_of_a_part = counted["Node Type"] == "CTE Scan" && counted["Filter"].is_null();
        let is_anew = inner["Node Type"] == "Aggregate" && is_of_a_part && inner["Plans"][1].is_null();
        found += usize::from(node["Node Type"] == "Nested Loop" && is_anew);
    });
    found
}

#[tokio::test]
async fn what_comes_first_is_counted_once_and_not_for_each_of_a_batch() {
    let statements = statements(|text| text.contains("(SELECT count(*) FROM "));
    for part in ["opened", "locked", "made", "patient"] {
        let counts = format!("(SELECT count(*) FROM {part})");
        assert!(statements.iter().any(|text| text.contains(&counts)), "{part}: a statement of this story");
    }
    let config = stores::database_config(&stores::fresh_database().await);
    let mut slow = Vec::new();
    for seed in [String::new(), quiet_night(30)] {
        let mut tx = enter(&config, &seed).await;
        for statement in &statements {
            if counted_anew(&plan(&mut tx, statement).await) > 0 {
                slow.push(statement.as_str());
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n\n"));
}
