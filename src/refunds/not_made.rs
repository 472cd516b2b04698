//! A refund that failed, and of which something told that its channel made it after all, was not made: by a person's word, where its
//! channel has nothing to say against that.
//!
//! It is as any that failed from then on: what was booked of it is taken back, what was shown of it ends, its money can go back by
//! another one, and who tells of it once more is believed once more.

use time::OffsetDateTime;

use super::after_all::{self, Turn};
use super::collected::{Collected, lock_with_refund};
use super::error::RefundError;
use super::find::find_id;
use super::model::{Refund, RefundStatus};
use super::result::{RefundReport, Source, apply_result};
use super::{contradiction, store, stray};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels::RefundState;
use crate::ids::{MerchantId, RefundNo};
use crate::infra::crash::effect;
use crate::infra::db::Tx;

/// What a person's word is about.
struct Word<'a> {
    refund_id: &'a str,
    /// Since when it was known to be made, when its channel was asked.
    made_at: Option<OffsetDateTime>,
    /// Whether the channel says that it made it, and took it back.
    is_taken_back: bool,
    entry: &'a Entry,
}

/// Takes an operator's word that a refund was not made, once its channel was asked; again, it gives the refund as it stands. What the
/// channel says against it counts instead.
///
/// # Errors
/// [`RefundError::NotMadeAfterAll`] where it was never known to be; [`RefundError::ChannelSilent`] where its channel cannot say, or
/// something told more of it in that moment; [`RefundError::Ambiguous`] when two merchants have such a refund: nothing was changed.
/// [`RefundError::IsMade`] where its channel says that it made it: then that is known, as by whatever else tells it.
pub async fn was_not_made(
    app: &App,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let refund_id = find_id(app, merchant_id, refund_no).await?;
    // Before its channel is asked, and before anything is locked: what is told behind that the channel knew nothing of.
    let seen = store::find_refund(&mut app.db.conn().await?, &refund_id).await?;
    let seen = seen.ok_or(RefundError::NotFound)?;
    if seen.status != RefundStatus::Failed {
        return Err(RefundError::NotMadeAfterAll(seen.status));
    }
    let is_taken_back = match contradiction::query(app, &refund_id).await? {
        Some(Ok(state @ RefundState::Succeeded { .. })) => {
            // Nobody else may ever hear it.
            let report = RefundReport { refund_id: &refund_id, state: &state, source: Source::Query };
            apply_result(app, &report).await?;
            return Err(RefundError::IsMade);
        }
        Some(Ok(RefundState::Processing)) => {
            return Err(RefundError::ChannelSilent("it is at it".to_owned()));
        }
        Some(Err(error)) => return Err(RefundError::ChannelSilent(error.to_string())),
        Some(Ok(RefundState::Failed(_))) => true,
        None | Some(Ok(RefundState::Unseen)) => false,
    };
    let word = Word { refund_id: &refund_id, made_at: seen.made_after_all_at, is_taken_back, entry };
    app.db.retrying(|| take(app, &word)).await
}

async fn take(app: &App, word: &Word<'_>) -> Result<Refund, RefundError> {
    let mut tx = app.db.begin().await?;
    let outcome = take_in_tx(app, &mut tx, word).await;
    effect!("refunds.not_made", tx.finish(outcome).await)
}

async fn take_in_tx(app: &App, tx: &mut Tx, word: &Word<'_>) -> Result<Refund, RefundError> {
    let now = app.now();
    let (refund, collected) = lock_with_refund(tx, word.refund_id).await?.ok_or(RefundError::NotFound)?;
    let entry = Entry { order: refund.order_key(), ..word.entry.clone() };
    if refund.made_after_all_at.is_none() {
        let times = store::times_made_after_all(tx, &refund.refund_id).await?;
        if times == 0 {
            return Err(RefundError::NotMadeAfterAll(refund.status));
        }
        // Else it is asked for again, because the answer was lost, be it that to the commit; or its channel was faster.
        if after_all::stands_in_tx(tx, &refund, times).await? {
            // An instance of a version before took the mark away, and left its booking.
            admin_log::append_in_tx(tx, &entry, now).await?;
            after_all::book_in_tx(tx, (&refund, &collected), Turn::Undone(times), now).await?;
        }
        return Ok(refund);
    }
    if refund.made_after_all_at != word.made_at {
        return Err(RefundError::ChannelSilent("something told of it in this moment".to_owned()));
    }
    let times = store::set_not_made(tx, &refund, word.is_taken_back, now).await?;
    admin_log::append_in_tx(tx, &entry, now).await?;
    let by = (entry.actor.as_str(), entry.reason.as_str());
    contradiction::end_question_in_tx(tx, &refund, by, now).await?;
    if let Collected::Stray(stray) = &collected {
        stray::show_again_in_tx(app, tx, stray).await?;
    }
    after_all::book_in_tx(tx, (&refund, &collected), Turn::Undone(times), now).await?;
    Ok(store::find_refund(tx, word.refund_id).await?.unwrap_or(refund))
}
