//! Runs as operators see them: begun, looked at.

use std::fmt;

use time::{Duration, OffsetDateTime};

use super::error::SettlementError;
use super::model::{SettlementRun, Waiting};
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, SettlementRunId};
use crate::infra::crash::effect;
use crate::infra::db::DbError;

/// Days that a run may look back at most: a century.
pub const MAX_DAYS: u32 = 36_500;

/// What is to be settled.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Of one merchant; of all where none is named.
    pub merchant_id: Option<MerchantId>,
    /// Paid so many days ago or earlier, [`MAX_DAYS`] at most.
    pub older_than_days: u32,
}

/// As the admin log tells of it.
impl fmt::Display for NewRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.merchant_id.as_ref().map_or("all merchants", MerchantId::as_str);
        write!(f, "{whose}, {} days", self.older_than_days)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Begun {
    /// Paid before.
    pub paid_before: OffsetDateTime,
    /// What there is to settle; of a run, nothing where that takes too long to count.
    pub waiting: Vec<Waiting>,
    /// Whether more orders wait, of whomever, than were looked at: there may be more to settle.
    pub has_more: bool,
    /// The run; nothing where it was only asked what it would be for.
    pub run: Option<SettlementRun>,
}

/// Begins a run, which the workers carry out; without an entry for the admin log it is only counted what there is.
///
/// # Errors
/// [`SettlementError::UnknownMerchant`].
pub async fn begin_run(app: &App, new: &NewRun, entry: Option<Entry>) -> Result<Begun, SettlementError> {
    let now = app.now();
    let paid_before = now - Duration::days(new.older_than_days.into());
    let whose = new.merchant_id.as_ref();
    let counted = store::waiting(&mut app.db.conn().await?, whose, paid_before).await;
    let (waiting, has_more) = match counted {
        // Too much to be counted in time is no less to be settled, page by page.
        Err(error) if entry.is_some() && error.took_too_long() => (Vec::new(), true),
        counted => counted?,
    };
    let Some(mut entry) = entry else { return Ok(Begun { paid_before, waiting, has_more, run: None }) };

    let run_id = app.ids.settlement_run();
    let expected = (!has_more).then(|| waiting.iter().map(|waiting| waiting.orders).sum::<i64>());
    entry.target = format!("{run_id}: {}", entry.target);
    let mut tx = app.db.begin().await?;
    let written = async {
        store::insert_run(&mut tx, &run_id, whose, paid_before, expected, now).await?;
        admin_log::append_in_tx(&mut tx, &entry, now).await
    }
    .await;
    match effect!("settlement.begin_run", tx.finish(written).await) {
        Err(error) if error.constraint() == Some("settlement_runs_merchant_fkey") => {
            return Err(SettlementError::UnknownMerchant);
        }
        outcome => outcome?,
    }
    app.settlement_wake.notify_one();
    Ok(Begun { paid_before, waiting, has_more, run: Some(find_run(app, &run_id).await?) })
}

/// A run, as far as it has come.
///
/// # Errors
/// [`SettlementError::RunNotFound`].
pub async fn find_run(app: &App, run_id: &SettlementRunId) -> Result<SettlementRun, SettlementError> {
    let runs = store::list_runs(&mut app.db.conn().await?, Some(run_id), None, 1).await?;
    runs.into_iter().next().ok_or(SettlementError::RunNotFound)
}

/// A page of runs, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_runs(
    app: &App,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<SettlementRun>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list_runs(&mut app.db.conn().await?, None, starting_after, limit).await
}
