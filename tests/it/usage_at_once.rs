//! Metered work, many at once: nothing is spent twice, refused in vain, lost, or waits in a circle.

use std::str::FromStr;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, select_all};
use payonce::ids::{HoldId, MerchantId, MessageId};
use payonce::usage::{self, Report, Units};
use serde_json::{Value, json};
use sqlx::Executor;

use crate::support::metering::hold;
use crate::support::{Chance, TestApp, TestOptions, hang_up_once, is_gathered, seconds, until_waiting};

mod crowds;
mod ends;
mod mixed;
mod reads;

/// With Redis and without.
fn with_and_without_locks() -> [Option<String>; 2] {
    [None, Some("redis://127.0.0.1:1".to_owned())]
}

async fn start(redis_url: Option<String>) -> TestApp {
    TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await
}

/// Another instance over the same stores.
async fn beside(app: &TestApp) -> TestApp {
    TestApp::start_with(TestOptions { clock: app.clock.clone(), ..TestOptions::over(app) }).await
}

/// These instances go, with their connections, before the story's end.
async fn leave<const N: usize>(instances: [TestApp; N]) {
    for instance in &instances {
        instance.instance.app.db.close().await;
    }
}

fn minor(value: &Value) -> i64 {
    value.as_i64().expect("minor units")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_spend_one_balance_to_the_last_cent_and_no_further() {
    for redis_url in with_and_without_locks() {
        let app = start(redis_url).await;
        let other = beside(&app).await;
        app.top_up("T", "u1", 1_005).await;
        app.tokens("1").await;
        let one = |client: usize| {
            let app = if client.is_multiple_of(2) { &app } else { &other };
            async move {
                let (mut made, mut refused) = (0, 0);
                for n in 0..2 {
                    let answer = app.post("/usage/holds", hold(&format!("k{client}-{n}"), "u1", 10)).await;
                    match answer.status {
                        201 => made += 1,
                        422 if answer.body["code"] == "INSUFFICIENT_BALANCE" => refused += 1,
                        _ => panic!("{answer:?}"),
                    }
                }
                (made, refused)
            }
        };
        let answers = join_all((0..100).map(one)).await;
        let made: i64 = answers.iter().map(|(made, _)| made).sum();
        assert_eq!(made, 100, "never below zero, and never refused while there is something left");
        assert_eq!(app.cny_of("u1").await, (5, 1_000));
        app.assert_books_balance().await;
        other.instance.app.db.close().await;
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_exactly_what_there_is_gets_it_however_many_ask_at_once() {
    for redis_url in with_and_without_locks() {
        let app = start(redis_url).await;
        let other = beside(&app).await;
        app.top_up("T1", "u1", 1_000).await;
        app.top_up("T2", "u2", 100_000).await;
        app.tokens("1").await;
        let take = |n: usize, user: &'static str| {
            let app = if n.is_multiple_of(2) { &app } else { &other };
            async move { app.post("/usage/holds", hold(&format!("k{n}"), user, 10)).await.expect(201) }
        };
        join_all((0..100).map(|n| take(n, "u1"))).await;
        assert_eq!(app.cny_of("u1").await, (0, 1_000));
        // The same of a quota.
        app.tokens_with("1", json!({"cycle_quota": 1_000})).await.expect(200);
        join_all((0..100).map(|n| take(n, "u2"))).await;
        let more = app.post("/usage/holds", hold("more", "u2", 1)).await;
        assert_eq!(more.problem(422), "QUOTA_EXCEEDED");
        other.instance.app.db.close().await;
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_equal_requests_make_one_hold_and_one_charge() {
    for redis_url in with_and_without_locks() {
        let app = start(redis_url).await;
        let other = beside(&app).await;
        app.top_up("T", "u1", 1_000).await;
        app.tokens_with("1", json!({"cycle_quota": 600})).await.expect(200);
        let at = |n: usize| if n.is_multiple_of(2) { &app } else { &other };
        let answers = join_all((0..100).map(|n| at(n).post("/usage/holds", hold("k1", "u1", 600)))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        assert!(answers.iter().all(|answer| answer.status < 202), "{answers:?}");
        let id = answers[0].text_of("hold_id");
        assert!(answers.iter().all(|answer| answer.text_of("hold_id") == id));

        let confirmed = join_all((0..100).map(|n| at(n).confirm(id, Some(500)))).await;
        assert!(confirmed.iter().all(|answer| answer.status == 200), "{confirmed:?}");
        assert_eq!(app.cny_of("u1").await, (500, 0));
        assert_eq!(app.told("usage.charged").await, 1);
        other.instance.app.db.close().await;
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_no_second_spender_also_where_it_waits_for_the_first() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    let other = beside(&app).await;
    app.tokens_with("1", json!({"cycle_quota": 10})).await.expect(200);
    for round in 0..10 {
        let user = format!("u{round}");
        app.top_up(&format!("T{round}"), &user, 10).await;
        let take = |n: usize| {
            let (app, body) = (if n.is_multiple_of(2) { &app } else { &other }, hold("k", &user, 10));
            async move { app.post("/usage/holds", body).await }
        };
        let answers = join_all((0..8).map(take)).await;
        assert!(answers.iter().all(|answer| answer.status < 202), "{answers:?}");
        assert_eq!(app.cny_of(&user).await, (0, 10));
    }
    other.instance.app.db.close().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_not_overdrawn_however_many_ask_at_once() {
    for redis_url in with_and_without_locks() {
        let app = start(redis_url).await;
        let other = beside(&app).await;
        app.top_up("T", "u1", 10_000).await;
        app.tokens_with("1", json!({"cycle_quota": 505})).await.expect(200);
        let take = |n: usize| {
            let app = if n.is_multiple_of(2) { &app } else { &other };
            async move { app.post("/usage/holds", hold(&format!("k{n}"), "u1", 10)).await }
        };
        let answers = join_all((0..80).map(take)).await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        let refused = answers.iter().filter(|answer| answer.body["code"] == "QUOTA_EXCEEDED").count();
        assert_eq!((made, refused), (50, 30));
        other.instance.app.db.close().await;
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_first_holds_of_a_cycle_at_once_one_pays_for_it() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    let other = beside(&app).await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("300", json!({"pricing": "PER_CYCLE"})).await.expect(200);
    let take = |n: usize| {
        let app = if n.is_multiple_of(2) { &app } else { &other };
        async move { app.post("/usage/holds", hold(&format!("k{n}"), "u1", 10)).await.expect(201) }
    };
    let made = join_all((0..40).map(take)).await;
    assert_eq!(made.iter().map(|answer| minor(&answer.body["charged"])).sum::<i64>(), 300);
    assert_eq!(app.cny_of("u1").await, (700, 0));
    other.instance.app.db.close().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_want_more_and_batches_that_free_do_not_wait_in_a_circle() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    let (here, there) = (beside(&app).await, beside(&app).await);
    app.tokens("1").await;
    for n in 0..20 {
        app.top_up(&format!("T{n}"), &format!("u{n}"), 1_000).await;
    }
    for round in 0..6 {
        let key = format!("k{round}");
        let ids = join_all((0..20).map(|n| {
            let (app, user) = (&app, format!("u{n}"));
            let key = &key;
            async move { (app.held(key, &user, 10).await, app.held(&format!("{key}-2"), &user, 10).await) }
        }))
        .await;
        let one = |n: usize| {
            let (here, there) = if n.is_multiple_of(2) { (&here, &there) } else { (&there, &here) };
            let (first, second) = &ids[(n * 7 + round) % 20];
            async move {
                let beyond = async { here.report(first, "m1", 30).await.expect(200) };
                let within = async { there.confirm(second, Some(5)).await.expect(200) };
                tokio::join!(beyond, within);
                here.confirm(first, None).await.expect(200)
            }
        };
        join_all((0..20).map(one)).await;
    }
    leave([here, there]).await;
    for n in 0..20 {
        assert_eq!(app.cny_of(&format!("u{n}")).await, (1_000 - 6 * 35, 0));
    }
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_run_dry_at_once_set_the_balance_aside_to_the_last_cent() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    let other = beside(&app).await;
    app.top_up("T", "u1", 1_005).await;
    app.tokens("1").await;
    let ids = join_all((0..20).map(|n| {
        let app = &app;
        async move { app.held(&format!("k{n}"), "u1", 10).await }
    }))
    .await;
    let reports = ids.iter().flat_map(|id| [(id, "m1", 90), (id, "m2", 100), (id, "m2", 100)]);
    let answers = join_all(reports.enumerate().map(|(n, (id, message, units))| {
        let app = if n.is_multiple_of(2) { &app } else { &other };
        async move { app.report(id, message, units).await }
    }))
    .await;
    let is_heard = |code: &Value| code.is_null() || code == "INSUFFICIENT_BALANCE";
    assert!(answers.iter().all(|answer| is_heard(&answer.body["code"])), "{answers:?}");
    assert_eq!(app.cny_of("u1").await, (0, 1_005));
    let dry = app.count_where("usage_holds", "held < units").await;
    assert_eq!(app.told("usage.hold_exhausted").await, dry, "each of them was told so once");
    app.assert_books_balance().await;
    join_all(ids.iter().map(|id| {
        let app = &app;
        async move { app.confirm(id, None).await.expect(200) }
    }))
    .await;
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 0, 0, 20 * 100 - 1_005)]);
    other.instance.app.db.close().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reports_of_one_hold_at_once_are_a_few_writes() {
    // A thousand are let in at once, and the last of them is waited for, also where each is carried out alone and takes its time.
    let vars = vec![("HTTP_REQUESTS_MAX", "4096".to_owned()), ("DATABASE_STATEMENT_MS", "60000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 100).await;
    let since = Instant::now();
    let reports = join_all((1..=1_000).map(|n| {
        let (app, id) = (&app, id.as_str());
        async move { app.report(id, &format!("m{n}"), n).await.expect(200) }
    }));
    reports.await;
    println!("1,000 reports took {:?}", since.elapsed());
    assert_eq!(app.standing(&id).await, ("HELD".into(), 1_000, 0, Some(1_000)));
    let (heard, writes) = app.written_where("usage_messages", "true").await;
    println!("they took {writes} transactions");
    assert_eq!((heard, writes <= 100), (1_000, is_gathered()), "{heard} in {writes} transactions");
    app.confirm(&id, None).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (9_000, 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reports_a_second_of_one_hold_pile_up_no_waiting() {
    let app = start(None).await;
    let busy = beside(&app).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let id = HoldId::from_str(&app.held("k1", "u1", 100).await).expect("an id");
    let merchant_id = MerchantId::from_str("demo").expect("an id");
    let report = async |n: i64| {
        let report = Report {
            message_id: MessageId::from_str(&format!("m{n}")).expect("an id"),
            cumulative_units: Units::try_from(n).expect("units"),
        };
        let since = Instant::now();
        usage::progress(&busy.instance.app, &merchant_id, &id, report, None).await.expect("heard");
        since.elapsed()
    };
    // A thousand a second, or half of what the machine takes at once, where it is busy with others.
    let report = &report;
    let since = Instant::now();
    join_all((1..=1_000).map(async |n| report(n).await)).await;
    let every = (2 * since.elapsed() / 1_000).max(Duration::from_millis(1));
    let began = Instant::now();
    // Each in its turn, whatever became of those before.
    let told = join_all((1..=3_000_u32).map(async |n| {
        tokio::time::sleep(every * n).await;
        report(i64::from(1_000 + n)).await
    }));
    let waiting = async {
        let mut conn = app.direct_connection().await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let mut most: i64 = 0;
        while began.elapsed() < every * 3_000 {
            most = most.max(sqlx::query_scalar(waiting).fetch_one(&mut conn).await.expect("a count"));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        most
    };
    let (told, waiting) = tokio::join!(told, waiting);
    let mean = |told: &[Duration]| told.iter().sum::<Duration>() / u32::try_from(told.len()).expect("small");
    let (first, last) = (mean(&told[..1_000]), mean(&told[2_000..]));
    println!(
        "3,000 reports, one every {every:?}, took {:?}: {first:?} each of the first 1,000, {last:?} of the last; {waiting} \
         waited for a lock",
        began.elapsed()
    );
    // All that is told at a time is one batch, which waits for no other.
    assert!(waiting <= 1, "{waiting} waited for a lock at once");
    assert!(last < Duration::from_millis(500), "they pile up: {last:?}");
    assert_eq!(app.standing(id.as_str()).await, ("HELD".into(), 4_000, 0, Some(4_000)));
    assert_eq!(app.count("usage_messages").await, 4_000);
    leave([busy]).await;
    app.end_without_deadlocks().await;
}

/// They hang up when all that they asked for waits for these rows: under way, and at its end for none of them.
async fn hang_up_in_the_middle<F: Future + Unpin>(app: &TestApp, rows: &str, asking: Vec<F>) {
    let sessions = i64::try_from(asking.len()).expect("small");
    let mut other = reads::begin(app, &format!("SELECT 1 FROM {rows} FOR UPDATE")).await;
    hang_up_once(until_waiting(app, sessions), select_all(asking)).await;
    other.execute("ROLLBACK").await.expect("free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_shuffled_repeated_and_cut_at_random_charge_their_maximum() {
    let app = start(None).await;
    let mut chance = Chance::new();
    app.top_up("T", "u1", 1_000_000).await;
    app.tokens("1").await;
    let mut expected = 0;
    for n in 0..6 {
        let id = app.held(&format!("k{n}"), "u1", 500).await;
        let mut said: Vec<(String, i64)> = Vec::new();
        let mut units = 0;
        for message in 0..40 {
            units += i64::from(chance.number() % 50);
            said.push((format!("m{message}"), units));
        }
        // Some are lost, some come more than once, and none in its place.
        let sent: Vec<(String, i64)> = (0..60).map(|_| said[chance.one_of(said.len())].clone()).collect();
        let most = |sent: &[(String, i64)]| sent.iter().map(|(_, units)| *units).max().expect("some");
        let (app, id) = (&app, id.as_str());
        let report = async |(message, units): &(String, i64)| app.report(id, message, *units).await;
        // Some clients hang up before they hear the answer, and never ask again.
        let (cut, heard) = sent.split_at(3);
        hang_up_in_the_middle(app, "usage_holds", cut.iter().map(|said| Box::pin(report(said))).collect())
            .await;
        let counted = async || app.standing(id).await.3 == Some(most(cut));
        app.eventually("what nobody waits for is counted", counted).await;
        for answer in join_all(heard.iter().chain(heard).map(report)).await {
            answer.expect(200);
        }
        let done = app.confirm(id, None).await.expect(200);
        assert_eq!(minor(&done.body["charged"]), most(&sent));
        expected += most(&sent);
    }
    assert_eq!(app.cny_of("u1").await, (1_000_000 - expected, 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_no_hold_behind() {
    let app = start(None).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let take = |n| app.post("/usage/holds", hold(&format!("k{n}"), "u1", 10));
    hang_up_in_the_middle(&app, "accounts", (0..3).map(|n| Box::pin(take(n))).collect()).await;
    let are_made = async || app.cny_of("u1").await == (10_000 - 3 * 10, 3 * 10);
    app.eventually("the work goes on without them", are_made).await;
    // Whatever was made without being heard of is found by its key, behind which none is made any more.
    let again = join_all((0..3).map(take)).await;
    assert!(again.iter().all(|answer| answer.status == 200), "{again:?}");
    assert_eq!(app.count("usage_holds").await, 3);
    // Nobody confirms them.
    app.clock.advance(seconds(901));
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (10_000, 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_at_the_end_is_charged_once_all_the_same() {
    let app = start(None).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(app.held(&format!("k{n}"), "u1", 100).await);
    }
    let end = async |n: usize| match n {
        0 => app.release(&ids[n]).await,
        _ => app.confirm(&ids[n], Some(60)).await,
    };
    hang_up_in_the_middle(&app, "usage_holds", (0..3).map(|n| Box::pin(end(n))).collect()).await;
    let are_over = async || app.cny_of("u1").await == (10_000 - 2 * 60, 0);
    app.eventually("the work goes on without them", are_over).await;
    // Who asks once more is told what became of it, and nothing becomes of it twice.
    for n in 0..3 {
        end(n).await.expect(200);
    }
    assert_eq!(app.cny_of("u1").await, (10_000 - 2 * 60, 0));
    assert_eq!(app.told("usage.charged").await, 2);
    app.end().await;
}
