//! The books: every movement of money is booked once, with the change that it belongs to, and the sums are always right.

use futures_util::future::join_all;
use payonce::infra::db::Conn;
use serde_json::{Value, json};
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Executor};

use crate::support::books::sides;
use crate::support::{Cluster, Reply, SECRET_KEY, TestApp, TestOptions, minutes};

fn data(reply: &Reply) -> Vec<Value> {
    reply.body["data"].as_array().unwrap_or_else(|| panic!("no page: {}", reply.text)).clone()
}

/// How much moved accounts and is not in their balances yet, in rows.
async fn unfolded(app: &TestApp) -> i64 {
    app.count("account_movements").await
}

#[tokio::test]
async fn a_payment_moves_money_from_its_channel_to_its_merchant_and_the_sums_are_right_at_once() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("L1").await;
    assert_eq!(app.trial_balance().await, sides([]));
    let paid = app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    app.deliver(&app.success("e1", &id, paid.text_of("transaction_id"), 1990)).await;

    let expected = sides([("CHANNEL sandbox CNY", 1990), ("MERCHANT demo CNY", -1990)]);
    let folded = "kind = 'MERCHANT' AND balance = 1990";
    assert_eq!((unfolded(&app).await, app.count_where("accounts", folded).await), (2, 0), "not folded yet");
    assert_eq!(app.trial_balance().await, expected);
    app.assert_books_balance().await;
    app.run_until_idle().await;
    assert_eq!((unfolded(&app).await, app.count_where("accounts", folded).await), (0, 1), "folded");
    assert_eq!(app.trial_balance().await, expected);

    let booking = format!("PAYMENT:{id}");
    let entries = sides([("CHANNEL:sandbox:CNY", 1990), ("MERCHANT:demo:CNY", -1990)]);
    assert_eq!(app.booking(&booking).await, Some(entries));
    assert_eq!(app.booking("PAYMENT:po_none").await, None);
    assert_eq!(app.booking("PAYMENT:%00").await, None);
    let timeline = data(&app.admin_get("/admin/orders/L1/timeline").await.expect(200));
    let booked: Vec<_> = timeline.iter().filter(|entry| entry["kind"] == "BOOKING").collect();
    assert_eq!(booked.len(), 1, "{timeline:?}");
    assert_eq!((&booked[0]["subject"], &booked[0]["event"]), (&json!(booking), &json!("PAYMENT")));
    assert_eq!(booked[0]["details"], json!({"CHANNEL:sandbox:CNY": 1990, "MERCHANT:demo:CNY": -1990}));
    app.end().await;
}

#[tokio::test]
async fn stray_money_is_in_suspense_until_it_goes_back_or_is_kept() {
    let app = TestApp::start().await;
    let key = app.merchant("holder", "hold").await;
    app.late_money_as(&key, "L2").await;
    let twice = app.order_to_pay_as(&key, "L3").await;
    app.sandbox_pay(&twice, json!({})).await.expect(200);
    app.sandbox_pay(&twice, json!({"force": true})).await.expect(200);
    let less = app.order_to_pay_as(&key, "L4").await;
    app.sandbox_pay(&less, json!({"amount": 5})).await.expect(200);
    let other = app.order_to_pay_as(&key, "L5").await;
    app.sandbox_pay(&other, json!({"currency": "USD"})).await.expect(200);
    app.deliver(&app.success("e1", "po_of_nobody", "t1", 7)).await;
    app.run_until_idle().await;
    for _ in 0..11 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }

    let taken = 2 * 1990 + 5 + 7;
    let held = [
        ("CHANNEL sandbox CNY", 1990 + taken),
        ("CHANNEL sandbox USD", 1990),
        ("MERCHANT holder CNY", -1990),
        ("SUSPENSE sandbox CNY", -taken),
        ("SUSPENSE sandbox USD", -1990),
    ];
    assert_eq!(app.trial_balance().await, sides(held));

    let decisions =
        [("L2", "REFUND"), ("L3", "KEEP"), ("L4", "REFUND"), ("L5", "KEEP"), ("nobody's", "KEEP")];
    for exception in app.exceptions("status=OPEN").await {
        let order_no = exception["order_no"].as_str().unwrap_or("nobody's");
        let (_, action) = decisions.iter().find(|(of, _)| *of == order_no).expect("a decision");
        app.resolve(&exception, action).await.expect(200);
        app.run_until_idle().await;
        app.assert_books_balance().await;
    }
    let settled = [
        ("CHANNEL sandbox CNY", 2 * 1990 + 7),
        ("CHANNEL sandbox USD", 1990),
        ("MERCHANT holder CNY", -2 * 1990),
        ("MERCHANT holder USD", -1990),
        ("PLATFORM_REVENUE - CNY", -7),
    ];
    assert_eq!(app.trial_balance().await, sides(settled));
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_the_channel_takes_back_is_reversed_once_and_can_be_made_again() {
    let app = TestApp::start().await;
    app.late_money("L6").await;
    app.run_until_idle().await;
    assert_eq!(app.trial_balance().await, sides([]), "taken and gone");
    let refund = app.find_order("L6").await["refunds"][0]["refund_no"].as_str().expect("a number").to_owned();
    let booking = format!("REFUND:{refund}");
    let sent = sides([("CHANNEL:sandbox:CNY", -1990), ("SUSPENSE:sandbox:CNY", 1990)]);
    assert_eq!(app.booking(&booking).await, Some(sent));

    app.sandbox_takes_back(&refund).await;
    for event in ["r1", "r1", "r2"] {
        app.deliver(&app.refund_notice(event, &refund, "FAILED")).await;
    }
    let held = [("CHANNEL sandbox CNY", 1990), ("SUSPENSE sandbox CNY", -1990)];
    assert_eq!(app.trial_balance().await, sides(held));
    let back = sides([("CHANNEL:sandbox:CNY", 1990), ("SUSPENSE:sandbox:CNY", -1990)]);
    assert_eq!(app.booking(&format!("REVERSAL:{booking}")).await, Some(back));
    let body = app.admin_get(&format!("/admin/ledger/transactions/{booking}")).await.expect(200).body;
    assert_eq!(body["reversed_by"], format!("REVERSAL:{booking}"));

    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.trial_balance().await, sides([]));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'REFUND'").await, 2);
    app.end().await;
}

#[tokio::test]
async fn a_top_up_is_what_its_user_can_spend_and_nobody_else_sees_it() {
    let app = TestApp::start().await;
    let stranger = app.merchant("second", "hold").await;
    assert_eq!(app.balances_of("u7").await, []);
    for (order_no, amount) in [("T1", 5000), ("T2", 1), ("T3", 700)] {
        app.top_up(order_no, "u7", amount).await;
    }
    let dollars = json!({"order_no": "T4", "user_id": "u7", "currency": "USD", "amount": 9, "kind": "TOPUP"});
    app.order_with(dollars).await;
    let link = app.pay_url_by("T4", "u7").await.expect(200);
    app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    app.top_up("T5", "u8", 3).await;

    assert_eq!(app.balances_of("u7").await, [("CNY".into(), 5701, 0, 0), ("USD".into(), 9, 0, 0)]);
    let expected = [
        ("CHANNEL sandbox CNY", 5704),
        ("CHANNEL sandbox USD", 9),
        ("USER_AVAILABLE demo CNY", -5704),
        ("USER_AVAILABLE demo USD", -9),
    ];
    assert_eq!(app.trial_balance().await, sides(expected), "all users of a merchant are one row");

    let page = app.get("/users/u7/entries?limit=3").await.expect(200);
    assert_eq!(page.body["has_more"], true);
    let entries = data(&page);
    let told: Vec<_> = entries.iter().map(|entry| json!([entry["order_no"], entry["amount"]])).collect();
    assert_eq!(told, [json!(["T4", 9]), json!(["T3", 700]), json!(["T2", 1])]);
    assert_eq!((&entries[0]["kind"], &entries[0]["account"]), (&json!("PAYMENT"), &json!("USER_AVAILABLE")));
    let next = format!("/users/u7/entries?limit=3&starting_after={}", entries[2]["entry_id"]);
    let rest = app.get(&next).await.expect(200);
    assert_eq!((data(&rest).len(), &data(&rest)[0]["order_no"]), (1, &json!("T1")));
    assert_eq!(rest.body["has_more"], false);
    assert_eq!(data(&app.get("/users/u7/entries?currency=USD").await.expect(200)).len(), 1);
    assert_eq!(data(&app.get("/users/u7/entries?currency=EUR").await.expect(200)).len(), 0);

    for path in ["/users/u7/balances", "/users/u7/entries"] {
        let theirs = app.call(reqwest::Method::GET, path, &stranger, None).await.expect(200);
        assert_eq!(data(&theirs), Vec::<Value>::new(), "another merchant's user of the same name");
    }
    app.end().await;
}

#[tokio::test]
async fn what_makes_no_sense_about_users_and_top_ups_is_refused_and_moves_nothing() {
    let app = TestApp::start().await;
    app.stock("TEA", 5).await;
    let top_up = |field: &str, value: Value| {
        let mut order =
            json!({"order_no": "B1", "user_id": "u1", "currency": "CNY", "amount": 10, "kind": "TOPUP"});
        order[field] = value;
        order
    };
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 10}]);
    for (field, value) in [("items", items), ("rebate", json!({"rate": "0.1"}))] {
        let refused = app.post("/orders", top_up(field, value)).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED");
        assert_eq!(refused.body["errors"][0]["field"], field);
    }
    for query in ["limit=0", "limit=101", "starting_after=x", "currency=cny", "what=1", "currency=%00"] {
        let refused = app.get(&format!("/users/u1/entries?{query}")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{query}");
    }
    for user in ["%00", "a%2Fb", "ä", &"x".repeat(65)] {
        assert_eq!(app.get(&format!("/users/{user}/balances")).await.problem(404), "NOT_FOUND", "{user}");
    }
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    assert_eq!(app.count("orders").await + app.count("accounts").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_hundred_repeats_of_a_callback_are_one_booking() {
    let app = TestApp::start().await;
    let (sale, top_up) = (app.order_to_pay("R1").await, app.top_up_to_pay("R2", "u1", 500).await);
    for (id, amount) in [(&sale, 1990), (&top_up, 500)] {
        let paid = app.sandbox_pay(id, json!({"notify": false})).await.expect(200);
        let trade = paid.text_of("transaction_id");
        // Half of them are the same event again, half are another event of the same money.
        let events: Vec<_> =
            (0..100).map(|i| app.success(&format!("{id}-{}", i % 50), id, trade, amount)).collect();
        join_all(events.iter().map(|event| app.deliver(event))).await;
    }
    assert_eq!(app.count("ledger_transactions").await, 2);
    assert_eq!(app.balances_of("u1").await, [("CNY".into(), 500, 0, 0)]);
    app.end().await;
}

/// Tops one user up from 64 clients at once, at three instances whose commands share batches or do not.
async fn sixty_four_top_ups_at_once(max_batch: &str) {
    const CLIENTS: i64 = 64;
    let vars = vec![("DATABASE_BATCH_MAX", max_batch.to_owned())];
    let cluster = Cluster::start(3, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    let mut callbacks = Vec::new();
    for index in 0..CLIENTS {
        let id = app.top_up_to_pay(&format!("C{index}"), "u1", index + 1).await;
        let paid = app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
        callbacks.push(app.success(&format!("e{index}"), &id, paid.text_of("transaction_id"), index + 1));
    }
    // The user's account is new, too: whoever comes first opens it.
    let delivered = callbacks.iter().enumerate();
    join_all(delivered.map(|(index, callback)| cluster.turn(index).deliver(callback))).await;

    let total = CLIENTS * (CLIENTS + 1) / 2;
    assert_eq!(app.balances_of("u1").await, [("CNY".into(), total, 0, 0)], "{max_batch}");
    let entries = data(&app.get("/users/u1/entries?limit=100").await.expect(200));
    assert_eq!(entries.len(), 64);
    let mut conn = app.direct_connection().await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let deadlocks: i64 = sqlx::query_scalar(deadlocks).fetch_one(&mut conn).await.expect("a count");
    assert_eq!(deadlocks, 0);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_that_top_one_user_up_at_once_lose_nothing() {
    for max_batch in ["128", "1"] {
        sixty_four_top_ups_at_once(max_batch).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_fold_side_by_side_lose_nothing_and_count_nothing_twice() {
    let cluster = Cluster::start(3, TestOptions::default()).await;
    let app = cluster.first();
    let mut callbacks = Vec::new();
    for index in 0..30 {
        let id = app.order_to_pay(&format!("F{index}")).await;
        let paid = app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
        callbacks.push(app.success(&format!("e{index}"), &id, paid.text_of("transaction_id"), 1990));
    }
    let pay = async {
        for callback in &callbacks {
            app.deliver(callback).await;
            app.assert_books_balance().await;
        }
    };
    let fold = async |app: &TestApp| {
        for _ in 0..60 {
            payonce::ledger::fold(&app.instance.app.db, app.clock.now()).await.expect("folded");
        }
    };
    let others = cluster.instances.iter().map(fold);
    tokio::join!(pay, join_all(others));
    app.run_until_idle().await;
    assert_eq!(unfolded(app).await, 0);
    assert_eq!(
        app.count_where("accounts", "balance = 30 * 1990").await,
        2,
        "the channel's and the merchant's"
    );
    cluster.end().await;
}

/// Tries a statement as the service's own role; gives what refused it.
async fn refusal(app: &TestApp, statement: &str) -> String {
    let mut conn: Conn = app.instance.app.db.conn().await.expect("a connection");
    let outcome = conn.execute(AssertSqlSafe(statement.to_owned())).await;
    let error = outcome.expect_err(statement);
    let refusal = error.as_database_error().unwrap_or_else(|| panic!("{error}: {statement}"));
    refusal.constraint().map_or_else(|| refusal.code().expect("a code").into_owned(), str::to_owned)
}

const FORBIDDEN: &str = "42501";
const NO_TABLE: &str = "55000";

#[tokio::test]
async fn nobody_changes_what_is_booked_not_even_the_owner_of_the_tables() {
    let app = TestApp::start().await;
    app.top_up("D0", "u1", 10).await;
    let (before, sums) = (app.row_counts().await, app.trial_balance().await);
    for statement in [
        "UPDATE ledger_transactions SET amounts = '{1,-1}'",
        "DELETE FROM ledger_transactions",
        "TRUNCATE ledger_transactions",
        "UPDATE accounts SET sense = -sense",
    ] {
        assert_eq!(refusal(&app, statement).await, FORBIDDEN, "{statement}");
        let mut owner = app.direct_connection().await;
        let refused = owner.execute(statement).await.expect_err("its owner neither");
        let code = refused.as_database_error().and_then(DatabaseError::code);
        assert_eq!(code.as_deref(), Some(FORBIDDEN));
    }
    // Entries are a part of their booking.
    for statement in ["UPDATE ledger_entries SET amount = 1", "DELETE FROM ledger_entries"] {
        assert_eq!(refusal(&app, statement).await, NO_TABLE, "{statement}");
    }
    assert_eq!(refusal(&app, "DELETE FROM accounts").await, FORBIDDEN);
    assert_eq!(refusal(&app, "UPDATE accounts SET account_id = account_id").await, FORBIDDEN);
    assert_eq!((app.row_counts().await, app.trial_balance().await), (before, sums));
    app.end().await;
}

const CHANNEL: &str = "CHANNEL:sandbox:CNY";
const MERCHANT: &str = "MERCHANT:demo:CNY";
const USER: &str = "USER_AVAILABLE:demo:u1:CNY";

/// A statement that books.
fn booked(id: &str, entries: &[(&str, i64)]) -> String {
    let accounts: Vec<_> = entries.iter().map(|(account, _)| *account).collect();
    let amounts: Vec<_> = entries.iter().map(|(_, amount)| amount.to_string()).collect();
    booked_as(id, &format!("{{{}}}", accounts.join(",")), &format!("{{{}}}", amounts.join(",")))
}

/// The same with lists as they are written.
fn booked_as(id: &str, accounts: &str, amounts: &str) -> String {
    let kind = id.split(':').next().expect("a kind");
    format!(
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         VALUES ('{id}', '{kind}', now(), '{accounts}', '{amounts}')"
    )
}

/// A statement that says that it takes a booking back.
fn reversal(id: &str, of: &str) -> String {
    format!(
        "INSERT INTO ledger_transactions (transaction_id, kind, reverses, created_at, account_ids, amounts)
         VALUES ('{id}', 'REVERSAL', '{of}', now(), '{{{CHANNEL},{MERCHANT}}}', '{{-1,1}}')"
    )
}

#[tokio::test]
async fn the_database_itself_refuses_what_would_falsify_the_books() {
    let app = TestApp::start().await;
    app.top_up("D1", "u1", 10).await;
    app.top_up("D3", "u2", 10).await;
    let sale = app.order_to_pay("D2").await;
    app.sandbox_pay(&sale, json!({})).await.expect(200);
    app.run_until_idle().await;
    let (before, sums) = (app.row_counts().await, app.trial_balance().await);

    let (new, old) = ("PAYOUT:x", format!("PAYMENT:{sale}"));
    let account = "INSERT INTO accounts (account_id, created_at, updated_at) VALUES ('MERCHANT:demo:cny', now(), now())";
    let (whole, entries_match) = ("ledger_transactions_whole", "ledger_transactions_entries_match");
    let both = format!("{{{CHANNEL},{USER}}}");
    for (constraint, statement) in [
        (entries_match, booked(new, &[(CHANNEL, 1)])),
        (whole, booked(new, &[(CHANNEL, 2), (USER, -1)])),
        (whole, booked(new, &[(CHANNEL, 1), ("CHANNEL:sandbox:USD", -1)])),
        (whole, booked(new, &[(CHANNEL, 1), ("USER_HELD:demo:nobody:CNY", -1)])),
        // Each account once, in the order of their names, and of one user at most.
        (whole, booked(new, &[(CHANNEL, 1), (CHANNEL, -1)])),
        (whole, booked(new, &[(USER, 1), (CHANNEL, -1)])),
        (whole, booked(new, &[(USER, 1), ("USER_AVAILABLE:demo:u2:CNY", -1)])),
        (whole, booked(new, &[(CHANNEL, 1), (MERCHANT, 1), ("SUSPENSE:sandbox:CNY", -1)])),
        ("accounts_id_is_an_account", booked(new, &[(USER, 1), ("ZZZ:x:CNY", -1)])),
        ("accounts_id_is_an_account", booked(new, &[(CHANNEL, 1), ("ZZZ:x:CNY", -1)])),
        // Two lists that belong together, and nothing that is not known.
        (entries_match, booked_as(new, "{}", "{}")),
        (entries_match, booked_as(new, "{}", "{1,-1}")),
        (entries_match, booked_as(new, &both, "{}")),
        (entries_match, booked_as(new, &both, "{1,-1,1}")),
        (entries_match, booked_as(new, &both, "{1,NULL}")),
        (entries_match, booked_as(new, &format!("{{{CHANNEL},NULL}}"), "{1,-1}")),
        (entries_match, booked_as(new, &format!("[0:1]={both}"), "[0:1]={1,-1}")),
        (entries_match, booked_as(new, &format!("{{{both}}}"), "{{1,-1}}")),
        ("ledger_transactions_pkey", booked(&old, &[(CHANNEL, 1), (USER, -1)])),
        ("accounts_user_balance_not_negative", booked(new, &[(CHANNEL, -11), (USER, 11)])),
        ("ledger_transactions_amounts_not_zero", booked(new, &[(CHANNEL, 0), (USER, 0)])),
        ("ledger_transactions_kind_is_known", booked("GIFT:x", &[(CHANNEL, 1), (USER, -1)])),
        ("ledger_transactions_id_names_its_kind", reversal("PAYOUT:x", &old)),
        ("ledger_transactions_reversal_matches", reversal("REVERSAL:again", &old)),
        ("ledger_transactions_reverses_fkey", reversal("REVERSAL:PAYOUT:x", new)),
        ("accounts_id_is_an_account", account.to_owned()),
    ] {
        assert_eq!(refusal(&app, &statement).await, constraint, "{statement}");
    }
    assert_eq!((app.row_counts().await, app.trial_balance().await), (before, sums), "nothing of it stayed");
    app.end().await;
}

#[tokio::test]
async fn operators_read_the_books_and_merchants_do_not() {
    let app = TestApp::start().await;
    app.top_up("O1", "u1", 10).await;
    for path in ["/admin/ledger/trial-balance", "/admin/ledger/transactions/PAYMENT:x"] {
        assert_eq!(app.call(reqwest::Method::GET, path, SECRET_KEY, None).await.problem(403), "FORBIDDEN");
    }
    let row = app.admin_get("/admin/ledger/trial-balance").await.expect(200).body["accounts"][1].clone();
    let expected = json!({"currency": "CNY", "kind": "USER_AVAILABLE", "merchant_id": "demo", "channel": null,
                          "debit": 0, "credit": 10});
    assert_eq!(row, expected);
    app.end().await;
}
