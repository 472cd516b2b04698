//! The lists of operators read what they show, however much is over.

use super::{EMPTIED, each_part, enter, plan, rows_read, statements, worlds};
use crate::support::{TestApp, TestOptions, stores};

/// Much is over; what is rare stands where a walk along the key comes last.
const OVER: &str = "
    SET session_replication_role = replica;
    INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, refunded_amount, paid_by, paid_at,
                        expires_at, created_at, updated_at)
    SELECT 'demo', 'O' || g, 'u', 'PAID', 2, 'CNY', 0, 'po_' || g, now(), now(), now(), now()
    FROM generate_series(1, 20000) AS g
    UNION ALL
    SELECT 'demo', 'Z1', 'u', 'PENDING', 2, 'CNY', 0, NULL, NULL, now() + interval '1 day', now(), now()
    UNION ALL
    SELECT 'demo', 'Z2', 'u', 'PARTIALLY_REFUNDED', 2, 'CNY', 1, 'po_z', now(), now(), now(), now();
    INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                         failure, created_at, updated_at)
    SELECT 'rf_' || (100000 + g), 'demo', 'R' || g, 'O' || g, 'po_' || g, 1, 'CNY', 'SUCCEEDED', 'r', NULL, now(), now()
    FROM generate_series(1, 20000) AS g
    UNION ALL
    SELECT 'rf_0', 'demo', 'R0', 'O1', 'po_1', 1, 'CNY', 'AWAITING_APPROVAL', 'r', NULL, now(), now()
    UNION ALL
    SELECT 'rf_1', 'demo', 'R-1', 'O1', 'po_1', 1, 'CNY', 'FAILED', 'r', 'no', now(), now();
    INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason, status,
                                paid_at, created_at, updated_at)
    SELECT 'st_' || (100000 + g), 'sandbox', 't' || g, 'po', 1, 'CNY', 'LATE_PAYMENT',
           CASE g WHEN 0 THEN 'HELD' ELSE 'REFUNDED' END, now(), now(), now()
    FROM generate_series(0, 20000) AS g;
    INSERT INTO exceptions (exception_id, kind, subject, detail, status, action, created_at, updated_at)
    SELECT 'ex_' || (100000 + g), 'STRAY_MONEY', 's' || g, 'd', CASE g WHEN 0 THEN 'OPEN' ELSE 'RESOLVED' END,
           CASE WHEN g > 0 THEN 'NONE' END, now(), now()
    FROM generate_series(0, 20000) AS g;
    INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status,
                             failure, channel_payout_id, created_at, updated_at, version)
    SELECT 'wd_' || (200000 + g), 'other', 'W' || g, 'u1', 1, 'CNY', 'sandbox', 'a', 'SUCCEEDED', NULL, 'p', now(), now(), 4
    FROM generate_series(1, 20000) AS g
    UNION ALL
    SELECT 'wd_' || (100000 + g), 'demo', 'W' || g, 'u' || g, 1, 'CNY', 'sandbox', 'a',
           CASE WHEN g = 0 THEN 'PAYING' WHEN g <= 9000 THEN 'REVERSED' ELSE 'SUCCEEDED' END,
           CASE WHEN g BETWEEN 1 AND 9000 THEN 'no' END, CASE WHEN g > 9000 THEN 'p' END, now(), now(), 4
    FROM generate_series(0, 20000) AS g;
    -- Who is in the state that most are in is found among a merchant's as soon as that is known.
    ANALYZE withdrawals;
    INSERT INTO accounts (account_id, balance, created_at, updated_at)
    SELECT format('USER_AVAILABLE:demo:u%s:CNY', g), 7, now(), now() FROM generate_series(1, 20000) AS g
    UNION ALL
    -- Who owed something once.
    SELECT format('USER_RECEIVABLE:demo:u%s:CNY', g), 0, now(), now() FROM generate_series(1, 20) AS g
    UNION ALL
    SELECT 'USER_RECEIVABLE:demo:z:CNY', 5, now(), now()";

const TABLES: [&str; 6] = ["accounts", "exceptions", "orders", "refunds", "stray_payments", "withdrawals"];

#[tokio::test]
async fn a_list_by_state_reads_what_it_shows_and_not_what_is_over() {
    let app = TestApp::start().await;
    app.sql(OVER).await;
    // A connection tells what it read when it is closed.
    let looking = TestApp::start_with(TestOptions::over(&app)).await;
    let before = rows_read(&app, &TABLES).await;
    for (path, expected) in [
        ("/admin/refunds?status=AWAITING_APPROVAL", 1),
        ("/admin/refunds?status=AWAITING_APPROVAL&starting_after=rf_100001", 1),
        ("/admin/refunds?status=AWAITING_APPROVAL&starting_after=rf_0", 0),
        ("/admin/refunds?status=PROCESSING", 0),
        ("/admin/refunds?status=FAILED", 1),
        ("/admin/refunds?status=SUCCEEDED", 20),
        // A later page begins where it begins, and not at the newest.
        ("/admin/refunds?starting_after=rf_100021", 20),
        ("/admin/stray-payments?status=HELD", 1),
        ("/admin/stray-payments?status=REFUNDING", 0),
        ("/admin/stray-payments?status=REFUNDED", 20),
        ("/admin/exceptions?status=OPEN", 1),
        ("/admin/exceptions?status=RESOLVED", 20),
        ("/admin/orders?status=PENDING", 1),
        ("/admin/orders?status=PENDING&merchant_id=demo", 1),
        ("/admin/orders?status=PENDING&merchant_id=demo&starting_after=demo:Z1", 0),
        ("/admin/orders?status=PARTIALLY_REFUNDED", 1),
        ("/admin/orders?status=PARTIALLY_REFUNDED&merchant_id=demo&starting_after=demo:O1", 1),
        ("/admin/orders?status=REFUNDED", 0),
        ("/admin/orders?status=PAID", 20),
        ("/admin/orders?merchant_id=demo", 20),
        ("/admin/receivables", 1),
        ("/admin/receivables?merchant_id=demo", 1),
        ("/admin/receivables?merchant_id=demo&starting_after=demo:a:CNY", 1),
        ("/admin/receivables?starting_after=demo:z:CNY", 0),
        ("/admin/receivables?merchant_id=other", 0),
        ("/admin/withdrawals", 20),
        ("/admin/withdrawals?status=PAYING", 1),
        ("/admin/withdrawals?status=DEBITED", 0),
        ("/admin/withdrawals?status=REVERSED", 20),
        ("/admin/withdrawals?merchant_id=demo", 20),
        ("/admin/withdrawals?merchant_id=demo&status=SUCCEEDED", 20),
        ("/admin/withdrawals?merchant_id=demo&status=REVERSED", 20),
        ("/admin/withdrawals?merchant_id=other&status=REVERSED", 0),
        ("/admin/withdrawals?merchant_id=demo&user_id=u7", 1),
        ("/admin/withdrawals?merchant_id=demo&starting_after=wd_110000", 20),
        ("/admin/withdrawals?merchant_id=nobody", 0),
    ] {
        // Often enough for a plan that knows nothing of what is asked for.
        for _ in 0..8 {
            let page = looking.admin_get(path).await.expect(200).body;
            assert_eq!(page["data"].as_array().map(Vec::len), Some(expected), "{path}");
        }
    }
    looking.instance.app.db.close().await;
    let after = rows_read(&app, &TABLES).await;
    for ((table, before), (_, after)) in before.into_iter().zip(after) {
        println!("{} rows of {table} were read", after - before);
        // One walk is more.
        assert!(after - before < 20_000, "{} rows of {table} were read", after - before);
    }
    let delete = TABLES.map(|table| format!("DELETE FROM {table}")).join("; ");
    app.sql(&format!("SET session_replication_role = replica; {delete}")).await;
    app.end().await;
}

/// A merchant's events among those of others, one of each order.
const EVENTS: &str = "
    SET session_replication_role = replica;
    INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
    SELECT CASE g % 1000 WHEN 0 THEN 'demo' ELSE 'other' END, 'O' || g, 'story.told', 1, '{}'::jsonb, now() - g * interval '1 minute'
    FROM generate_series(1, 20000) AS g
    UNION ALL
    SELECT 'demo', 'D' || g, 'story.told', 1, '{}'::jsonb, now() - g * interval '1 minute' FROM generate_series(1, 20000) AS g";

#[tokio::test]
async fn a_page_of_past_events_reads_what_it_shows_and_not_what_others_were_told() {
    let app = TestApp::start().await;
    app.sql(EVENTS).await;
    let looking = TestApp::start_with(TestOptions::over(&app)).await;
    let before = rows_read(&app, &["outbox"]).await[0].1;
    let last = looking.get("/events?order_no=D15000").await.expect(200).body["data"][0].clone();
    let (last, at) =
        (last["event_id"].as_str().expect("an id"), last["timestamp"].as_str().expect("a moment"));
    for (query, expected) in [
        (String::new(), 20),
        ("limit=100".to_owned(), 100),
        (format!("starting_after={last}"), 20),
        (format!("until={at}"), 20),
        (format!("since={at}&until={at}"), 0),
        (format!("since={at}"), 20),
        ("order_no=D1".to_owned(), 1),
        ("order_no=O1".to_owned(), 0),
        ("order_no=O1000".to_owned(), 1),
        (format!("order_no=D14999&starting_after={last}"), 1),
    ] {
        // Often enough for a plan that knows nothing of what is asked for.
        for _ in 0..8 {
            let page = looking.get(&format!("/events?{query}")).await.expect(200).body;
            assert_eq!(page["data"].as_array().map(Vec::len), Some(expected), "{query}");
        }
    }
    looking.instance.app.db.close().await;
    let read = rows_read(&app, &["outbox"]).await[0].1 - before;
    println!("{read} rows of outbox were read");
    // Less than one walk.
    assert!(read < 20_000, "{read} rows of outbox were read");
    app.sql("SET session_replication_role = replica; DELETE FROM outbox").await;
    app.end().await;
}

#[tokio::test]
async fn what_is_pending_is_counted_from_its_earliest_end_and_no_further_than_a_hundred_thousand() {
    let counts = statements(|text| text.contains("AS \"pending!\"") && text.contains("FROM orders"));
    assert_eq!(counts.len(), 1, "{counts:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds().into_iter().chain([(EMPTIED.0, EMPTIED.1.to_owned())]) {
        let mut tx = enter(&config, &seed).await;
        let (mut ways, mut is_capped, plan) = (Vec::new(), false, plan(&mut tx, &counts[0]).await);
        each_part(&plan, &mut |node| {
            ways.extend(node["Index Name"].as_str().map(str::to_owned));
            is_capped |= node["Node Type"] == "Limit";
        });
        assert!(is_capped && ways == ["orders_pending_by_deadline"], "{world}: {plan}");
    }
}

#[tokio::test]
async fn a_withdrawal_is_looked_up_by_its_number_also_where_the_plan_was_made_on_the_first_day() {
    let looks =
        statements(|text| text.contains("FROM withdrawals WHERE merchant_id = $1 AND withdrawal_no = $2"));
    assert_eq!(looks.len(), 1, "{looks:?}");
    let config = stores::database_config(&stores::fresh_database().await);
    for (world, seed) in worlds().into_iter().chain([(EMPTIED.0, EMPTIED.1.to_owned())]) {
        let mut tx = enter(&config, &seed).await;
        let (mut ways, plan) = (Vec::new(), plan(&mut tx, &looks[0]).await);
        each_part(&plan, &mut |node| ways.extend(node["Index Name"].as_str().map(str::to_owned)));
        assert_eq!(ways, ["withdrawals_merchant_withdrawal_no_key"], "{world}: {plan}");
    }
}
