//! Making a withdrawal: its money is set aside at once; a task sends it out.
//!
//! Round trips: 6 (look, BEGIN, withdrawal, booking, task, COMMIT), 7 with an idempotency key; commits: 1.

use time::OffsetDateTime;

use super::error::WithdrawalError;
use super::find;
use super::model::{NewWithdrawal, Withdrawal, WithdrawalDetails};
use super::store;
use crate::app::App;
use crate::compensation::{self, Action, NewTask};
use crate::idempotency::{self, Keep, Kept};
use crate::ids::{MerchantId, UserId, WithdrawalId};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::lock::Scene;
use crate::ledger;

/// A withdrawal, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Created {
    /// The withdrawal as it stands.
    pub details: WithdrawalDetails,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Sets a user's money aside and has it sent out, or gives back the withdrawal of that number when it is the same;
/// keeps the answer where that is asked. The answer does not wait for the channel.
///
/// # Errors
/// [`WithdrawalError::ParamsMismatch`] names the fields in which the existing one differs;
/// [`WithdrawalError::InsufficientBalance`], [`WithdrawalError::UnknownChannel`]: nothing moved.
pub async fn create(
    app: &App,
    merchant_id: &MerchantId,
    new: &NewWithdrawal,
    keep: Option<&Keep<Created>>,
) -> Result<Created, WithdrawalError> {
    let lock = app.locks.acquire(Scene::Withdraw, &lock_key(merchant_id, &new.user_id)).await;
    if let Err(busy) = lock {
        // One last look: whoever has the lock may be making this very one.
        let found = app.db.retrying(|| find::by_number(app, merchant_id, &new.withdrawal_no)).await;
        return match found {
            Ok(found) => repeated(app, found, new, keep, None).await,
            Err(WithdrawalError::NotFound) => Err(busy.into()),
            Err(error) => Err(error),
        };
    }
    // Allotted once: a second run after a lost answer must meet the withdrawal of the first.
    let id = app.ids.withdrawal();
    app.db.retrying(|| create_once(app, merchant_id, &id, new, keep)).await
}

/// Everything that takes from one user's balance by hand goes one by one.
fn lock_key(merchant_id: &MerchantId, user_id: &UserId) -> String {
    format!("lock:WITHDRAW:{merchant_id}:{user_id}")
}

async fn create_once(
    app: &App,
    merchant_id: &MerchantId,
    id: &WithdrawalId,
    new: &NewWithdrawal,
    keep: Option<&Keep<Created>>,
) -> Result<Created, WithdrawalError> {
    match find::by_number(app, merchant_id, &new.withdrawal_no).await {
        Ok(found) => return repeated(app, found, new, keep, Some(id)).await,
        Err(WithdrawalError::NotFound) => {}
        Err(error) => return Err(error),
    }
    if app.channels.get(&new.channel).is_none() {
        return Err(WithdrawalError::UnknownChannel(new.channel.clone()));
    }
    let withdrawal = Withdrawal::newly_debited(id.clone(), merchant_id.clone(), new, app.now());
    let legs = withdrawal.first_legs();
    let made = Created { details: WithdrawalDetails { withdrawal, legs }, is_new: true };
    let kept = keep.map(|keep| keep.row(made.clone()));

    let mut tx = app.db.begin().await?;
    let outcome = create_in_tx(&mut tx, &made.details, kept.as_ref()).await;
    match effect!("withdrawals.create", tx.finish(outcome).await) {
        Ok(()) => {
            app.compensation_wake.notify_one();
            Ok(made)
        }
        Err(error) => match error.constraint() {
            Some(ledger::USER_BALANCE_CONSTRAINT) => Err(WithdrawalError::InsufficientBalance),
            // Somebody was faster where there is no lock; or we were, whose own commit was still under way.
            Some("withdrawals_merchant_withdrawal_no_key" | "withdrawals_pkey") => {
                let found = find::by_number(app, merchant_id, &new.withdrawal_no).await?;
                repeated(app, found, new, keep, Some(id)).await
            }
            _ => Err(error.into()),
        },
    }
}

async fn create_in_tx(tx: &mut Tx, made: &WithdrawalDetails, kept: Option<&Kept>) -> Result<(), DbError> {
    let WithdrawalDetails { withdrawal, legs } = made;
    let now = withdrawal.created_at;
    store::insert(tx, withdrawal, legs).await?;
    append_task_in_tx(tx, withdrawal, now).await?;
    if let Some(kept) = kept {
        idempotency::insert(tx, kept, None, now).await?;
    }
    // Last, as everywhere: nobody waits for the balance longer than for the commit.
    ledger::post_in_tx(tx, &[withdrawal.debit()], now).await
}

/// The task that sends the money out, from the transaction that says so.
pub(super) async fn append_task_in_tx(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let task = NewTask {
        action: Action::DriveWithdrawal,
        subject: withdrawal.withdrawal_id.as_str(),
        merchant_id: Some(withdrawal.merchant_id.as_str()),
        order_no: None,
        due_at: now,
    };
    compensation::append(tx, &task, now).await
}

/// The answer to a repeat: the withdrawal as it stands by now, when it is the same. It is new after all where it has the
/// very id of this call, which lost the answer to its commit.
async fn repeated(
    app: &App,
    details: WithdrawalDetails,
    new: &NewWithdrawal,
    keep: Option<&Keep<Created>>,
    own: Option<&WithdrawalId>,
) -> Result<Created, WithdrawalError> {
    let differing = details.withdrawal.differing_fields(new);
    if !differing.is_empty() {
        return Err(WithdrawalError::ParamsMismatch(differing));
    }
    let is_new = own == Some(&details.withdrawal.withdrawal_id);
    if is_new {
        app.compensation_wake.notify_one();
    }
    let repeated = Created { details, is_new };
    if let Some(keep) = keep {
        let row = keep.row(repeated.clone());
        let mut conn = app.db.conn().await?;
        effect!("withdrawals.keep", idempotency::insert(&mut conn, &row, None, app.now()).await)?;
    }
    Ok(repeated)
}
