//! Where rates come from: the tables here, or an endpoint of the operator.

use async_trait::async_trait;

use super::terms::{Factor, Rate};
use crate::app::App;
use crate::ids::UserId;
use crate::orders::OrderKey;

mod halves;
mod http;
mod listed;

pub(super) use halves::ask_by_halves;
use http::HttpRates;
use listed::ListedRates;

/// One line of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What is sold; nothing for an order without items, which is one line.
    pub sku: Option<String>,
    /// Minor units, all pieces together.
    pub amount: i64,
}

/// What is asked about an order.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which order.
    pub order: OrderKey,
    /// Who earns.
    pub user_id: UserId,
    /// Its lines.
    pub lines: Vec<Line>,
    /// What the tables say, which were read together with the order.
    pub listed: Quote,
}

/// The rates of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Of each line, in their order.
    pub rates: Vec<Rate>,
    /// Of who earns.
    pub factor: Factor,
}

/// Why there are no rates.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No answer: it is away, or stumbles over what was asked.
    #[error("{0}")]
    Silent(String),
    /// No answer for now, or none for us, whatever is asked: later there may be one.
    #[error("{0}")]
    NotNow(String),
    /// An answer that makes no sense, or a refusal of what was asked: asked the same, it will say the same.
    #[error("{0}")]
    Wrong(String),
}

/// A source of rates. It may be slow: who asks holds no transaction and no connection, and a lock that is renewed.
#[async_trait]
pub trait RateSource: Send + Sync {
    /// A quote for each question, in their order, with a rate for each of its lines.
    ///
    /// # Errors
    /// When there is no answer in time, or none that makes sense.
    async fn quotes(&self, questions: &[Question]) -> Result<Vec<Quote>, SourceError>;
}

/// Whether the source that is configured is asked over the network, and may take long.
pub(super) fn is_outside(app: &App) -> bool {
    app.config.rates.url.is_some() && app.rates_http.is_some()
}

/// The source that is configured.
pub(super) fn source(app: &App) -> Box<dyn RateSource + '_> {
    match (&app.config.rates.url, &app.rates_http) {
        (Some(url), Some(http)) => {
            let room = app.waiting.enter(url.clone());
            Box::new(HttpRates { http, url, config: &app.config.rates, room })
        }
        _ => Box::new(ListedRates),
    }
}
