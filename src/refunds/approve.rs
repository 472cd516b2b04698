//! The decision over a refund above its merchant's limit, by an operator who did not ask for it.

use super::collected::{Collected, lock_with_refund};
use super::drive::append_task_in_tx;
use super::error::{Left, RefundError};
use super::find::find_id;
use super::model::{Refund, RefundEvent, RefundStatus};
use super::{book, contradiction, store, told};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::{MerchantId, RefundNo};
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::infra::words::words;

words! {
    /// What an operator decides.
    pub enum Decision {
        /// The money goes back.
        Approve = "APPROVE",
        /// It stays.
        Reject = "REJECT",
    }
}

/// Carries an operator's decision out; the same one by the same operator again gives the refund as it stands.
///
/// # Errors
/// [`RefundError::SameOperator`] for whoever asked for it; [`RefundError::NotAwaitingApproval`] when it was decided
/// otherwise, or by somebody else; [`RefundError::ExceedsPaid`] when so much is not left any more, because another refund was
/// made after all, or may have been; [`RefundError::Ambiguous`] when two merchants have such a refund: nothing was changed.
pub async fn decide(
    app: &App,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
    decision: Decision,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let refund = app.db.retrying(|| decide_once(app, merchant_id, refund_no, decision, entry)).await?;
    app.compensation_wake.notify_one();
    Ok(refund)
}

async fn decide_once(
    app: &App,
    merchant_id: Option<&MerchantId>,
    refund_no: &RefundNo,
    decision: Decision,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let id = find_id(app, merchant_id, refund_no).await?;
    let mut tx = app.db.begin().await?;
    let outcome = decide_in_tx(app, &mut tx, &id, decision, entry).await;
    effect!("refunds.decide", tx.finish(outcome).await)
}

async fn decide_in_tx(
    app: &App,
    tx: &mut Tx,
    refund_id: &str,
    decision: Decision,
    entry: &Entry,
) -> Result<Refund, RefundError> {
    let now = app.now();
    let (refund, collected) = lock_with_refund(tx, refund_id).await?.ok_or(RefundError::NotFound)?;
    let event = match decision {
        Decision::Approve => RefundEvent::Approved,
        Decision::Reject => RefundEvent::Rejected,
    };
    let entry = Entry { order: refund.order_key(), ..entry.clone() };
    let Some(to) = refund.status.after(event) else {
        // Asked for again, because the answer was lost, be it that to the commit.
        return if admin_log::has_in_tx(tx, &entry).await? {
            Ok(refund)
        } else {
            Err(RefundError::NotAwaitingApproval(refund.status))
        };
    };
    if refund.asked_by.as_deref() == Some(entry.actor.as_str()) {
        return Err(RefundError::SameOperator);
    }
    if let (RefundStatus::Pending, Collected::Payment(payment)) = (to, &collected) {
        let (let_go, gone) = store::sum_let_go(tx, &payment.order.key(), &refund).await?;
        let left = Left::of(payment.order.amount, let_go, gone);
        if refund.amount > left.amount {
            return Err(RefundError::ExceedsPaid(left));
        }
    }
    let failure = (to == RefundStatus::Failed).then(|| format!("rejected: {}", entry.reason));
    store::set_result(tx, &refund, to, None, failure.as_deref(), now).await?;
    admin_log::append_in_tx(tx, &entry, now).await?;
    let decided = Refund { status: to, failure, ..refund };
    if to == RefundStatus::Pending {
        // Whether it was made before is found by whoever drives it.
        let by = (entry.actor.as_str(), entry.reason.as_str());
        contradiction::end_question_in_tx(tx, &decided, by, now).await?;
        append_task_in_tx(tx, &decided, now).await?;
    } else {
        contradiction::ask_of_refused_in_tx(app, tx, (&decided, &collected)).await?;
        let event = told::ended(&decided, to, decided.failure.as_deref());
        told::tell_in_tx(tx, &decided, &event, now).await?;
        book::reverse_in_tx(tx, &decided, &collected, false, now).await?;
    }
    Ok(decided)
}
