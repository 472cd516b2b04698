//! A crowd works on one user's balance: another user, on the same instance, is served all the same.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::{Executor, raw_sql};

use super::{beside, leave, start};
use crate::support::metering::hold;
use crate::support::{TestApp, until_waiting};

const CROWD: usize = 64;
/// How much longer a round may take beside the crowd: they share two cores, and no rows.
const BESIDE: u32 = 40;

/// Whole pieces of work of one client, one after the other; gives how long the slowest took, and all of them.
async fn work(app: &TestApp, name: &str, user: &str, rounds: usize) -> (Duration, Duration) {
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    for n in 0..rounds {
        let since = Instant::now();
        let id = app.held(&format!("{name}-{n}"), user, 10).await;
        app.report(&id, "m1", 12).await.expect(200);
        app.confirm(&id, None).await.expect(200);
        slowest = slowest.max(since.elapsed());
    }
    (slowest, began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_on_one_user_harm_nobody() {
    let app = start(None).await;
    let busy = beside(&app).await;
    app.top_up("T", "u1", 100_000).await;
    app.top_up("T2", "u2", 100_000).await;
    app.tokens("1").await;
    work(&busy, "warm", "u2", 5).await;
    let (_, alone) = work(&busy, "alone", "u2", 20).await;
    let (is_over, rounds) = (Cell::new(false), Cell::new(0));
    let crowd = async {
        let names: Vec<String> = (0..CROWD).map(|n| format!("c{n}")).collect();
        join_all(names.iter().map(|name| work(&busy, name, "u1", 4))).await;
        is_over.set(true);
    };
    let other = async {
        let began = Instant::now();
        while !is_over.get() {
            work(&busy, &format!("beside-{}", rounds.get()), "u2", 1).await;
            rounds.set(rounds.get() + 1);
        }
        began.elapsed()
    };
    let ((), beside) = tokio::join!(crowd, other);
    let rounds = u32::try_from(rounds.get()).expect("small");
    let (alone, beside) = (alone / 20, beside / rounds);
    println!(
        "a round of the other user took {alone:?} alone, and {beside:?} each of {rounds} beside the crowd"
    );
    assert!(beside < alone * BESIDE, "{alone:?} alone, {beside:?} beside the crowd");
    leave([busy]).await;
    assert_eq!(app.cny_of("u1").await, (100_000 - 64 * 4 * 12, 0));
    assert_eq!(app.cny_of("u2").await, (100_000 - (25 + i64::from(rounds)) * 12, 0));
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_waits_for_a_balance_holds_up_no_other_user() {
    let app = start(None).await;
    let busy = beside(&app).await;
    app.top_up("T", "u1", 100_000).await;
    app.top_up("T2", "u2", 100_000).await;
    app.tokens("1").await;
    // Whoever has the balance in hand keeps it, so what waits for it does not go on.
    let mut owner = app.direct_connection().await;
    let lock = "BEGIN; SELECT 1 FROM accounts WHERE user_id = 'u1' FOR UPDATE";
    owner.execute(raw_sql(lock)).await.expect("in hand");
    let crowd = join_all((0..CROWD).map(|n| {
        let (busy, body) = (&busy, hold(&format!("c{n}"), "u1", 10));
        async move {
            // Who has waited for too long is told so, and comes again.
            while busy.post("/usage/holds", body.clone()).await.status >= 500 {}
        }
    }));
    let other = async {
        until_waiting(&app, 1).await;
        let (slowest, _) = work(&busy, "other", "u2", 20).await;
        assert_eq!(app.count_where("usage_holds", "user_id = 'u1'").await, 0);
        owner.execute("ROLLBACK").await.expect("free");
        slowest
    };
    let (_, slowest) = tokio::join!(crowd, other);
    println!("the slowest round of the other user took {slowest:?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert_eq!(app.cny_of("u1").await, (100_000 - 64 * 10, 64 * 10));
    assert_eq!(app.cny_of("u2").await, (100_000 - 20 * 12, 0));
    leave([busy]).await;
    app.end_without_deadlocks().await;
}
