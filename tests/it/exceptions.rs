//! Exceptions: what waits for a person, who decides once, with a reason and under their own name.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::webhooks::Taken;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;

use crate::support::twin::Twin;
use crate::support::{OPERATOR, Reply, TestApp, TestOptions, minutes, until_waiting};

const VERA: &str = "dev-viewer-token-of-vera";
const OLGA: &str = "dev-operator-token-of-olga";

/// An instance with a viewer and two operators, whose merchant `holder` holds stray money.
async fn staffed() -> (TestApp, String) {
    let tokens = format!("operator:dev-admin-token,viewer@vera:{VERA},operator@olga:{OLGA}");
    let vars = vec![("ADMIN_TOKENS", tokens)];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let key = app.merchant("holder", "hold").await;
    (app, key)
}

async fn resolve_as(app: &TestApp, token: &str, exception: &Value, body: Value) -> Reply {
    let id = exception["exception_id"].as_str().expect("an id");
    app.call(Method::POST, &format!("/admin/exceptions/{id}/resolve"), token, Some(&body)).await
}

#[tokio::test]
async fn exceptions_are_listed_newest_first_by_status_and_in_pages() {
    let (app, key) = staffed().await;
    for index in 0..5 {
        app.late_money_as(&key, &format!("X1-{index}")).await;
        app.run_until_idle().await;
    }
    let all = app.exceptions("").await;
    let numbers: Vec<_> = all.iter().map(|exception| exception["order_no"].clone()).collect();
    assert_eq!(numbers, ["X1-4", "X1-3", "X1-2", "X1-1", "X1-0"]);
    app.resolve(&all[1], "KEEP").await.expect(200);
    assert_eq!(app.exceptions("status=OPEN").await.len(), 4);
    assert_eq!(app.exceptions("status=RESOLVED").await.len(), 1);

    let mut seen = Vec::new();
    let mut path = "/admin/exceptions?limit=2".to_owned();
    loop {
        let page = app.call(Method::GET, &path, VERA, None).await.expect(200).body;
        let rows = page["data"].as_array().expect("a page").clone();
        seen.extend(rows.iter().map(|exception| exception["order_no"].clone()));
        if page["has_more"] == false {
            break;
        }
        let last = rows.last().expect("more")["exception_id"].as_str().expect("an id").to_owned();
        path = format!("/admin/exceptions?limit=2&starting_after={last}");
    }
    assert_eq!(seen, numbers);
    for bad in ["status=open", "limit=0", "limit=101", "limit=x"] {
        let reply = app.admin_get(&format!("/admin/exceptions?{bad}")).await;
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{bad}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_decision_is_made_once_by_an_operator_and_kept_with_name_and_reason() {
    let (app, key) = staffed().await;
    app.late_money_as(&key, "X2").await;
    app.run_until_idle().await;
    let exception = app.open_exception().await;
    let keep = json!({"action": "KEEP", "reason": "the buyer wants it so"});

    assert_eq!(resolve_as(&app, VERA, &exception, keep.clone()).await.problem(403), "FORBIDDEN");
    assert_eq!(resolve_as(&app, "nobody", &exception, keep.clone()).await.problem(401), "UNAUTHENTICATED");
    assert_eq!(resolve_as(&app, &key, &exception, keep.clone()).await.problem(403), "FORBIDDEN");
    let none = json!({"action": "NONE", "reason": "looks fine"});
    assert_eq!(resolve_as(&app, OLGA, &exception, none).await.problem(409), "MONEY_IS_HELD");
    assert_eq!(app.stray().await["status"], "HELD", "nothing was changed");

    let resolved = resolve_as(&app, OLGA, &exception, keep.clone()).await.expect(200).body;
    assert_eq!((&resolved["status"], &resolved["action"]), (&json!("RESOLVED"), &json!("KEEP")));
    assert_eq!(resolved["resolved_by"], "olga");
    assert_eq!(resolved["reason"], "the buyer wants it so");
    assert_eq!(app.stray().await["status"], "KEPT");
    // Whoever says again what they have decided is told how it stands. Nobody decides otherwise any more.
    let again = json!({"action": "KEEP", "reason": "again"});
    assert_eq!(resolve_as(&app, OLGA, &exception, again).await.expect(200).body, resolved);
    for (token, action) in [(OLGA, "REFUND"), (OLGA, "NONE"), (OPERATOR, "KEEP")] {
        let late = json!({"action": action, "reason": "again"});
        assert_eq!(resolve_as(&app, token, &exception, late).await.problem(409), "EXCEPTION_RESOLVED");
    }
    assert_eq!(app.sandbox_books().await, (1990, 0));

    let logged = "actor = 'olga' AND role = 'operator' AND action = 'exceptions.resolve'
                  AND reason = 'the buyer wants it so' AND request_id <> ''";
    assert_eq!(app.count_where("admin_log", logged).await, 1);
    assert_eq!(app.count_where("admin_log", "action = 'exceptions.resolve'").await, 1, "once");
    assert_eq!(app.count_where("admin_log", "actor IN ('vera', 'nobody')").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_decision_that_makes_no_sense_is_refused() {
    let (app, key) = staffed().await;
    app.late_money_as(&key, "X3").await;
    app.run_until_idle().await;
    let exception = app.open_exception().await;
    for body in [
        json!({}),
        json!({"action": "refund", "reason": "x"}),
        json!({"action": "DESTROY", "reason": "x"}),
        json!({"action": "KEEP", "amount": 5, "reason": "x"}),
        json!({"action": "KEEP"}),
        json!({"action": "KEEP", "reason": ""}),
        json!({"action": "KEEP", "reason": "x".repeat(501)}),
    ] {
        assert_eq!(resolve_as(&app, OLGA, &exception, body).await.problem(422), "VALIDATION_FAILED");
    }
    let mut unknown = exception.clone();
    for id in ["ex_nobody", "..", "%00"] {
        unknown["exception_id"] = json!(id);
        let reply = resolve_as(&app, OLGA, &unknown, json!({"action": "KEEP", "reason": "x"})).await;
        assert_eq!(reply.problem(404), "NOT_FOUND", "{id}");
    }
    assert_eq!(app.open_exception().await["exception_id"], exception["exception_id"]);
    app.resolve(&exception, "REFUND").await.expect(200);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_was_given_up_can_only_be_driven_on() {
    let (app, _) = staffed().await;
    // A channel that never answers again: the task is given up after its last try, and a person is told.
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1000, Some(1500)).await;
    app.late_money("X4").await;
    for pause in [0, 1, 1, 1, 1, 2, 3, 11, 31, 61, 181, 361, 361, 361] {
        app.clock.advance(minutes(pause));
        app.run_until_idle().await;
    }
    let exception = app.open_exception().await;
    assert_eq!(exception["kind"], "DEAD_TASK");
    for action in ["NONE", "KEEP"] {
        let body = json!({"action": action, "reason": "?"});
        assert_eq!(resolve_as(&app, OLGA, &exception, body).await.problem(409), "MONEY_IS_HELD");
    }
    assert_eq!(app.stray().await["status"], "REFUNDING", "its result is unknown, so nobody may decide");

    app.call(Method::DELETE, "/sandbox/faults", OPERATOR, None).await.expect(200);
    app.resolve(&exception, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    app.end().await;
}

#[tokio::test]
async fn a_mismatch_whose_refund_is_under_way_can_be_acknowledged() {
    let (app, _) = staffed().await;
    let id = app.order_to_pay("X5").await;
    let number = app.sandbox_pay(&id, json!({"amount": 7, "notify": false})).await.expect(200);
    app.webhook(&app.success("e1", &id, number.text_of("transaction_id"), 7)).await.expect(400);
    let exception = app.open_exception().await;
    for action in ["REFUND", "KEEP"] {
        assert_eq!(
            app.resolve(&exception, action).await.problem(409),
            "NO_MONEY_HELD",
            "it is on its way back"
        );
    }
    app.resolve(&exception, "NONE").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    assert_eq!(app.exceptions("").await[0]["resolved_by"], "operator");
    app.end().await;
}

#[tokio::test]
async fn two_operators_who_decide_at_once_decide_once() {
    let (app, key) = staffed().await;
    for round in 0..10 {
        app.late_money_as(&key, &format!("X6-{round}")).await;
        app.run_until_idle().await;
        let exception = app.open_exception().await;
        let decide = |token, action| {
            resolve_as(&app, token, &exception, json!({"action": action, "reason": "at once"}))
        };
        let (refund, keep) = tokio::join!(decide(OLGA, "REFUND"), decide("dev-admin-token", "KEEP"));
        let mut statuses = [refund.status, keep.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{refund:?} {keep:?}");
        app.run_until_idle().await;
        let expected = if refund.status == 200 { "REFUNDED" } else { "KEPT" };
        assert_eq!(app.strays("").await[0]["status"], expected);
    }
    app.end().await;
}

#[tokio::test]
async fn deciding_while_the_refund_comes_back_never_fails() {
    let (app, _) = staffed().await;
    for round in 0..8 {
        let id = app.order_to_pay(&format!("X7-{round}")).await;
        let paid = app.sandbox_pay(&id, json!({"amount": 7, "notify": false})).await.expect(200);
        let event = format!("e{round}");
        app.webhook(&app.success(&event, &id, paid.text_of("transaction_id"), 7)).await.expect(400);
        let exception = app.open_exception().await;
        let (reply, ()) = tokio::join!(app.resolve(&exception, "NONE"), app.run_until_idle());
        assert!(matches!(reply.status, 200 | 409), "{reply:?}");
        app.run_until_idle().await;
    }
    assert_eq!(app.strays("status=REFUNDED").await.len(), 8);
    app.end().await;
}

#[tokio::test]
async fn a_decision_and_a_refund_that_ends_do_not_block_each_other_for_good() {
    let (app, _) = staffed().await;
    let id = app.order_to_pay("X8").await;
    let paid = app.sandbox_pay(&id, json!({"amount": 7, "notify": false})).await.expect(200);
    app.webhook(&app.success("e1", &id, paid.text_of("transaction_id"), 7)).await.expect(400);
    let exception = app.open_exception().await;

    // A refund's end locks the stray payment, then what is open about it.
    let mut other = app.direct_connection().await;
    let mut ending = other.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM stray_payments FOR UPDATE").execute(&mut *ending).await.expect("the lock");
    let end = async {
        until_waiting(&app, 1).await;
        let settle = "UPDATE exceptions SET updated_at = updated_at WHERE status = 'OPEN'";
        let settled = sqlx::query(settle).execute(&mut *ending).await;
        ending.commit().await.expect("the commit");
        settled
    };
    let (reply, settled) = tokio::join!(app.resolve(&exception, "NONE"), end);
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(reply.status, 200, "{reply:?}");
    other.close().await.expect("closed");
    app.run_until_idle().await;
    app.end_without_deadlocks().await;
}

#[tokio::test]
async fn a_given_up_refund_that_comes_to_its_end_waits_for_nobody() {
    let (app, _) = staffed().await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1000, Some(1500)).await;
    for (order_no, status, left) in [("X9", "SUCCEEDED", vec![]), ("X10", "FAILED", vec!["STRAY_MONEY"])] {
        app.late_money(order_no).await;
        app.run_until_idle().await;
        app.sql(
            "UPDATE compensations SET attempts = 12, due_at = now() - interval '1 h' WHERE status = 'READY'",
        )
        .await;
        app.run_until_idle().await;
        assert_eq!(app.open_exception().await["kind"], "DEAD_TASK");

        let number = app.find_order(order_no).await["refunds"][0]["refund_no"].clone();
        let number = number.as_str().expect("a number");
        if status == "FAILED" {
            // What the channel knows nothing of may still come to it.
            app.deliver(&app.refund_notice("early", number, status)).await;
            assert_eq!(app.open_exception().await["kind"], "DEAD_TASK");
            app.sandbox_fails(number).await;
        }
        app.deliver(&app.refund_notice(order_no, number, status)).await;
        let open = app.exceptions("status=OPEN").await;
        let kinds: Vec<_> =
            open.iter().map(|exception| exception["kind"].as_str().expect("a kind")).collect();
        assert_eq!(kinds, left, "{status}");
        assert_eq!(app.count_where("compensations", "status = 'DEAD'").await, 0, "{status}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_refund_told_for_another_account_is_shown_to_a_person() {
    let (app, key) = staffed().await;
    app.late_money_as(&key, "X11").await;
    app.run_until_idle().await;
    let held = app.open_exception().await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1000, Some(1500)).await;
    app.resolve(&held, "REFUND").await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order_as(&key, "X11").await;
    let number = order["refunds"][0]["refund_no"].as_str().expect("a number");

    let other = Twin::of_another_account(&app);
    for event in ["r1", "r1", "r2", "r1"] {
        assert_eq!(other.told(&app, &app.refund_notice(event, number, "SUCCEEDED")).await, Taken::Rejected);
    }
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("WRONG_ACCOUNT"), &json!(number)));
    let detail = shown["detail"].as_str().expect("text");
    for event in ["(r1)", "(r2)"] {
        assert_eq!(detail.matches(event).count(), 1, "each is to be replayed: {detail}");
    }
    assert_eq!(shown["order_no"], "X11");
    // Nor does its replay, as long as the account is another one.
    let replayed = other.replay(&app, "r1").await;
    assert_eq!((&replayed["verdict"], &replayed["changes"]), (&json!("WRONG_ACCOUNT"), &json!(false)));
    assert_eq!(app.find_order_as(&key, "X11").await["refunds"][0]["status"], "PROCESSING");
    app.end().await;
}

#[tokio::test]
async fn a_decision_over_a_given_up_refund_waits_for_the_refund_that_ends() {
    let (app, _) = staffed().await;
    app.paid("X12").await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1, Some(1500)).await;
    app.post("/refunds", json!({"refund_no": "R1", "order_no": "X12", "amount": 700})).await.expect(201);
    app.sql("UPDATE compensations SET attempts = 12 WHERE status = 'READY'").await;
    app.run_until_idle().await;
    let exception = app.open_exception().await;
    assert_eq!(exception["kind"], "DEAD_TASK");

    // A refund's end locks the order, then the refund, then what is open about it.
    let mut ending = app.direct_connection().await;
    let mut ending = sqlx::Connection::begin(&mut ending).await.expect("a transaction");
    let lock = "SELECT 1 FROM orders WHERE order_no = 'X12' FOR UPDATE";
    sqlx::query(lock).execute(&mut *ending).await.expect("the lock");
    let end = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let settle = "UPDATE exceptions SET updated_at = updated_at WHERE status = 'OPEN'";
        let settled = sqlx::query(settle).execute(&mut *ending).await;
        ending.commit().await.expect("the commit");
        settled
    };
    let (reply, settled) = tokio::join!(app.resolve(&exception, "REFUND"), end);
    assert!(settled.is_ok(), "{settled:?}");
    assert_eq!(reply.status, 200, "{reply:?}");
    app.run_until_idle().await;
    assert_eq!(app.refunded("X12").await, ("PARTIALLY_REFUNDED".into(), 700));
    assert_eq!(app.count_where("compensations", "status = 'DEAD'").await, 0, "it was driven on");
    app.end().await;
}

#[tokio::test]
async fn what_happens_again_while_somebody_resolves_what_was_shown_of_it_is_shown_anew() {
    let (app, _) = staffed().await;
    let unreadable = json!({"no": "callback"});
    assert_eq!(app.webhook(&unreadable).await.status, 400);
    let shown = app.open_exception().await;

    // Somebody has it in hand, and has read it as it was.
    let mut owner = app.direct_connection().await;
    let mut hand = owner.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM exceptions FOR UPDATE").execute(&mut *hand).await.expect("in hand");
    let (told, ()) = tokio::join!(app.webhook(&unreadable), async {
        until_waiting(&app, 1).await;
        let resolve = "UPDATE exceptions SET status = 'RESOLVED', action = 'NONE', resolved_by = 'olga', reason = 'seen'";
        sqlx::query(resolve).execute(&mut *hand).await.expect("resolved");
        hand.commit().await.expect("a commit");
    });
    assert_eq!(told.status, 400);
    let anew = app.open_exception().await;
    assert_eq!(anew["subject"], shown["subject"]);
    assert_ne!(anew["exception_id"], shown["exception_id"]);

    // It stands for whatever happens from then on.
    assert_eq!(app.webhook(&unreadable).await.status, 400);
    assert_eq!(app.exceptions("").await.len(), 2);
    app.end().await;
}
