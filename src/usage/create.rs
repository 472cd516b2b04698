//! `POST /usage/holds`: money for work that is about to begin.
//!
//! Round trips of a first call: 2 to PostgreSQL (what there is, and all that is written), and 1 to Redis; commits: 1.
//! Where there is a quota, a cycle to pay for or too little money, up to 4 more to PostgreSQL (BEGIN, cycles, balances,
//! COMMIT), and 1 each for cycles that changed, fees that are told, holds that were there and a last look before a refusal;
//! what was tried in vain is done again. All but Redis's are shared with whoever asks at the same time (see
//! [`crate::infra::gather`]), also those of one user.

use time::OffsetDateTime;

use super::Done;
use super::desk::Wanted;
use super::error::{Refusal, UsageError};
use super::model::NewHold;
use super::store::Take;
use crate::app::App;
use crate::idempotency::Keep;
use crate::ids::{Cycle, MerchantId};
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::lock::Scene;

/// Rounds of "write, else look again": a key may be taken by another instance in between.
const MAX_ROUNDS: usize = 3;

/// Holds what work may cost, or gives back the hold of its key; keeps the answer where that is asked.
///
/// # Errors
/// [`Refusal`]: nothing was moved.
pub async fn create(
    app: &App,
    merchant_id: &MerchantId,
    new: NewHold,
    keep: Option<Keep<Done>>,
) -> Result<Done, UsageError> {
    let now = app.now();
    let present = present_cycle(now)?;
    // Allotted once: a second run after a lost answer must meet the hold of the first.
    let wanted = Wanted { hold_id: app.ids.hold(), merchant_id: merchant_id.clone(), new, present };
    let key = lock_key(&wanted);
    // Kept for the request only, and hardly waited for (5 ms in this process, one try at Redis): without it, or with
    // somebody else's, the database decides alone, and whoever goes on shares its work. So all that it can save is the
    // work of an equal request that comes within these 5 ms and finds the hold made; it costs a round trip to Redis.
    let _lock = app.locks.acquire(Scene::Billing, &key).await;
    app.db.retrying(|| take(app, &wanted, now, keep.as_ref())).await
}

async fn take(
    app: &App,
    wanted: &Wanted,
    now: OffsetDateTime,
    keep: Option<&Keep<Done>>,
) -> Result<Done, UsageError> {
    let command = || Take { wanted: wanted.clone(), now, keep: keep.cloned() };
    let mut outcome = Ok(Err(Refusal::NotFound));
    for _ in 0..MAX_ROUNDS {
        outcome = effect!("usage.take", app.db.gather(command()).await);
        let constraint = outcome.as_ref().err().and_then(DbError::constraint);
        // By another instance's, or by its own, whose answer was lost.
        if !matches!(constraint, Some("usage_holds_key" | "usage_holds_pkey")) {
            break;
        }
    }
    Ok(outcome??)
}

fn lock_key(wanted: &Wanted) -> String {
    let NewHold { user_id, product_code, cycle, .. } = &wanted.new;
    let cycle = cycle.as_ref().unwrap_or(&wanted.present);
    format!("lock:BILLING:{}:{user_id}:{product_code}:{cycle}", wanted.merchant_id)
}

/// The month, such as `2026-11`.
fn present_cycle(now: OffsetDateTime) -> Result<Cycle, UsageError> {
    let cycle = format!("{:04}-{:02}", now.year(), u8::from(now.month()));
    Ok(cycle.parse().map_err(|_| Refusal::TooMuch("cycle"))?)
}
