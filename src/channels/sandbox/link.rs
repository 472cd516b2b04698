//! The way from the adapter to its gateway: in this process, or in another one over HTTP.

use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;

use crate::channels::{CallError, text};
use crate::infra::clock::Clock;

use super::deliver::read_at_most;
use super::gateway::Gateway;
use super::protocol::{Call, Envelope, Outcome};
use super::signature::{HEADER, Keys};

/// More than the largest answer, a full page of a statement.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Where the gateway is.
#[derive(Clone, Debug)]
pub(super) enum Link {
    Local(Gateway),
    Remote(Remote),
}

/// A gateway in another process.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) base_url: String,
    pub(super) keys: Keys,
    pub(super) clock: Clock,
    pub(super) http: reqwest::Client,
}

impl Link {
    /// Makes a call and waits for its answer. Only an answer in form can be a refusal; everything else leaves
    /// the call in the dark, also a 4xx, which may come from anything on the way.
    pub(super) async fn call<C: Call>(&self, call: C) -> Result<C::Answer, CallError> {
        let outcome = match self {
            Self::Local(gateway) => gateway.answer(call).await.map_err(silent)?,
            // Boxed, so that calls within the process do not carry the room that an HTTP request needs.
            Self::Remote(remote) => Box::pin(remote.call(call)).await?,
        };
        match outcome {
            Outcome::Done { answer } => Ok(answer),
            Outcome::Refused { code, message } => Err(text::refusal(&code, &message).into()),
        }
    }
}

impl Remote {
    async fn call<C: Call>(&self, call: C) -> Result<Outcome<C::Answer>, CallError> {
        let url = format!("{}/sandbox/gateway/{}", self.base_url, C::OPERATION);
        let envelope = Envelope { operation: C::OPERATION.to_owned(), call };
        let body = serde_json::to_vec(&envelope).map_err(silent)?;
        let signature = self.keys.sign(&body, self.clock.now());

        let request =
            self.http.post(url).header(CONTENT_TYPE, "application/json").header(HEADER, signature).body(body);
        let response = request.send().await.map_err(silent)?;
        if response.status() != StatusCode::OK {
            return Err(CallError::Silent(format!("HTTP {}", response.status().as_u16())));
        }
        let answer = read_at_most(response, MAX_ANSWER_BYTES).await.map_err(silent)?;
        let answer = answer.ok_or_else(|| CallError::Silent("the answer is too long".to_owned()))?;
        serde_json::from_slice(&answer).map_err(silent)
    }
}

/// The cause in its own words; they go into logs, never to the merchant.
fn silent(error: impl std::error::Error) -> CallError {
    CallError::Silent(error.to_string())
}
