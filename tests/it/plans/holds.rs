//! What looks at holds reads what it is for, whatever else the user has used.

use serde_json::Value;

use super::{ANALYZE, enter, entries, plan, scans_of, statements, worlds};
use crate::support::stores;

/// Many merchants, each with many users, each with many holds: every part of a key is narrow by itself.
const MANY_MERCHANTS: &str = "
    SET LOCAL session_replication_role = replica;
    INSERT INTO products (merchant_id, product_code, pricing, key_scope, created_at, updated_at)
    SELECT 'shop' || s, 'p', 'PER_UNIT', 'REQUEST', now(), now() FROM generate_series(1, 20) AS s;
    INSERT INTO product_prices (merchant_id, product_code, currency, fx_version, unit_price, created_at, updated_at)
    SELECT 'shop' || s, 'p', 'CNY', '', 1, now(), now() FROM generate_series(1, 20) AS s;
    INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                             key_fx_version, currency, fx_version, cycle, pricing, unit_price, estimated_units, units,
                             counted_units, carries_fee, held, status, expires_at, created_at, updated_at)
    SELECT format('uh_%s_%s_%s', s, u, h), 'shop' || s, 'r', 'u' || u, 'p', 'k' || h, '', '', 'CNY', '', 'c', 'PER_UNIT',
           1, 1, 1, 0, false, 0, 'CONFIRMED', now(), now(), now()
    FROM generate_series(1, 20) AS s, generate_series(1, 50) AS u, generate_series(1, 20) AS h;";

fn worlds_of_holds() -> impl Iterator<Item = (&'static str, String)> {
    worlds().into_iter().chain([("many merchants, users and holds", format!("{MANY_MERCHANTS} {ANALYZE}"))])
}

#[tokio::test]
async fn a_page_of_holds_reads_a_range_of_the_index_in_its_order_and_leaves_nothing_out() {
    let pages = statements(|text| text.contains("FROM usage_holds") && text.contains("hold_id DESC"));
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds_of_holds() {
        let mut tx = enter(&config, &seed).await;
        let mut scans = Vec::new();
        for page in &pages {
            scans_of(&plan(&mut tx, page).await, "usage_holds", &mut scans);
        }
        scans.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = ["usage_holds_of_merchant", "usage_holds_of_merchant", "usage_holds_of_user"];
        assert_eq!(scans, expected.map(|index| (index.to_owned(), Value::Null)), "{world}");
    }
}

#[tokio::test]
async fn the_hold_of_a_key_is_looked_up_by_the_whole_key() {
    let looks = statements(|text| text.contains("AS hold ON true"));
    assert_eq!(looks.len(), 1, "{looks:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds_of_holds() {
        let mut tx = enter(&config, &seed).await;
        let plan = plan(&mut tx, &looks[0]).await;
        let (mut scans, mut found) = (Vec::new(), Vec::new());
        scans_of(&plan, "usage_holds", &mut scans);
        assert_eq!(scans, [("usage_holds_key".to_owned(), Value::Null)], "{world}: {plan}");
        entries(&plan, &mut found);
        let (_, key) = found.iter().find(|(index, _)| index == "usage_holds_key").expect("an entry");
        for part in
            ["merchant_id", "user_id", "product_code", "idempotency_key", "key_currency", "key_fx_version"]
        {
            assert!(key.contains(&format!("({part} = ")), "{world}: {key}");
        }
    }
}
