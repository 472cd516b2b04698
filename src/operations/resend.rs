//! An operator has events sent again.

use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::orders::OrderKey;
use crate::outbox::{self, SendAgain, SentAgain};

/// Why nothing was sent again.
#[derive(Debug, thiserror::Error)]
pub enum ResendError {
    /// No such event.
    #[error("there is no such event")]
    NotFound,
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Has one event sent again.
///
/// # Errors
/// [`ResendError::NotFound`] when there is no such event.
pub async fn resend(app: &App, id: i64, entry: &Entry) -> Result<(), ResendError> {
    let mut tx = app.db.begin().await?;
    let outcome = resend_in_tx(app, &mut tx, id, entry).await;
    effect!("outbox.resend", tx.finish(outcome).await)
}

async fn resend_in_tx(app: &App, tx: &mut Tx, id: i64, entry: &Entry) -> Result<(), ResendError> {
    let now = app.now();
    let found = outbox::send_again_in_tx(tx, id, app.relay.ways(), now).await?;
    let (merchant_id, order_no) = found.ok_or(ResendError::NotFound)?;
    let order = OrderKey::from_columns(merchant_id.as_deref(), order_no.as_deref());
    Ok(admin_log::append_in_tx(tx, &Entry { order, ..entry.clone() }, now).await?)
}

/// Has many events of a merchant sent again.
///
/// # Errors
/// When the database cannot be reached.
pub async fn resend_all(app: &App, wanted: &SendAgain, entry: &Entry) -> Result<SentAgain, ResendError> {
    let mut tx = app.db.begin().await?;
    let outcome = async {
        let sent = outbox::send_all_again_in_tx(&mut tx, wanted, app.relay.ways(), app.now()).await?;
        if !wanted.is_dry_run {
            admin_log::append_in_tx(&mut tx, entry, app.now()).await?;
        }
        Ok(sent)
    }
    .await;
    effect!("outbox.resend_all", tx.finish(outcome).await)
}
