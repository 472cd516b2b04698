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

/// Takes back what was written off since the first of these bookings left its user a debt, up to what they left of it in all
/// and to `most`; gives how much. Call it when the user's balances are locked, and credit it to [`Debtor::merchant`] in the
/// booking that undoes them, in the place of what the user would get.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn recover_in_tx(
    tx: &mut Tx,
    debtor: Debtor<'_>,
    bookings: &[String],
    most: i64,
    now: OffsetDateTime,
) -> Result<i64, DbError> {
    let debt = store::find_debt(tx, debtor, bookings).await?;
    let Some(since) = debt.since else { return Ok(0) };
    let most = most.min(debt.amount);
    let mut recovered = 0;
    for written in store::list_written_off(tx, debtor, since).await? {
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
