//! From a task to the use case that drives it. Each looks at the state it finds and does only what is missing.

use std::error::Error;

use crate::app::App;
use crate::compensation::{self, Action, Drive, Task};
use crate::infra::duty::{Batch, DutyError};
use crate::orders::{self, OrderKey};
use crate::{pay, refunds, webhooks, withdrawals};

/// Drives one batch of due tasks.
///
/// # Errors
/// When the database cannot be reached.
pub async fn run_due(app: &App) -> Result<Batch, DutyError> {
    let drive = |task: Task| drive(app.clone(), task);
    Ok(compensation::run_due(&app.db, &app.clock, &app.ids, app.config.task_lease, drive).await?)
}

async fn drive(app: App, task: Task) -> Result<Drive, String> {
    let subject = task.subject.as_str();
    let outcome: Result<Drive, Box<dyn Error + Send + Sync>> = match task.action {
        Action::DrivePayOrder => pay::drive(&app, subject).await.map_err(Into::into),
        Action::ClosePayOrder => pay::end_by_id(&app, subject).await.map_err(Into::into),
        Action::ExpireOrder => match OrderKey::from_member(subject) {
            Some(key) => orders::expire_one(&app, &key).await.map_err(Into::into),
            None => Ok(Drive::Done),
        },
        Action::DriveRefund => refunds::drive(&app, subject).await.map_err(Into::into),
        Action::DriveWithdrawal => withdrawals::drive(&app, subject).await.map_err(Into::into),
        Action::RematchCallback => webhooks::rematch(&app, subject).await.map_err(Into::into),
    };
    outcome.map_err(|error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}
