//! A worker that drives one thing by hand.

use payonce::compensation::{Action, Task};
use sqlx::Row;

use super::app::TestApp;

impl TestApp {
    /// Takes the task of that thing, as a worker does by whose clock everybody else is dead.
    pub async fn take_task(&self, action: Action, subject: &str) -> Task {
        let row = sqlx::query(
            "UPDATE compensations SET status = 'RUNNING', attempts = attempts + 1
             WHERE subject = $1 AND status IN ('READY', 'RUNNING')
             RETURNING id, merchant_id, order_no, attempts, created_at",
        )
        .bind(subject)
        .fetch_one(&mut self.direct_connection().await)
        .await
        .expect("a task");
        Task {
            id: row.get("id"),
            action,
            subject: subject.to_owned(),
            merchant_id: row.get("merchant_id"),
            order_no: row.get("order_no"),
            attempts: row.get("attempts"),
            created_at: row.get("created_at"),
            payload: None,
        }
    }

    /// Puts it back, where nobody has taken it since.
    pub async fn put_back(&self, task: &Task) {
        sqlx::query("UPDATE compensations SET status = 'READY' WHERE id = $1 AND attempts = $2 AND status = 'RUNNING'")
            .bind(task.id)
            .bind(task.attempts)
            .execute(&mut self.direct_connection().await)
            .await
            .expect("put back");
    }
}
