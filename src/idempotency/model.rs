//! A request with a key, and the answer that is kept for it.

use crate::ids::MerchantId;

/// A request that must have one effect: whose it is, under which key, and what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Whose key: merchants do not meet.
    pub merchant_id: MerchantId,
    /// The key, as it is kept: that of a browser bears a mark which no caller can write.
    pub key: String,
    /// SHA-256 of all that makes the request what it is.
    pub request_hash: [u8; 32],
}

impl RequestKey {
    /// The key of the lock that a request takes while it runs.
    #[must_use]
    pub fn lock_key(&self) -> String {
        format!("lock:REQUEST:{}:{}", self.merchant_id, self.key)
    }
}

/// An answer as it goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This very request was answered.
    Answer(Answer),
    /// The key belongs to another request.
    OtherRequest,
}

/// What a use case needs to keep its outcome with its effect, without knowing how answers are written.
#[derive(Clone, Debug)]
pub struct Keep<T> {
    /// The request.
    pub request: RequestKey,
    /// How its outcome reads; the same outcome gives the same bytes.
    pub render: fn(T) -> Answer,
}

/// A row to be written with its effect.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The request.
    pub request: RequestKey,
    /// Its answer.
    pub answer: Answer,
}

impl<T> Keep<T> {
    /// The row for an outcome.
    pub fn row(&self, outcome: T) -> Kept {
        Kept { request: self.request.clone(), answer: (self.render)(outcome) }
    }
}

impl Kept {
    /// The answer's status, as the column has it.
    #[must_use]
    pub fn status(&self) -> i16 {
        i16::try_from(self.answer.status).unwrap_or(i16::MAX)
    }
}
