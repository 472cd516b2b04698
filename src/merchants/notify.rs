//! Where a merchant is told of events, and the secret that proves that it is us.

use secrecy::{ExposeSecret, SecretString};
use time::{Duration, OffsetDateTime};

use super::create::MerchantError;
use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::exceptions::{self, ExceptionAction, ExceptionKind};
use crate::ids::MerchantId;
use crate::infra::crash::effect;

/// Sets where a merchant's events go, or that they go nowhere. All of its endpoints that answered 410, or asked for a
/// pause, are tried again from now on.
///
/// # Errors
/// [`MerchantError::BadEndpoint`] says why nothing would be sent there.
pub async fn set_notify_url(
    app: &App,
    merchant_id: &MerchantId,
    url: Option<&str>,
    entry: &Entry,
) -> Result<(), MerchantError> {
    if let Some(url) = url {
        app.relay.check_endpoint(url).await.map_err(MerchantError::BadEndpoint)?;
    }
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let written = async {
        if !store::save_endpoint(&mut tx, merchant_id, url, now).await? {
            return Err(MerchantError::NotFound);
        }
        let enabled = store::enable_endpoints(&mut tx, merchant_id).await?;
        for url in enabled {
            let (subject, kind) = (format!("{merchant_id} {url}"), ExceptionKind::EndpointDisabled);
            exceptions::settle_in_tx(&mut tx, &subject, Some(kind), ExceptionAction::None, now).await?;
        }
        Ok(admin_log::append_in_tx(&mut tx, entry, now).await?)
    }
    .await;
    effect!("merchants.notify_url", tx.finish(written).await)
}

/// Replaced secrets that may sign beside the present one: each makes every notification longer.
const MAX_RETIRED_SECRETS: i64 = 4;

/// Gives a merchant a new secret for its notifications. For `overlap` they are signed with those before too, so that
/// its backend can change over without missing one.
///
/// # Errors
/// [`MerchantError::NotFound`] when there is no such merchant; [`MerchantError::TooManySecrets`] when
/// `MAX_RETIRED_SECRETS` would go on signing beside the one that is replaced: none of them ends before its time.
pub async fn rotate_notify_secret(
    app: &App,
    merchant_id: &MerchantId,
    overlap: Duration,
    entry: &Entry,
) -> Result<(SecretString, OffsetDateTime), MerchantError> {
    let secret = SecretString::from(format!("whsec_{}", app.ids.secret()));
    let sealed = app.secrets.seal(merchant_id.as_str(), secret.expose_secret())?;
    let now = app.now();
    let rotated = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let written = async {
            // One after the other: each counts what the one before it left.
            if !store::lock(&mut tx, merchant_id).await? {
                return Err(MerchantError::NotFound);
            }
            // Theirs already, where the answer to the commit was lost.
            if store::has_secret(&mut tx, merchant_id, &sealed).await? {
                return Ok(());
            }
            let signing = store::count_signing(&mut tx, merchant_id, now).await?;
            if overlap.is_positive() && signing >= MAX_RETIRED_SECRETS {
                return Err(MerchantError::TooManySecrets(signing));
            }
            if !store::replace_secret(&mut tx, merchant_id, &sealed, now + overlap, now).await? {
                return Err(MerchantError::NotFound);
            }
            Ok(admin_log::append_in_tx(&mut tx, entry, now).await?)
        }
        .await;
        effect!("merchants.notify_secret", tx.finish(written).await)
    });
    rotated.await?;
    Ok((secret, now + overlap))
}
