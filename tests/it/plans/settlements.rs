//! What runs of settlements look at: a part of one index, bounded whoever's the orders are.

use serde_json::Value;

use super::{enter, entries, plan, scans_of, statements, worlds};
use crate::support::stores;

#[tokio::test]
async fn a_run_of_settlements_reads_one_index_up_to_its_limit_and_leaves_nothing_out_before_it() {
    let looks = statements(|text| text.contains("settle_status = 'UNSETTLED'") && text.contains("LIMIT"));
    assert_eq!(looks.len(), 2, "what a run would be for, and its pages: {looks:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds() {
        let mut tx = enter(&config, &seed).await;
        for look in &looks {
            let plan = plan(&mut tx, look).await;
            let (mut scans, mut found) = (Vec::new(), Vec::new());
            scans_of(&plan, "orders", &mut scans);
            assert_eq!(scans, [("orders_paid_unsettled".to_owned(), Value::Null)], "{world}: {look}");
            entries(&plan, &mut found);
            let [(_, condition)] = &found[..] else { panic!("{world}: {found:?} in {look}") };
            assert!(condition.contains("paid_at <"), "{world}: {condition}");
            let key = "(paid_at, merchant_id, order_no) >";
            assert_eq!(condition.contains(key), look.contains(key), "{world}: {condition}");
        }
    }
}
