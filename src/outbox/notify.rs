//! One HTTP notification: asked of the endpoint, and its answer read as far as it matters.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::{Instant, timeout};

use super::model::{Attempt, Delivery, event_id};
use super::signature::Signer;
use crate::infra::crash::effect;
use crate::infra::outside::{Outside, read_url};
use crate::infra::text::cut;

/// Bytes of an answer that are read at most.
const MAX_ANSWER: usize = 64 * 1024;
/// How long it is read at most: whoever does not come to an end keeps a place from others.
const ANSWER_READ_WITHIN: Duration = Duration::from_secs(1);
/// Characters of it that are kept.
const MAX_KEPT: usize = 500;

/// What an endpoint said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has the event.
    Taken,
    /// It wants nothing more, ever: 410.
    Gone,
    /// Anything else, with the seconds that it asks to be left alone.
    Failed(Option<time::Duration>),
}

/// Tells an endpoint of an event, and waits no longer than `within` for all of its answer.
pub(super) async fn notify(
    http: &Client,
    outside: &Outside,
    (url, delivery, signer): (&str, &Delivery, &Signer),
    within: Duration,
    now: OffsetDateTime,
) -> (Answer, Attempt) {
    let (began, until) = (Instant::now(), Instant::now() + within);
    let attempt = |status, error, answer| Attempt {
        at: now,
        to: Some(url.to_owned()),
        status,
        latency_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        error,
        answer,
    };
    // A host that is an address is looked up nowhere, so it is judged here; names are by whoever looks them up.
    if let Err(refusal) = read_url(outside, url) {
        return (Answer::Failed(None), attempt(None, Some(refusal), None));
    }
    let id = event_id(delivery.event_id);
    let request = http
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-timestamp", now.unix_timestamp())
        .header("webhook-signature", signer.sign(&id, now, &delivery.body))
        .header("webhook-id", id)
        .body(delivery.body.clone());
    let sent = effect!("outbox.notify", timeout(within, request.send()).await);
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return (Answer::Failed(None), attempt(None, Some(reason(&error)), None)),
        Err(_) => {
            let error = format!("no answer within {} s", within.as_secs_f64());
            return (Answer::Failed(None), attempt(None, Some(error), None));
        }
    };
    let text = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let (status, asked) = (response.status(), text.and_then(|text| asked_pause(text, now)));
    let body = read(response, until.min(Instant::now() + ANSWER_READ_WITHIN)).await;
    let error = (!status.is_success()).then(|| format!("it answered {status}"));
    let answer = match status {
        status if status.is_success() => Answer::Taken,
        StatusCode::GONE => Answer::Gone,
        _ => Answer::Failed(asked),
    };
    (answer, attempt(Some(status.as_u16()), error, Some(kept(&body)).filter(|body| !body.is_empty())))
}

/// What it says, as far as it is read: its status was heard already.
async fn read(mut response: Response, until: Instant) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_ANSWER {
        let Ok(Ok(Some(chunk))) = tokio::time::timeout_at(until, response.chunk()).await else { break };
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - body.len())]);
    }
    body
}

/// Seconds, or a date.
fn asked_pause(text: &str, now: OffsetDateTime) -> Option<time::Duration> {
    let pause = match text.parse::<u32>() {
        Ok(seconds) => time::Duration::seconds(seconds.into()),
        Err(_) => OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822).ok()? - now,
    };
    Some(pause).filter(|pause| pause.is_positive())
}

/// Text that a person may read and a database keep.
fn kept(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_KEPT)]);
    cut(&text, MAX_KEPT)
}

/// The innermost reason, which says what happened; the outer ones say that a request failed.
fn reason(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let what = if error.is_connect() { "no connection" } else { "no answer" };
    format!("{what}: {innermost}").chars().take(MAX_KEPT).collect()
}

#[cfg(test)]
mod fuzz;
