//! Creating merchants and their keys.

use secrecy::{ExposeSecret, SecretString};
use time::{Duration, OffsetDateTime};

use super::model::{ApiKey, KeyKind, Merchant, NewMerchant};
use super::{keys, store};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::crash::effect;
use crate::infra::db::{Conn, Db, DbError, MaybeTransient, Tx};
use crate::infra::secret_box::Undecipherable;
use crate::refunds::StrayPolicy;

/// Why a merchant was not created or found.
#[derive(Debug, thiserror::Error)]
pub enum MerchantError {
    /// The id is taken.
    #[error("there is a merchant of that id already")]
    Exists,
    /// No such merchant.
    #[error("there is no such merchant")]
    NotFound,
    /// More is held for pending orders than the new stock.
    #[error("{0} are held for pending orders, so the stock cannot be less")]
    StockBelowHeld(i64),
    /// There are so many of a thing by now, and not as many as expected.
    #[error("the stock is {0} by now, not what expected_stock says")]
    StockChanged(i64),
    /// So many secrets sign its notifications already.
    #[error("{0} replaced secrets still sign its notifications")]
    TooManySecrets(i64),
    /// Nothing would be sent to its endpoint; says why.
    #[error("nothing is sent there: {0}")]
    BadEndpoint(String),
    /// Its secret could not be encrypted.
    #[error(transparent)]
    Secret(#[from] Undecipherable),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for MerchantError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}

/// Keys that were just made. They are shown once.
#[derive(Clone, Debug, Default)]
pub struct NewKeys {
    /// `sk_…`
    pub secret_key: Option<SecretString>,
    /// `pk_…`
    pub publishable_key: Option<String>,
}

/// A new key of that kind, or one of each.
fn new_keys(app: &App, kind: Option<KeyKind>) -> NewKeys {
    let is_wanted = |of: KeyKind| kind.is_none_or(|kind| kind == of);
    NewKeys {
        secret_key: is_wanted(KeyKind::Secret).then(|| format!("sk_{}", app.ids.secret()).into()),
        publishable_key: is_wanted(KeyKind::Publishable).then(|| format!("pk_{}", app.ids.secret())),
    }
}

/// Creates a merchant with its first keys and the secret that signs its notifications.
///
/// # Errors
/// [`MerchantError::Exists`] when the id is taken.
pub async fn create(
    app: &App,
    new: &NewMerchant,
    entry: &Entry,
) -> Result<(Merchant, NewKeys, SecretString), MerchantError> {
    if let Some(url) = &new.notify_url {
        app.relay.check_endpoint(url).await.map_err(MerchantError::BadEndpoint)?;
    }
    let keys = new_keys(app, None);
    let notify_secret = SecretString::from(format!("whsec_{}", app.ids.secret()));
    let merchant = insert(app, new, &keys, &notify_secret, Some(entry)).await?;
    Ok((merchant, keys, notify_secret))
}

async fn insert(
    app: &App,
    new: &NewMerchant,
    keys: &NewKeys,
    notify_secret: &SecretString,
    entry: Option<&Entry>,
) -> Result<Merchant, MerchantError> {
    let sealed = app.secrets.seal(new.merchant_id.as_str(), notify_secret.expose_secret())?;
    let now = app.now();
    let inserted = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let written = async {
            store::insert(&mut tx, new, &sealed, now).await?;
            insert_keys(&mut tx, &new.merchant_id, keys, now).await?;
            match entry {
                Some(entry) => admin_log::append_in_tx(&mut tx, entry, now).await,
                None => Ok(()),
            }
        }
        .await;
        effect!("merchants.create", tx.finish(written).await)
    });
    match inserted.await {
        // Whose keys are new made it a moment ago, and the answer to the commit was lost. The demo's are always the same.
        Err(error) if error.constraint() == Some("merchants_pkey") => {
            let look = || async { has_keys(&mut app.db.conn().await?, &new.merchant_id, keys).await };
            if !app.db.retrying(look).await? {
                return Err(MerchantError::Exists);
            }
        }
        outcome => outcome?,
    }
    Ok(Merchant {
        merchant_id: new.merchant_id.clone(),
        name: new.name.clone(),
        stray_money: new.stray_money,
        notify_url: new.notify_url.clone(),
        refund_approval_above: new.refund_approval_above,
        created_at: now,
    })
}

/// Whether a merchant was given these keys, of which each was made with the others.
async fn has_keys(conn: &mut Conn, merchant_id: &MerchantId, keys: &NewKeys) -> Result<bool, DbError> {
    let secret = keys.secret_key.as_ref().map(ExposeSecret::expose_secret);
    match secret.or(keys.publishable_key.as_deref()) {
        Some(key) => store::has_key(conn, merchant_id, &keys::hash(key)).await,
        None => Ok(false),
    }
}

async fn insert_keys(
    tx: &mut Tx,
    merchant_id: &MerchantId,
    new: &NewKeys,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let secret = new.secret_key.as_ref().map(|key| (KeyKind::Secret, key.expose_secret()));
    let publishable = new.publishable_key.as_deref().map(|key| (KeyKind::Publishable, key));
    for (kind, key) in secret.into_iter().chain(publishable) {
        let hint: String = key.chars().take(7).collect();
        store::insert_key(tx, merchant_id, kind, &keys::hash(key), &hint, now).await?;
    }
    Ok(())
}

/// Gives a merchant a new key of that kind, or one of each; the old ones of it go on working for `overlap`.
///
/// # Errors
/// [`MerchantError::NotFound`] when there is no such merchant.
pub async fn rotate_keys(
    app: &App,
    merchant_id: &MerchantId,
    kind: Option<KeyKind>,
    overlap: Duration,
    entry: &Entry,
) -> Result<(NewKeys, OffsetDateTime), MerchantError> {
    let (keys, now) = (new_keys(app, kind), app.now());
    let rotated = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let written = async {
            // One after the other: each must end the keys that the one before it made.
            if !store::lock(&mut tx, merchant_id).await? {
                return Err(MerchantError::NotFound);
            }
            // Theirs already, where the answer to the commit was lost.
            if has_keys(&mut tx, merchant_id, &keys).await? {
                return Ok(());
            }
            store::expire_keys(&mut tx, merchant_id, kind, now + overlap).await?;
            insert_keys(&mut tx, merchant_id, &keys, now).await?;
            Ok(admin_log::append_in_tx(&mut tx, entry, now).await?)
        }
        .await;
        effect!("merchants.keys", tx.finish(written).await)
    });
    rotated.await?;
    Ok((keys, now + overlap))
}

/// Whether a database, which may be of an older version or empty, has another merchant than this one.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find_other(db: &Db, merchant_id: &MerchantId) -> Result<Option<String>, MerchantError> {
    Ok(store::find_other(&mut db.conn().await?, merchant_id).await?)
}

/// The merchant `demo` signs with it: well known, like its keys.
pub const DEMO_NOTIFY_SECRET: &str = "whsec_ZGVtby1zZWNyZXQtb2YtMjQtYnl0ZXMh";

/// Makes sure that the merchant `demo` exists, with the well-known keys of a developer's machine.
///
/// # Errors
/// When the database cannot be reached.
pub async fn ensure_demo(app: &App, merchant_id: &MerchantId) -> Result<(), MerchantError> {
    let new = NewMerchant {
        merchant_id: merchant_id.clone(),
        name: "Demo shop".into(),
        stray_money: StrayPolicy::AutoRefund,
        notify_url: None,
        refund_approval_above: None,
    };
    let keys = NewKeys {
        secret_key: Some(format!("sk_{}", keys::DEMO_SECRET).into()),
        publishable_key: Some(format!("pk_{}", keys::DEMO_SECRET)),
    };
    match insert(app, &new, &keys, &DEMO_NOTIFY_SECRET.into(), None).await {
        Ok(_) | Err(MerchantError::Exists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A page of a merchant's keys, those that have ended too, newest first: those before `before`.
///
/// # Errors
/// [`MerchantError::NotFound`] when there is no such merchant.
pub async fn list_keys(
    app: &App,
    merchant_id: &MerchantId,
    before: Option<i64>,
    limit: usize,
) -> Result<Vec<ApiKey>, MerchantError> {
    let (mut conn, limit) = (app.db.conn().await?, i64::try_from(limit).unwrap_or(i64::MAX));
    if !store::exists(&mut conn, merchant_id).await? {
        return Err(MerchantError::NotFound);
    }
    Ok(store::list_keys(&mut conn, merchant_id, before, limit, app.now()).await?)
}

/// A page of merchants, by id.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<Merchant>, MerchantError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(store::list(&mut app.db.conn().await?, starting_after, limit).await?)
}
