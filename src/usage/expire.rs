//! Holds that nobody ended in time are freed, and what is left behind is counted.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use super::store::{self, InHand};
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Slowness};
use crate::infra::duty::{Batch, DutyError, Within};

/// Holds of one batch: 8 round trips and 1 commit for all of them.
const BATCH: usize = 500;
/// A hold that is still passed over so long behind its time is waited for: reports that come without a pause hand it on to
/// one another, and nobody ever finds it free.
const OVERDUE_AFTER: Duration = Duration::seconds(10);
/// How long one run goes on with such holds.
const OVERDUE_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
/// A hold that outlives its time by more than that is a leak.
const LEAKED_AFTER: Duration = Duration::seconds(60);

/// Frees the holds whose time is over. One run walks all of them, page by page, and meets each once: one that cannot be
/// freed (somebody has its balance in hand, or its figures are wrong) is left to the next run and holds up nobody.
/// Instances that do so at once take different ones; one that is being confirmed in this instant is passed over. Those
/// that are passed over again and again are waited for, behind all others.
///
/// # Errors
/// When the database cannot be reached: of each batch nothing was freed, or all of it.
pub async fn expire_due(app: &App) -> Result<Batch, DutyError> {
    let (until, page_size) = (app.now(), i64::try_from(BATCH)?);
    let mut after = (OffsetDateTime::UNIX_EPOCH, String::new());
    let mut overdue = Vec::new();
    loop {
        let (since, hold_id) = (after.0, after.1.as_str());
        let page = store::list_due(&mut app.db.conn().await?, (since, hold_id), until, page_size).await?;
        let Some(last) = page.last().cloned() else { break };
        let hold_ids: Vec<String> = page.iter().map(|(_, hold_id)| hold_id.clone()).collect();
        let passed_over = expire_all(app, &hold_ids).await?;
        let old = page.into_iter().filter(|(expires_at, hold_id)| {
            *expires_at <= until - OVERDUE_AFTER && passed_over.contains(hold_id)
        });
        overdue.extend(old.map(|(_, hold_id)| hold_id));
        overdue.truncate(BATCH);
        if hold_ids.len() < BATCH {
            break;
        }
        after = last;
    }
    // Anywhere among them: one that nobody lets go of takes all the time that there is.
    let begin = app.ids.between(0, u64::try_from(overdue.len().saturating_sub(1))?);
    overdue.rotate_left(usize::try_from(begin)?);
    // In line with whoever reports of them, each comes up after a few of those; what is kept for longer is left.
    expire_each(app, &overdue, InHand::WaitedFor, Within::of(OVERDUE_WITHIN)).await?;
    let leaked = store::count_leaked(&mut app.db.conn().await?, app.now() - LEAKED_AFTER).await?;
    metrics::gauge!("payonce_hold_leak").set(leaked as f64);
    Ok(Batch::Done)
}

/// Frees them together, and where that cannot be each by itself. Gives those that somebody had in hand.
async fn expire_all(app: &App, hold_ids: &[String]) -> Result<BTreeSet<String>, DbError> {
    let failure = match expire_batch(app, hold_ids, InHand::PassedOver).await {
        Err(error) if !error.is_away() => error,
        outcome => return outcome,
    };
    tracing::debug!(error = %failure, holds = hold_ids.len(), "a batch of holds is freed one by one");
    expire_each(app, hold_ids, InHand::PassedOver, Within::ever()).await
}

/// Frees each by itself, as far as that can be. Gives those that somebody had in hand.
async fn expire_each(
    app: &App,
    hold_ids: &[String],
    in_hand: InHand,
    within: Within,
) -> Result<BTreeSet<String>, DbError> {
    let (mut passed_over, mut slowness) = (BTreeSet::new(), Slowness::default());
    for hold_id in hold_ids {
        if within.is_over() {
            break;
        }
        let outcome = expire_batch(app, std::slice::from_ref(hold_id), in_hand).await;
        let is_general = slowness.is_general(outcome.as_ref().err());
        match outcome {
            Ok(others) => passed_over.extend(others),
            Err(error) if is_general || error.is_away() => return Err(error),
            Err(error) => {
                // Its user's balance or cycle may be in somebody's hand as well as itself.
                if matches!(error, DbError::Contended(_)) {
                    passed_over.insert(hold_id.clone());
                }
                tracing::warn!(hold.id = hold_id, %error, "a hold whose time is over could not be freed and is tried again");
            }
        }
    }
    Ok(passed_over)
}

/// Frees those of them that are still due, and gives the others.
async fn expire_batch(app: &App, hold_ids: &[String], in_hand: InHand) -> Result<BTreeSet<String>, DbError> {
    let mut tx = app.db.begin().await?;
    tx.limit_waiting(in_hand.patience()).await?;
    let expired = store::expire_in_tx(&mut tx, &app.ids, hold_ids, in_hand, app.now()).await;
    let expired = effect!("usage.expire", tx.finish(expired).await)?;
    metrics::counter!("payonce_usage_holds_expired_total").increment(expired.len() as u64);
    Ok(hold_ids.iter().filter(|hold_id| !expired.contains(*hold_id)).cloned().collect())
}
