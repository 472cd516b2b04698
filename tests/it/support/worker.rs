//! A worker that drives one thing by hand.

use std::time::Duration;

use payonce::compensation::{Action, Hold, Task};
use serde_json::json;
use sqlx::Row;

use super::app::TestApp;

impl TestApp {
    /// Takes the task of that thing for a day, as a worker does by whose clock everybody else is dead.
    pub async fn take_task(&self, action: Action, subject: &str) -> Task {
        let row = sqlx::query(
            "UPDATE compensations SET status = 'RUNNING', attempts = attempts + 1, claims = claims + 1,
                                      due_at = $2
             WHERE subject = $1 AND action = $3 AND status IN ('READY', 'RUNNING')
             RETURNING id, claims, merchant_id, order_no, attempts, created_at",
        )
        .bind(subject)
        .bind(self.clock.now() + Duration::from_secs(86_400))
        .bind(action.as_str())
        .fetch_one(&mut self.direct_connection().await)
        .await
        .expect("a task");
        Task {
            hold: Hold { id: row.get("id"), claim: row.get("claims") },
            action,
            subject: subject.to_owned(),
            merchant_id: row.get("merchant_id"),
            order_no: row.get("order_no"),
            attempts: row.get("attempts"),
            created_at: row.get("created_at"),
            // They have been for long.
            touched_at: self.clock.now() - Duration::from_secs(86_400),
            payload: None,
            is_fresh: false,
        }
    }

    /// Puts it back, where nobody has taken it since.
    pub async fn put_back(&self, task: &Task) {
        sqlx::query(
            "UPDATE compensations SET status = 'READY', due_at = $3
             WHERE id = $1 AND claims = $2 AND status = 'RUNNING'",
        )
        .bind(task.hold.id)
        .bind(task.hold.claim)
        .bind(self.clock.now())
        .execute(&mut self.direct_connection().await)
        .await
        .expect("put back");
    }

    /// The only task of that action.
    pub async fn take_only_task(&self, action: Action) -> Task {
        self.take_task(action, &self.subject_of(action).await).await
    }

    /// Has a thing driven a step by a worker that takes its task and puts it back.
    pub async fn drive_by_hand<T>(
        &self,
        action: Action,
        subject: &str,
        drive: impl AsyncFnOnce(&Task) -> T,
    ) -> T {
        let task = self.take_task(action, subject).await;
        let driven = drive(&task).await;
        self.put_back(&task).await;
        driven
    }

    async fn subject_of(&self, action: Action) -> String {
        sqlx::query_scalar("SELECT subject FROM compensations WHERE action = $1")
            .bind(action.as_str())
            .fetch_one(&mut self.direct_connection().await)
            .await
            .expect("a task")
    }

    /// The task is given up while a worker has it, a person has it tried anew, and another worker takes it: its first
    /// try is the first once more.
    pub async fn take_revived(&self, action: Action) -> Task {
        let subject = self.subject_of(action).await;
        let given_up = "UPDATE compensations SET status = 'DEAD' WHERE subject = $1 RETURNING id";
        let mut conn = self.direct_connection().await;
        let id: i64 = sqlx::query_scalar(given_up).bind(&subject).fetch_one(&mut conn).await.expect("a task");
        let path = format!("/admin/compensations/{id}/retry");
        self.admin_post(&path, json!({"reason": "again"})).await.expect(200);
        let task = self.take_task(action, &subject).await;
        assert_eq!(task.attempts, 1);
        task
    }
}
