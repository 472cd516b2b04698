//! What a batch does once, and in which order its parts meet: nothing of it grows with the square of the batch.

use serde_json::Value;

use super::{each_part, enter, plan, quiet_night, statements};
use crate::support::stores;

/// The side of a join that is on that side of it.
fn side<'a>(join: &'a Value, name: &str) -> &'a Value {
    let parts = join["Plans"].as_array().into_iter().flatten();
    parts.into_iter().find(|part| part["Parent Relationship"] == name).unwrap_or(&Value::Null)
}

/// Whether rows come from a part of the statement or from its parameters: no index leads to them.
fn has_no_index(rows: &Value) -> bool {
    rows["Node Type"] == "CTE Scan" || rows["Node Type"] == "Function Scan"
}

/// The joins of a plan of which these are the outer and the inner side.
fn joins(plan: &Value, is_meant: impl Fn(&Value, &Value, &Value) -> bool) -> usize {
    let mut found = 0;
    each_part(plan, &mut |node| {
        let is_join = node["Node Type"] == "Nested Loop";
        found += usize::from(is_join && is_meant(node, side(node, "Outer"), side(node, "Inner")));
    });
    found
}

/// The joins that count a part of the statement, which is the same for all rows, anew for each row of the other side.
fn counted_anew(plan: &Value) -> usize {
    joins(plan, |_, _, inner| {
        let counted = &inner["Plans"][0];
        let is_all = inner["Plans"].as_array().is_some_and(|parts| parts.len() == 1);
        let is_of_a_part = counted["Node Type"] == "CTE Scan" && counted["Filter"].is_null();
        inner["Node Type"] == "Aggregate" && is_all && is_of_a_part
    })
}

/// The joins that compare each row of one part of the statement with each of another.
fn compared_with_each(plan: &Value) -> usize {
    joins(plan, |join, outer, inner| {
        !join["Join Filter"].is_null() && has_no_index(outer) && has_no_index(inner)
    })
}

/// The statements in whose plans, in a new shop and beside some of everything, something of that kind is found.
async fn found_in(statements: &[String], count: impl Fn(&Value) -> usize) -> Vec<&str> {
    let config = stores::database_config(&stores::fresh_database().await);
    let mut found = Vec::new();
    for seed in [String::new(), quiet_night(30)] {
        let mut tx = enter(&config, &seed).await;
        for statement in statements {
            if count(&plan(&mut tx, statement).await) > 0 {
                found.push(statement.as_str());
            }
        }
    }
    found
}

#[tokio::test]
async fn what_comes_first_is_counted_once_and_not_for_each_of_a_batch() {
    let statements = statements(|text| text.contains("(SELECT count(*) FROM "));
    for part in ["opened", "locked", "made", "patient"] {
        let counts = format!("(SELECT count(*) FROM {part})");
        assert!(statements.iter().any(|text| text.contains(&counts)), "{part}: a statement of this story");
    }
    let slow = found_in(&statements, counted_anew).await;
    assert!(slow.is_empty(), "{}", slow.join("\n\n"));
}

/// Of 500 at most against as many; and of lanes, a thousand at most.
const BOUNDED: [&str; 2] = ["`finish_given_up`", "`claim_due`: takes what is due"];

#[tokio::test]
async fn no_part_of_a_batch_is_compared_with_each_of_another() {
    let is_bounded = |text: &str| BOUNDED.iter().any(|name| text.contains(name));
    // The invariants look at everything, with other settings.
    let is_other = |text: &str| text.contains("WITH clock AS") || text.contains("SAVEPOINT");
    let statements = statements(|text| text.contains("unnest(") && !is_bounded(text) && !is_other(text));
    assert!(statements.len() >= 50, "{} statements were found", statements.len());
    let slow = found_in(&statements, compared_with_each).await;
    assert!(slow.is_empty(), "{}", slow.join("\n\n"));
}
