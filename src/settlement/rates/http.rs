//! An endpoint of the operator, asked by `POST` for many orders at once:
//! `{"orders": [{"merchant_id", "order_no", "user_id", "lines": [{"sku", "amount"}]}]}` is answered by
//! `{"orders": [{"rates": ["0.05"], "factor": "1.2"}]}`, one for each order and a rate for each line, in their order.
//!
//! Where it is, is the operator's own word, like where the database is: private networks are allowed.

use async_trait::async_trait;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use super::{Question, Quote, RateSource, SourceError};
use crate::config::RatesConfig;
use crate::infra::tasks;
use crate::orders::OrderKey;
use crate::settlement::terms::{Factor, Rate};

/// Bytes of an answer at most: five hundred orders of a hundred lines have less.
const MAX_ANSWER: usize = 2 << 20;

/// The endpoint.
#[derive(Debug)]
pub(super) struct HttpRates<'a> {
    pub(super) http: &'a reqwest::Client,
    pub(super) url: &'a str,
    pub(super) config: &'a RatesConfig,
    /// A place among those who wait for it; nothing when too many do.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

#[derive(Serialize)]
struct AskedLine<'a> {
    sku: Option<&'a str>,
    amount: i64,
}

#[derive(Serialize)]
struct AskedOrder<'a> {
    merchant_id: &'a str,
    order_no: &'a str,
    user_id: &'a str,
    lines: Vec<AskedLine<'a>>,
}

#[derive(Serialize)]
struct Asked<'a> {
    orders: Vec<AskedOrder<'a>>,
}

/// Answers come in the order of their questions; one that says of which order it is must be of that one.
#[derive(Deserialize)]
struct AnsweredOrder {
    merchant_id: Option<String>,
    order_no: Option<String>,
    rates: Vec<Rate>,
    factor: Factor,
}

impl AnsweredOrder {
    fn is_of(&self, order: &OrderKey) -> bool {
        let said =
            [(&self.merchant_id, order.merchant_id.as_str()), (&self.order_no, order.order_no.as_str())];
        said.into_iter().all(|(said, asked)| said.as_deref().is_none_or(|said| said == asked))
    }
}

#[derive(Deserialize)]
struct Answered {
    orders: Vec<AnsweredOrder>,
}

impl<'a> From<&'a Question> for AskedOrder<'a> {
    fn from(question: &'a Question) -> Self {
        Self {
            merchant_id: question.order.merchant_id.as_str(),
            order_no: question.order.order_no.as_str(),
            user_id: question.user_id.as_str(),
            lines: question
                .lines
                .iter()
                .map(|line| AskedLine { sku: line.sku.as_deref(), amount: line.amount })
                .collect(),
        }
    }
}

#[async_trait]
impl RateSource for HttpRates<'_> {
    async fn quotes(&self, questions: &[Question]) -> Result<Vec<Quote>, SourceError> {
        if self.room.is_none() {
            return Err(SourceError::NotNow("too many wait for it already".to_owned()));
        }
        let asked = Asked { orders: questions.iter().map(AskedOrder::from).collect() };
        let bytes = tasks::away_when_long(tokio::time::timeout(self.config.deadline, self.ask(&asked)));
        let bytes =
            bytes.await.map_err(|_| SourceError::Silent("no answer before the deadline".to_owned()))??;
        read(&bytes, questions)
    }
}

impl HttpRates<'_> {
    async fn ask(&self, asked: &Asked<'_>) -> Result<Vec<u8>, SourceError> {
        let unreachable =
            |error: reqwest::Error| SourceError::Silent(format!("no answer ({})", error.without_url()));
        let mut request = self.http.post(self.url).json(asked);
        if let Some(token) = &self.config.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            let why = format!("it answered {status}");
            return Err(match status.as_u16() {
                // Only these speak of what was asked.
                400 | 413 | 422 => SourceError::Wrong(why),
                // It gave up over it, or is not well.
                408 | 500.. => SourceError::Silent(why),
                // Whatever else it refuses, it refuses us, and not these orders.
                _ => SourceError::NotNow(why),
            });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(SourceError::Wrong(format!("an answer of more than {MAX_ANSWER} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// One quote for each question, and one rate for each line: anything else is no answer.
fn read(bytes: &[u8], questions: &[Question]) -> Result<Vec<Quote>, SourceError> {
    let answered: Answered = serde_json::from_slice(bytes)
        .map_err(|error| SourceError::Wrong(format!("not such an answer: {error}")))?;
    if answered.orders.len() != questions.len() {
        let (orders, wanted) = (answered.orders.len(), questions.len());
        return Err(SourceError::Wrong(format!("{orders} orders are answered where {wanted} were asked")));
    }
    let quote = |(order, question): (AnsweredOrder, &Question)| {
        let asked = question.order.member();
        if !order.is_of(&question.order) {
            return Err(SourceError::Wrong(format!("another order is answered in the place of {asked}")));
        }
        let (rates, lines) = (order.rates.len(), question.lines.len());
        if rates != lines {
            return Err(SourceError::Wrong(format!("{rates} rates for {lines} lines of {asked}")));
        }
        Ok(Quote { rates: order.rates, factor: order.factor })
    };
    answered.orders.into_iter().zip(questions).map(quote).collect()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::super::Line;
    use super::*;

    fn question() -> Question {
        let order = OrderKey { merchant_id: "m".parse().unwrap(), order_no: "A".parse().unwrap() };
        let lines = vec![Line { sku: Some("TEA".into()), amount: 10 }, Line { sku: None, amount: 5 }];
        let listed = Quote { rates: Vec::new(), factor: Factor::ONE };
        Question { order, user_id: "u".parse().unwrap(), lines, listed }
    }

    #[test]
    fn only_a_whole_answer_counts() {
        let right = r#"{"orders":[{"rates":["0.05","1"],"factor":"1.25","note":"more is no harm"}]}"#;
        let quotes = read(right.as_bytes(), &[question()]).unwrap();
        assert_eq!(quotes[0].rates.len(), 2);
        let named = r#"{"orders":[{"merchant_id":"m","order_no":"A","rates":["0.05","1"],"factor":"1"}]}"#;
        assert!(read(named.as_bytes(), &[question()]).is_ok());
        for wrong in [
            "",
            "[]",
            r#"{"orders":[]}"#,
            r#"{"orders":[{"rates":["0.05"],"factor":"1"}]}"#,
            r#"{"orders":[{"rates":["0.05","0.1","0.1"],"factor":"1"}]}"#,
            r#"{"orders":[{"rates":["0.05","1.1"],"factor":"1"}]}"#,
            r#"{"orders":[{"rates":["0.05","-0.1"],"factor":"1"}]}"#,
            r#"{"orders":[{"rates":["0.05","0.1"],"factor":"0"}]}"#,
            r#"{"orders":[{"rates":["0.05","0.1"],"factor":"11"}]}"#,
            r#"{"orders":[{"rates":[0.05,0.1],"factor":1}]}"#,
            r#"{"orders":[{"rates":["NaN","0.1"],"factor":"1"}]}"#,
            r#"{"orders":[{"rates":["0.05","0.1"]}]}"#,
            r#"{"orders":[{"order_no":"B","rates":["0.05","0.1"],"factor":"1"}]}"#,
            r#"{"orders":[{"merchant_id":"other","order_no":"A","rates":["0.05","0.1"],"factor":"1"}]}"#,
        ] {
            assert!(read(wrong.as_bytes(), &[question()]).is_err(), "{wrong}");
        }
    }
}
