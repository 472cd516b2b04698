//! The tables: the rule of a thing, else the merchant's, else nothing; the factor of the user's level, else 1.

use async_trait::async_trait;

use super::{Question, Quote, RateSource, SourceError};

/// The tables, which were read together with the orders: so this source costs nothing more.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedRates;

#[async_trait]
impl RateSource for ListedRates {
    async fn quotes(&self, questions: &[Question]) -> Result<Vec<Quote>, SourceError> {
        Ok(questions.iter().map(|question| question.listed.clone()).collect())
    }
}
