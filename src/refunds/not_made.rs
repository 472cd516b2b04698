//! A refund that failed, and of which something told that its channel made it after all, was not made: by a person's word, where its
//! channel has nothing to say against that.
//!
//! It is as any that failed from then on: what was booked of it is taken back, what was shown of it ends, its money can go back by
//! another one, and who tells of it once more is believed once more.

use super::after_all::{self, Turn};
use super::collected::{Collected, lock_with_refund};
use super::error::RefundError;
use super::model::Refund;
use super::{contradiction, store, stray};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels::RefundState;
use crate::ids::{MerchantId, RefundNo};
use crate::infra::crash::effect;
use crate::infra::db::Tx;

/// Takes an operator's word that a refund was not made, once its channel was asked; again, it gives the refund as it stands.
///
/// # Errors
/// [`RefundError::NotMadeAfterAll`] where nothing says that it was; [`RefundError::IsMade`] where its channel says so;
/// [`RefundError::ChannelSilent`] where that cannot say; [`RefundError::Ambiguous`] when two merchants have such a refund: nothing was
/// changed.
pub async fn was_not_made(
    app: &App,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let mut ids = store::list_ids_of_number(&mut app.db.conn().await?, merchant_id, refund_no).await?;
    let id = ids.pop().ok_or(RefundError::NotFound)?;
    if !ids.is_empty() {
        return Err(RefundError::Ambiguous);
    }
    // Before anything is locked. Who tells that it was made meanwhile tells what this person has looked at.
    match contradiction::query(app, &id).await? {
        Some(Ok(RefundState::Succeeded { .. })) => return Err(RefundError::IsMade),
        Some(Ok(RefundState::Processing)) => {
            return Err(RefundError::ChannelSilent("it is at it".to_owned()));
        }
        Some(Err(error)) => return Err(RefundError::ChannelSilent(error.to_string())),
        None | Some(Ok(RefundState::Unseen | RefundState::Failed(_))) => {}
    }
    app.db.retrying(|| take_word(app, &id, entry)).await
}

async fn take_word(app: &App, refund_id: &str, entry: &Entry) -> Result<Refund, RefundError> {
    let mut tx = app.db.begin().await?;
    let outcome = take_word_in_tx(app, &mut tx, refund_id, entry).await;
    effect!("refunds.not_made", tx.finish(outcome).await)
}

async fn take_word_in_tx(
    app: &App,
    tx: &mut Tx,
    refund_id: &str,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let now = app.now();
    let (refund, collected) = lock_with_refund(tx, refund_id).await?.ok_or(RefundError::NotFound)?;
    let entry = Entry { order: refund.order_key(), ..entry.clone() };
    if refund.made_after_all_at.is_none() {
        // Asked for again, because the answer was lost, be it that to the commit.
        return if admin_log::has_in_tx(tx, &entry).await? {
            Ok(refund)
        } else {
            Err(RefundError::NotMadeAfterAll(refund.status))
        };
    }
    let times = store::set_not_made(tx, &refund, None, now).await?;
    admin_log::append_in_tx(tx, &entry, now).await?;
    let by = (entry.actor.as_str(), entry.reason.as_str());
    contradiction::end_question_in_tx(tx, &refund, by, now).await?;
    if let Collected::Stray(stray) = &collected {
        stray::show_again_in_tx(app, tx, stray).await?;
    }
    after_all::book_in_tx(tx, (&refund, &collected), Turn::TakenBack(times), now).await?;
    Ok(Refund { made_after_all_at: None, channel_refund_id: None, ..refund })
}
