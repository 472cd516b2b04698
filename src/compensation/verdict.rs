//! What tries come to: done, to be tried again, or given up; and how their ends are written down.

use super::model::{Action, Drive};
use super::run::{Crew, Outcome};
use super::schedule::{lane_after, retry_of};
use super::store::{self, Claimed, End};
use crate::infra::crash::effect;
use crate::infra::db::DbError;

/// Characters of a reason that are kept.
const MAX_REASON: usize = 1_000;

/// What becomes of a task behind a try.
pub(super) enum Verdict {
    /// It is done, or will be tried again.
    End(End),
    /// It will not, and why.
    GiveUp(String),
}

/// Judges what came of a try.
pub(super) fn judge(crew: &Crew<'_>, row: &Claimed, outcome: Outcome) -> Verdict {
    let (error, may_retry) = match outcome {
        Ok(Drive::Done) => {
            count(row, "done");
            return Verdict::End(End { hold: row.hold(), again: None, untried_since: None });
        }
        Ok(Drive::Untried(why, away)) => {
            count(row, "untried");
            // Behind all that is due by then.
            let again = Some((crew.clock.now() + away, why, None));
            return Verdict::End(End { hold: row.hold(), again, untried_since: Some(row.was_touched_at) });
        }
        Ok(Drive::Never(why)) => (why, false),
        Ok(Drive::Again(why)) | Err(why) => (why, true),
    };
    // The database takes no NUL in a text.
    let error: String = error.chars().filter(|c| *c != '\0').take(MAX_REASON).collect();
    let Claimed { action, subject, attempts, .. } = row;
    tracing::info!(task.action = action, task.subject = subject, attempts, %error, "a task is not done yet");
    let pause = if may_retry { retry_of(action, *attempts) } else { None };
    match pause {
        Some(pause) => {
            count(row, "again");
            let again = Some((crew.clock.now() + pause, error, lane_after(pause)));
            Verdict::End(End { hold: row.hold(), again, untried_since: None })
        }
        None => Verdict::GiveUp(error),
    }
}

/// Counts what came of a try.
pub(super) fn count(row: &Claimed, outcome: &'static str) {
    let action = Action::of(&row.action).map_or("UNKNOWN", Action::as_str);
    metrics::counter!("payonce_compensations_total", "action" => action, "outcome" => outcome).increment(1);
}

/// Writes ends down. One that the database refuses must not spoil its neighbours'.
pub(super) async fn write_down(crew: &Crew<'_>, ends: &[End]) -> Result<(), DbError> {
    match finish_all(crew, ends).await {
        Err(error) if ends.len() > 1 && !error.is_passing() => {
            tracing::error!(%error, "a batch of ends was refused: each is written by itself");
            for end in ends {
                match finish_all(crew, std::slice::from_ref(end)).await {
                    Err(error) if error.is_passing() => return Err(error),
                    Err(error) => {
                        tracing::error!(%error, task.id = end.hold.id, "the end of a task was refused");
                    }
                    Ok(()) => {}
                }
            }
            Ok(())
        }
        written => written,
    }
}

async fn finish_all(crew: &Crew<'_>, ends: &[End]) -> Result<(), DbError> {
    let write = || async {
        let mut conn = crew.db.conn().await?;
        effect!("tasks.finish", store::finish(&mut conn, ends, crew.clock.now()).await)
    };
    crew.db.retrying(write).await
}
