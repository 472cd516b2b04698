//! The gateway itself: what it stands on, how it refuses, and how it carries out a call.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::channels::Refusal;
use crate::ids::{Ids, PayOrderId, base32};
use crate::infra::db::{Conn, Db, DbError, MaybeTransient, Tx};
use crate::infra::http_client;

use super::protocol::{Call, Outcome};
use super::signature::{EmptySecret, Keys};

/// How long a receiver of webhooks may take to answer.
const WEBHOOK_DEADLINE: Duration = Duration::from_secs(5);

/// What a gateway must be told.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Signs webhooks and checks the calls of remote adapters.
    pub secret: SecretString,
    /// Where buyers reach this process; the cashier pages are below it.
    pub public_url: String,
}

/// Why a gateway cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Nothing can be signed with an empty secret.
    #[error(transparent)]
    Secret(#[from] EmptySecret),
    /// The HTTP client that sends webhooks cannot be made.
    #[error("the sandbox's HTTP client cannot be made")]
    Http(#[from] reqwest::Error),
}

/// The sandbox's gateway: books in the schema `sandbox`, a cashier, webhooks, faults. Cheap to clone; any
/// number of instances may work on the same books.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Db,
    ids: Ids,
    keys: Keys,
    public_url: String,
    http: reqwest::Client,
    wake: Arc<Notify>,
}

impl Gateway {
    /// Sets a gateway up; nothing is connected yet.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(db: Db, ids: Ids, settings: GatewaySettings) -> Result<Self, SetupError> {
        let keys = Keys::new(&[settings.secret])?;
        let public_url = settings.public_url.trim_end_matches('/').to_owned();
        let http = http_client::builder().timeout(WEBHOOK_DEADLINE).build()?;
        Ok(Self(Arc::new(Inner { db, ids, keys, public_url, http, wake: Arc::default() })))
    }

    /// Notified after the commit of anything that [`Gateway::deliver_due`] should send at once.
    #[must_use]
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.0.wake)
    }

    /// The page where a buyer pays this trade.
    #[must_use]
    pub fn cashier_url(&self, pay_order_id: &PayOrderId) -> String {
        format!("{}/sandbox/cashier/{pay_order_id}", self.0.public_url)
    }

    /// To be called before anything is judged by the time.
    pub(super) async fn know_time(&self) -> Result<(), GatewayError> {
        Ok(self.0.db.know_time().await?)
    }

    pub(super) fn now(&self) -> OffsetDateTime {
        self.0.ids.clock().now()
    }

    pub(super) fn db(&self) -> &Db {
        &self.0.db
    }

    pub(super) async fn conn(&self) -> Result<Conn, DbError> {
        self.0.db.conn().await
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        self.0.db.begin().await
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(super) fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    /// A new number of the gateway's own: `txn_…`, `evt_…`.
    pub(super) fn new_number(&self, prefix: &str) -> String {
        format!("{prefix}{}", base32(self.0.ids.uuid().as_bytes()))
    }

    /// Says that there may be something to deliver; call it after the commit.
    pub(super) fn something_to_deliver(&self) {
        self.0.wake.notify_one();
    }

    /// Carries a call out to its end, also when the caller stops waiting: a provider does not notice either.
    pub(super) async fn answer<C: Call>(&self, call: C) -> Result<Outcome<C::Answer>, GatewayError> {
        let gateway = self.clone();
        match owned(Box::pin(async move { call.carry_out(&gateway).await })).await {
            Ok(answer) => Ok(Outcome::Done { answer }),
            Err(GatewayError::Refused(refused)) => {
                let Refusal { code, message } = refused.into();
                Ok(Outcome::Refused { code, message })
            }
            Err(error) => Err(error),
        }
    }
}

/// Runs work in a task of its own, so that dropping the caller cannot cancel it halfway.
pub(super) async fn owned<T: Send + 'static>(
    work: impl Future<Output = Result<T, GatewayError>> + Send + 'static,
) -> Result<T, GatewayError> {
    tokio::spawn(work.in_current_span()).await.unwrap_or(Err(GatewayError::NoAnswer))
}

/// Why the gateway did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// A definite no, by the books or by a fault.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A fault, or the end of the process, swallowed the answer; it may have been done.
    #[error("the answer was lost")]
    NoAnswer,
    /// The books cannot be reached; it may have been done.
    #[error("the sandbox's books cannot be reached")]
    Books(#[from] DbError),
}

impl GatewayError {
    pub(super) fn constraint(&self) -> Option<&str> {
        match self {
            Self::Books(error) => error.constraint(),
            _ => None,
        }
    }
}

impl MaybeTransient for GatewayError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Books(error) if error.is_transient())
    }
}

/// Every definite no of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The same id came with other parameters before.
    #[error("this id was used with other parameters")]
    ParamsDiffer,
    /// The books know no such trade or payment.
    #[error("there is no such trade or payment")]
    TradeNotFound,
    /// Money was taken already.
    #[error("the trade is paid")]
    TradePaid,
    /// The buyer said no.
    #[error("the buyer declined the trade")]
    TradeDeclined,
    /// The caller closed it.
    #[error("the trade is closed")]
    TradeClosed,
    /// Its time is over.
    #[error("the trade has expired")]
    TradeExpired,
    /// More than was taken, counting earlier refunds.
    #[error("the refunds would exceed the payment")]
    RefundExceedsPayment,
    /// A refund in another currency than the payment's.
    #[error("the payment was made in another currency")]
    CurrencyDiffers,
    /// The fault `refuse`.
    #[error("refused on purpose by a sandbox fault")]
    OnPurpose,
}

impl Refused {
    /// The word that programs compare.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ParamsDiffer => "PARAMS_DIFFER",
            Self::TradeNotFound => "TRADE_NOT_FOUND",
            Self::TradePaid => "TRADE_PAID",
            Self::TradeDeclined => "TRADE_DECLINED",
            Self::TradeClosed => "TRADE_CLOSED",
            Self::TradeExpired => "TRADE_EXPIRED",
            Self::RefundExceedsPayment => "REFUND_EXCEEDS_PAYMENT",
            Self::CurrencyDiffers => "CURRENCY_DIFFERS",
            Self::OnPurpose => "SANDBOX_REFUSED",
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self { code: refused.code().to_owned(), message: refused.to_string() }
    }
}
