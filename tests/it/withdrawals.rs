//! A user's money goes out once, or comes back whole.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestApp, TestOptions, minutes, seconds};

/// A withdrawal of `amount` CNY of a user.
fn withdrawal(withdrawal_no: &str, user_id: &str, amount: i64) -> Value {
    json!({"withdrawal_no": withdrawal_no, "user_id": user_id, "amount": amount, "currency": "CNY",
           "channel": "sandbox", "account": "u@example.com"})
}

impl TestApp {
    async fn find_withdrawal(&self, withdrawal_no: &str) -> Value {
        self.get(&format!("/withdrawals/{withdrawal_no}")).await.expect(200).body
    }

    /// What the sandbox says of a user's payouts: how many, and how much in all.
    async fn paid_out(&self) -> (i64, i64) {
        let row = sqlx::query_as("SELECT count(*), coalesce(sum(amount), 0)::bigint FROM sandbox.payouts");
        row.fetch_one(&mut self.direct_connection().await).await.expect("a row")
    }
}

fn legs(withdrawal: &Value) -> Vec<String> {
    let legs = withdrawal["legs"].as_array().expect("legs").iter();
    legs.map(|leg| format!("{} {}", leg["leg"].as_str().unwrap(), leg["status"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn money_is_set_aside_at_once_and_goes_out_once() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;

    let made = app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);
    assert_eq!(made.text_of("status"), "DEBITED");
    assert_eq!(legs(&made.body), ["DEBIT SUCCEEDED", "PAYOUT PENDING"]);
    assert_eq!(app.cny_of("u1").await, (400, 600));
    let again = app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(200);
    assert_eq!(again.body, made.body);

    app.run_until_idle().await;
    let done = app.find_withdrawal("W1").await;
    assert_eq!(done["status"], "SUCCEEDED");
    assert_eq!(legs(&done), ["DEBIT SUCCEEDED", "PAYOUT SUCCEEDED"]);
    assert!(done["channel_payout_id"].is_string(), "{done}");
    assert_eq!(app.cny_of("u1").await, (400, 0));
    assert_eq!(app.paid_out().await, (1, 600));
    assert_eq!(app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(200).body, done);
    app.assert_books_balance().await;
}

#[tokio::test]
async fn a_key_gets_the_first_answer_again_byte_for_byte() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    let first = app.post_keyed("/withdrawals", "k1", &withdrawal("W1", "u1", 600)).await.expect(201);
    app.run_until_idle().await;
    let again = app.post_keyed("/withdrawals", "k1", &withdrawal("W1", "u1", 600)).await.expect(201);
    assert_eq!(again.text, first.text);
    assert_eq!(
        app.post_keyed("/withdrawals", "k1", &withdrawal("W1", "u1", 1)).await.problem(422),
        "IDEMPOTENCY_KEY_REUSED"
    );
    assert_eq!(app.paid_out().await, (1, 600));
    app.assert_books_balance().await;
}

#[tokio::test]
async fn a_final_refusal_gives_everything_back() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);
    app.run_until_idle().await;

    let done = app.find_withdrawal("W1").await;
    assert_eq!(done["status"], "REVERSED");
    assert!(done["failure"].is_string(), "{done}");
    assert_eq!(legs(&done), ["DEBIT SUCCEEDED", "PAYOUT FAILED", "REVERSAL SUCCEEDED"]);
    assert_eq!(app.cny_of("u1").await, (1_000, 0));
    assert_eq!(app.paid_out().await, (0, 0));
    // The number is spent: the same request gets the same end, a new number a new try.
    assert_eq!(app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(200).body, done);
    app.post("/withdrawals", withdrawal("W2", "u1", 600)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.find_withdrawal("W2").await["status"], "SUCCEEDED");
    app.assert_books_balance().await;
}

#[tokio::test]
async fn a_refusal_behind_a_silence_gives_nothing_back_that_may_still_go_out() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    // The call is long on its way, and is carried out when nobody waits for it any more.
    app.fault(FaultOp::Payout, FaultKind::Delay, 1, Some(6_000)).await;
    app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);
    app.run_until_idle().await;
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    app.clock.advance(seconds(2));
    app.run_until_idle().await;
    assert_eq!(app.find_withdrawal("W1").await["status"], "PAYING", "refused, and perhaps under way");
    assert_eq!(app.cny_of("u1").await, (400, 600));
    app.eventually("the first call is carried out", async || app.paid_out().await == (1, 600)).await;
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(app.find_withdrawal("W1").await["status"], "SUCCEEDED");
    assert_eq!(app.cny_of("u1").await, (400, 0));
    app.assert_books_balance().await;

    // What never arrives has settled some time, and then a refusal counts.
    app.fault(FaultOp::Payout, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    app.post("/withdrawals", withdrawal("W2", "u1", 400)).await.expect(201);
    app.run_until_idle().await;
    app.fault(FaultOp::Payout, FaultKind::Refuse, 100, None).await;
    for _ in 0..6 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    assert_eq!(app.find_withdrawal("W2").await["status"], "REVERSED");
    assert_eq!(app.cny_of("u1").await, (400, 0));
    app.assert_books_balance().await;
}

#[tokio::test]
async fn a_silent_channel_is_asked_again_under_the_same_number() {
    for fault in [FaultKind::TimeoutBefore, FaultKind::TimeoutAfter] {
        let app = TestApp::start().await;
        app.top_up("T-u1", "u1", 1_000).await;
        app.fault(FaultOp::Payout, fault, 1, Some(1_200)).await;
        app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);
        app.run_until_idle().await;
        let waiting = app.find_withdrawal("W1").await;
        assert_eq!(waiting["status"], "PAYING", "{fault:?}");
        assert_eq!(legs(&waiting), ["DEBIT SUCCEEDED", "PAYOUT PROCESSING"]);
        // Held, not spendable, and not given back on silence.
        assert_eq!(app.cny_of("u1").await, (400, 600));
        app.assert_books_balance().await;

        app.clock.advance(minutes(1));
        app.run_until_idle().await;
        assert_eq!(app.find_withdrawal("W1").await["status"], "SUCCEEDED", "{fault:?}");
        assert_eq!(app.paid_out().await, (1, 600), "{fault:?}");
        assert_eq!(app.cny_of("u1").await, (400, 0));
        app.assert_books_balance().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_withdrawals_of_sixty_percent_at_once_one_is_made() {
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
        app.top_up("T-u1", "u1", 1_000).await;
        let bodies: Vec<_> = (0..10).map(|n| withdrawal(&format!("W{n}"), "u1", 600)).collect();
        let answers = join_all(bodies.into_iter().map(|body| app.post("/withdrawals", body))).await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        let refused = answers.iter().filter(|answer| answer.body["code"] == "INSUFFICIENT_BALANCE").count();
        assert_eq!((made, refused), (1, 9), "{answers:?}");
        app.run_until_idle().await;
        assert_eq!(app.cny_of("u1").await, (400, 0));
        assert_eq!(app.paid_out().await, (1, 600));
        app.assert_books_balance().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_equal_requests_make_one_withdrawal() {
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
        app.top_up("T-u1", "u1", 1_000).await;
        let answers = join_all((0..100).map(|_| app.post("/withdrawals", withdrawal("W1", "u1", 600)))).await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        let repeated = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((made, repeated), (1, 99), "{:?}", answers.iter().find(|answer| answer.status > 201));
        app.run_until_idle().await;
        assert_eq!(app.paid_out().await, (1, 600));
        app.assert_books_balance().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_on_one_balance_neither_wait_in_a_circle_nor_overdraw() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    let one = |client: usize| {
        let app = &app;
        async move {
            let mut made = 0;
            for n in 0..3 {
                let body = withdrawal(&format!("W{client}-{n}"), "u1", 10);
                let answer = app.post("/withdrawals", body).await;
                match answer.status {
                    201 => made += 1,
                    422 => assert_eq!(answer.body["code"], "INSUFFICIENT_BALANCE"),
                    _ => panic!("{answer:?}"),
                }
            }
            made
        }
    };
    let made: i64 = join_all((0..64).map(one)).await.into_iter().sum();
    // Never below zero, and never refused while money is left.
    assert_eq!(made, 100);
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (0, 0));
    assert_eq!(app.paid_out().await, (100, 1_000));
    app.end_without_deadlocks().await;
}

#[tokio::test]
async fn what_cannot_be_carried_out_moves_nothing() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);

    let other = |field: &str, value: Value| {
        let mut body = withdrawal("W1", "u1", 600);
        body[field] = value;
        body
    };
    for (field, value) in [
        ("user_id", json!("u2")),
        ("amount", json!(599)),
        ("currency", json!("USD")),
        ("account", json!("v@example.com")),
        ("channel", json!("nowhere")),
    ] {
        let refused = app.post("/withdrawals", other(field, value)).await;
        assert_eq!(refused.problem(422), "WITHDRAWAL_PARAMS_MISMATCH");
    }
    let new = |field: &str, value: Value| {
        let mut body = withdrawal("W2", "u1", 100);
        body[field] = value;
        body
    };
    for (body, code) in [
        (new("amount", json!(401)), "INSUFFICIENT_BALANCE"),
        (new("user_id", json!("nobody")), "INSUFFICIENT_BALANCE"),
        (new("currency", json!("USD")), "INSUFFICIENT_BALANCE"),
        (new("channel", json!("nowhere")), "UNKNOWN_CHANNEL"),
        (new("account", json!("")), "VALIDATION_FAILED"),
        (new("account", json!("a\u{0}b")), "VALIDATION_FAILED"),
        (new("amount", json!(0)), "VALIDATION_FAILED"),
        (new("amount", json!(-5)), "VALIDATION_FAILED"),
        (new("surprise", json!(1)), "VALIDATION_FAILED"),
    ] {
        assert_eq!(app.post("/withdrawals", body).await.problem(422), code);
    }
    assert_eq!(app.get("/withdrawals/W2").await.problem(404), "NOT_FOUND");
    let outsider = app.merchant("other", "hold").await;
    assert_eq!(app.call(Method::GET, "/withdrawals/W1", &outsider, None).await.problem(404), "NOT_FOUND");
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (400, 0));
    assert_eq!(app.paid_out().await, (1, 600));
    app.assert_books_balance().await;
}

#[tokio::test]
async fn what_was_topped_up_and_not_withdrawn_can_be_spent_by_nobody_else() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    app.top_up("T-u2", "u2", 50).await;
    assert_eq!(
        app.post("/withdrawals", withdrawal("W1", "u2", 51)).await.problem(422),
        "INSUFFICIENT_BALANCE"
    );
    app.post("/withdrawals", withdrawal("W2", "u2", 50)).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (1_000, 0));
    assert_eq!(app.cny_of("u2").await, (0, 0));
    app.assert_books_balance().await;
}

#[tokio::test]
async fn a_withdrawal_whose_task_was_given_up_is_driven_on_by_an_operator() {
    let app = TestApp::start().await;
    app.top_up("T-u1", "u1", 1_000).await;
    app.post("/withdrawals", withdrawal("W1", "u1", 600)).await.expect(201);
    app.give_up_task_of_withdrawal("W1").await;
    app.clock.advance(minutes(60));
    app.run_until_idle().await;
    assert_eq!(app.find_withdrawal("W1").await["status"], "DEBITED");

    let path = format!("/admin/compensations/{}/retry", app.task_of_withdrawal("W1").await);
    let body = json!({"reason": "the channel is well again"});
    let revived = app.admin_post(&path, body.clone()).await.expect(200);
    assert_eq!((revived.text_of("status"), &revived.body["attempts"]), ("READY", &json!(0)));
    app.run_until_idle().await;
    assert_eq!(app.find_withdrawal("W1").await["status"], "SUCCEEDED");
    assert_eq!(app.exceptions("status=OPEN").await.len(), 0);
    assert_eq!(app.paid_out().await, (1, 600));
    assert_eq!(app.admin_post(&path, body.clone()).await.problem(409), "TASK_NOT_RETRYABLE");
    assert_eq!(app.admin_post("/admin/compensations/999/retry", body).await.problem(404), "NOT_FOUND");
    app.end().await;
}
