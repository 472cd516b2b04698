//! What had left a user a debt is undone: what was written off since is the merchant's again, before anything is given back.
//!
//! Whoever is given back what they never paid would be given a present. Which debts a write-off was for nobody says; so it
//! counts for every debt that had come to be by then, and first for the one that is undone. Where that one had been paid off,
//! what its user would get back pays for the others: they are even with their merchant before anything is given to them. What
//! was written off before the debt came to be stays written off.

use time::OffsetDateTime;

use super::model::Debtor;
use super::store;
use crate::infra::db::{DbError, Tx};
use crate::outbox::{self, Event};

/// Takes back what was written off since this booking left its user a debt, up to `most`: as much of that debt as is undone.
/// Gives how much. Call it when the user's balances are locked, and credit it to [`Debtor::merchant`] in the booking that undoes
/// it, in the place of what the user would get.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn recover_in_tx(
    tx: &mut Tx,
    debtor: Debtor<'_>,
    booking: &str,
    most: i64,
    now: OffsetDateTime,
) -> Result<i64, DbError> {
    let Some(debt) = store::find_debt(tx, debtor, booking).await? else { return Ok(0) };
    let mut recovered = 0;
    for written in store::list_written_off(tx, debtor, debt.entry_id).await? {
        let amount = written.standing.min(most - recovered);
        if amount <= 0 {
            break;
        }
        store::add_recovered(tx, debtor, &written.clearing_no, amount, now).await?;
        let event = Event::ReceivableRecovered {
            clearing_no: written.clearing_no.to_string(),
            user_id: debtor.user_id.to_owned(),
            amount,
            recovered: written.recovered + amount,
            currency: debtor.currency,
        };
        outbox::append_in_tx(tx, Some(debtor.merchant_id), None, &event, now).await?;
        recovered += amount;
    }
    Ok(recovered)
}
