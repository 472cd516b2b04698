//! What has grown old is found by its age.

use super::{ANALYZE, EMPTIED, each_part, enter, plan, quiet_night, statements, worlds};
use crate::support::stores;

/// New rows have taken the places of older ones: those of all ages are side by side.
const SCATTERED: &str = "
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
    SELECT 'shop', 'k' || g, sha256(''), 'O' || g, 200, '', now() - random() * interval '3 days' FROM generate_series(1, 5000) AS g;
    INSERT INTO statement_files
    SELECT 'sf_' || g, 0, '', now() - random() * interval '7 days' FROM generate_series(1, 1000) AS g;
    UPDATE webhook_inbox SET received_at = now() - random() * interval '90 days';
    UPDATE compensations SET created_at = now() - random() * interval '90 days';
    UPDATE deliveries SET created_at = now() - random() * interval '90 days';
    UPDATE usage_messages SET created_at = now() - random() * interval '14 days';";

#[tokio::test]
async fn what_is_old_is_found_by_its_age_alone_also_where_new_rows_took_the_places_of_older_ones() {
    let forgetting = statements(|text| text.starts_with("DELETE FROM") && text.contains("_at LIMIT $2"));
    let tables: Vec<_> = forgetting.iter().filter_map(|text| text.split_whitespace().nth(2)).collect();
    assert_eq!(tables.len(), 6, "{tables:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    let scattered = ("all ages side by side", format!("{} {SCATTERED} {ANALYZE}", quiet_night(20_000)));
    for (world, seed) in worlds().into_iter().chain([(EMPTIED.0, EMPTIED.1.to_owned()), scattered]) {
        let mut tx = enter(&config, &seed).await;
        for (statement, table) in forgetting.iter().zip(&tables) {
            let (mut ways, plan) = (Vec::new(), plan(&mut tx, statement).await);
            each_part(&plan, &mut |node| {
                let kind = node["Node Type"].as_str().filter(|kind| kind.ends_with("Scan"));
                let way = kind.filter(|_| node["Relation Name"] == **table);
                ways.extend(way.map(|kind| format!("{kind} {}", node["Index Name"].as_str().unwrap_or("-"))));
            });
            ways.sort_unstable();
            // In the order of age, so that the first row that is young enough ends it.
            assert_eq!(ways, [format!("Index Scan {table}_by_age"), "Tid Scan -".to_owned()], "{world}");
        }
    }
}

#[tokio::test]
async fn callbacks_that_wait_are_counted_without_those_that_do_not() {
    let counting = statements(|text| text.contains("'callback', verdict"));
    assert_eq!(counting.len(), 1);
    let config = stores::database_config(&stores::fresh_database().await);
    let uncommon = format!(
        "{} UPDATE webhook_inbox SET verdict = 'RECORDED', received_at = now() - random() * interval '90 days'; {ANALYZE}",
        quiet_night(20_000)
    );
    let uncommon = ("most of them neither wait nor were applied", uncommon);
    for (world, seed) in worlds().into_iter().chain([(EMPTIED.0, EMPTIED.1.to_owned()), uncommon]) {
        let mut tx = enter(&config, &seed).await;
        let (mut ways, plan) = (Vec::new(), plan(&mut tx, &counting[0]).await);
        each_part(&plan, &mut |node| {
            let index = node["Index Name"].as_str().filter(|name| name.starts_with("webhook_inbox"));
            ways.extend(index.map(str::to_owned));
            assert!(node["Node Type"] != "Seq Scan" || node["Relation Name"] != "webhook_inbox", "{world}");
        });
        assert_eq!(ways, ["webhook_inbox_waiting"], "{world}");
    }
}
