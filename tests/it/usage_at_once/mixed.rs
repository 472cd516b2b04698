//! What comes at once is written together: each gets what it would get alone, whatever stands beside it.

use axum::http::Method;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde_json::{Value, json};
use sqlx::Executor;

use super::reads::begin;
use crate::support::metering::{hold, hold_with};
use crate::support::{Reply, TestApp, is_gathered, until_waiting};

/// Has these asked for at once, behind one of whose kind somebody else has what it wants.
async fn at_once<'a>(
    app: &TestApp,
    in_hand: &str,
    first: impl Future<Output = Reply>,
    crowd: Vec<BoxFuture<'a, Reply>>,
) -> Vec<Reply> {
    let mut owner = begin(app, in_hand).await;
    let others = async {
        until_waiting(app, 1).await;
        let answers = join_all(crowd).await;
        owner.execute("ROLLBACK").await.expect("free");
        answers
    };
    let (first, answers) = tokio::join!(first, others);
    assert!(first.status < 202, "{first:?}");
    answers
}

/// Asks for a hold under a key whose answer is kept.
fn keyed<'a>(app: &'a TestApp, key: String, body: Value) -> BoxFuture<'a, Reply> {
    async move { app.post_keyed("/usage/holds", &key, &body).await }.boxed()
}

/// What is asked for, and how it is to be answered.
type Asked<'a> = (u16, &'static str, BoxFuture<'a, Reply>);

/// Two dozen that want a hold, and two dozen that cannot have one.
fn crowd(app: &TestApp, has_refusals: bool) -> Vec<Asked<'_>> {
    let of_product = |code: &str| json!({"product_code": code});
    let asked = |n: usize| {
        let name = |what: &str| format!("{what}{n}");
        let wanting = [
            // Paid, and kept.
            (201, "", keyed(app, name("paid"), hold(&name("k"), "u1", 50))),
            // Of a user who never had anything: it takes nothing.
            (201, "", keyed(app, name("free"), hold_with(&name("f"), "nobody", 500, of_product("free")))),
            // A repeat under a key of its own.
            (200, "", keyed(app, name("again"), hold("known", "u2", 100))),
        ];
        let refused = || {
            let unknown = hold_with(&name("w"), "u1", 1, of_product("nothing"));
            [
                (422, "INSUFFICIENT_BALANCE", keyed(app, name("poor"), hold(&name("p"), "nobody", 1))),
                (422, "USAGE_KEY_REUSED", keyed(app, name("other"), hold("known", "u2", 101))),
                (422, "UNKNOWN_PRODUCT", keyed(app, name("what"), unknown)),
            ]
        };
        wanting.into_iter().chain(has_refusals.then(refused).into_iter().flatten())
    };
    (0..8).flat_map(asked).collect()
}

fn assert_answered(answers: &[Reply], expected: &[(u16, &str)]) {
    for (answer, (status, problem)) in answers.iter().zip(expected) {
        assert_eq!(answer.status, *status, "{answer:?}");
        assert!(problem.is_empty() || answer.body["code"] == *problem, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_are_made_at_once_get_what_they_would_get_alone() {
    // As long as nobody is refused a batch is decided on what is read; else behind locks.
    for has_refusals in [false, true] {
        let app = TestApp::start().await;
        app.tokens("1").await;
        app.tokens_with("0", json!({"product_code": "free"})).await.expect(200);
        for user in ["u0", "u1", "u2"] {
            app.top_up(&format!("T-{user}"), user, 1_000).await;
        }
        let known = app.held("known", "u2", 100).await;

        let (mut expected, mut asked) = (Vec::new(), Vec::new());
        for (status, problem, one) in crowd(&app, has_refusals) {
            expected.push((status, problem));
            asked.push(one);
        }
        let in_hand = "SELECT 1 FROM accounts WHERE account_id = 'USER_AVAILABLE:demo:u0:CNY' FOR UPDATE";
        let first = app.post("/usage/holds", hold("first", "u0", 10));
        let answers = at_once(&app, in_hand, first, asked).await;
        assert_answered(&answers, &expected);
        let of_known = answers.iter().filter(|answer| answer.body["hold_id"] == json!(known)).count();
        assert_eq!(of_known, 8, "each repeat gets the hold that was there");
        let (made, writes) = app.written_where("usage_holds", "idempotency_key ~ '^[kf][0-9]'").await;
        println!("{made} were made in {writes} transactions");
        assert_eq!((made, writes < made), (16, is_gathered()), "{made} in {writes} transactions");

        // Each got its own, and gets it again.
        let again = join_all(crowd(&app, has_refusals).into_iter().map(|(.., asked)| asked)).await;
        assert_answered(&again, &expected);
        for (one, other) in answers.iter().zip(&again).filter(|(one, _)| one.status < 202) {
            assert_eq!(one.text, other.text);
        }
        assert_eq!(app.cny_of("u1").await, (600, 400));
        assert_eq!(app.cny_of("u2").await, (900, 100));
        assert_eq!(app.cny_of("nobody").await, (0, 0));
        assert_eq!(app.count("usage_holds").await, 18);
        app.end_without_deadlocks().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stranger_says_of_a_hold_is_not_heard_also_beside_its_owner() {
    let app = TestApp::start().await;
    let other = json!({"merchant_id": "other", "name": "Other", "reason": "a story"});
    let stranger = app.admin_post("/admin/merchants", other).await.expect(201);
    let stranger = stranger.text_of("secret_key");
    app.tokens("1").await;
    app.top_up("T", "u1", 10_000).await;
    let first = app.held("first", "u1", 100).await;
    // Known from here on, so that it is as fast as the owner.
    app.call(Method::GET, "/users/u1/balances", stranger, None).await.expect(200);
    let mut holds = Vec::new();
    for n in 0..8 {
        holds.push(app.held(&format!("k{n}"), "u1", 100).await);
    }
    let crowd = holds.iter().flat_map(|id| {
        let app = &app;
        let says = move |what: &'static str, body: Value| {
            let path = format!("/usage/holds/{id}/{what}");
            async move { app.call(Method::POST, &path, stranger, Some(&body)).await }.boxed()
        };
        [
            says("confirm", json!({"units": 90})),
            async move { app.report(id, "m1", 40).await }.boxed(),
            says("progress", json!({"message_id": "m1", "cumulative_units": 99})),
            says("release", json!({})),
        ]
    });
    let in_hand = format!("SELECT 1 FROM usage_holds WHERE hold_id = '{first}' FOR UPDATE");
    let confirmed = async { app.confirm(&first, Some(1)).await };
    let answers = at_once(&app, &in_hand, confirmed, crowd.collect()).await;
    for said in answers.chunks(4) {
        assert_eq!(
            said.iter().map(|answer| answer.status).collect::<Vec<_>>(),
            [404, 200, 404, 404],
            "{said:?}"
        );
    }
    for id in &holds {
        assert_eq!(app.standing(id).await, ("HELD".into(), 100, 0, Some(40)));
    }
    assert_eq!((app.count("usage_messages").await, app.told("usage.charged").await), (8, 1));
    assert_eq!(app.cny_of("u1").await, (9_199, 800));
    app.end_without_deadlocks().await;
}
