//! What was shown of a debt comes to its end with it.

use time::OffsetDateTime;

use super::model::Debtor;
use super::store;
use crate::exceptions::{self, ExceptionKind};
use crate::infra::db::{DbError, Tx};

/// Resolves what is open about what somebody owed, by whom and for the reason that is given: call it in the transaction after
/// which they owe nothing in that currency, when their balances are locked. What somebody owes is one sum, so before that
/// nobody could say which of it was paid.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn settle_shown_in_tx(
    tx: &mut Tx,
    debtor: Debtor<'_>,
    by: (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let subjects = store::list_shown(tx, debtor).await?;
    if subjects.is_empty() {
        return Ok(());
    }
    exceptions::settle_all_in_tx(tx, &subjects, ExceptionKind::UsageShortfall, by, now).await
}
