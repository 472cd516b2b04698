//! `Idempotency-Key`: one effect for one key, and the first answer again, byte for byte.
//!
//! A request with a key takes the lock on it, looks for a kept answer, and only then runs, all in one owned task: a
//! client that hangs up leaves a run behind that still keeps its answer. Without any lock the key's row decides, which
//! commits with the effect. Without the header nothing of this happens.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::Edge;
use super::error::Problem;
use super::extract::json_bytes;
use crate::app::App;
use crate::idempotency::{self, Answer, Found, Keep, RequestKey};
use crate::infra::body;
use crate::infra::db::DbError;
use crate::infra::lock::Scene;
use crate::infra::request::{request_id, within};
use crate::merchants::{Caller, KeyKind};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The code of a request whose key is in use at this moment.
const IN_PROGRESS: &str = "REQUEST_IN_PROGRESS";
/// Characters of a key at most.
const MAX_KEY: usize = 255;

/// For the document: the header of every merchant's POST.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it stands in the document only; the header is read by hand")]
pub(super) struct IdempotencyKey {
    /// Your name of this request, quoted or bare, unique among all of your requests of 72 hours by this kind of
    /// credential. The same request (method, path and body) with the same key gets the first answer again, byte for
    /// byte, with `Idempotent-Replayed: true`; only 2xx and 402 are kept, and for a publishable key only with the
    /// attempt that it made: its link, or the channel's refusal.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        max_length = 255,
        example = "8e03978e-40d5-43dd-bc93-6894a57f9324"
    )]
    idempotency_key: Option<String>,
}

/// A JSON body, and what makes its request recognisable where it has a key.
#[derive(Debug)]
pub(super) struct Keyed<T> {
    pub(super) body: T,
    pub(super) key: GivenKey,
}

/// The key of a request, if it has one, and what the request said; whose it is comes with the credential.
#[derive(Debug)]
pub(super) struct GivenKey(Option<Said>);

#[derive(Debug)]
struct Said {
    key: String,
    method: String,
    path: String,
    body: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Edge> for Keyed<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _edge: &Edge) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let key = key_of(&parts.headers)?;
        let bytes = json_bytes(&parts, body).await?;
        let value = body::parse(&bytes)?;
        let said = key.map(|key| Said {
            key,
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            body: bytes,
        });
        Ok(Self { body: value, key: GivenKey(said) })
    }
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().and_then(unquoted).filter(|_| values.next().is_none());
    key.map(Some).ok_or_else(|| {
        Problem::invalid(
            "Idempotency-Key",
            "expected one key of 1 to 255 visible ASCII characters, quoted or bare; quoted also with spaces",
        )
    })
}

/// The key within a string of RFC 8941, or a bare one.
fn unquoted(text: &str) -> Option<String> {
    let key = match text.strip_prefix('"') {
        None => text.to_owned(),
        Some(rest) => unescaped(rest.strip_suffix('"')?)?,
    };
    let is_unclear = !text.starts_with('"') && key.contains(['"', ' ']);
    let is_key = (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    (is_key && !is_unclear).then_some(key)
}

/// `\"` and `\\` stand for what they hide; nothing else is hidden.
fn unescaped(text: &str) -> Option<String> {
    let (mut key, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => return None,
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
    Some(key)
}

impl GivenKey {
    /// The key as this caller's. Anybody may know a publishable key: what comes with it never meets a key that the
    /// backend gave. Each has its mark in front, a word and a space; without one is what the backend gave without a space.
    pub(super) fn of(self, caller: &Caller) -> Option<RequestKey> {
        let Said { key, method, path, body } = self.0?;
        // None of the first three can hold a line break, so no two requests read the same.
        let head = format!("{}\n{method}\n{path}\n", caller.kind);
        let request_hash = Sha256::new().chain_update(head).chain_update(body).finalize().into();
        let key = match caller.kind {
            KeyKind::Secret if key.contains(' ') => format!("sk {key}"),
            KeyKind::Secret => key,
            KeyKind::Publishable => format!("pk {key}"),
        };
        Some(RequestKey { merchant_id: caller.merchant_id.clone(), key, request_hash })
    }
}

impl Edge {
    /// Runs a use case as an owned task, once for each key, and answers with what `render` makes of its outcome.
    pub(super) async fn once<T, E, F>(
        &self,
        key: Option<RequestKey>,
        render: fn(T) -> Answer,
        use_case: impl FnOnce(App, Option<Keep<T>>) -> F,
    ) -> Result<Response, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        Problem: From<E>,
    {
        let Some(request) = key else {
            return Ok(respond(render(self.owned(|app| use_case(app, None)).await?)));
        };
        // Boxed: a use case is large, and would be copied from wrapper to wrapper on the stack.
        let run = Box::pin(use_case(self.app.clone(), Some(Keep { request: request.clone(), render })));
        let work = run_once(self.app.clone(), request, async move { Ok(render(run.await?)) });
        // A refusal that is kept names the request that met it.
        self.app.tasks.run(within(request_id(), work)).await?
    }
}

async fn run_once(
    app: App,
    request: RequestKey,
    run: impl Future<Output = Result<Answer, Problem>>,
) -> Result<Response, Problem> {
    let lock = app.locks.acquire(Scene::Request, &request.lock_key()).await;
    if let Some(found) = look(&app, &request).await? {
        return again(found);
    }
    let Ok(_lock) = lock else { return Err(in_progress()) };
    match run.await {
        Ok(answer) => Ok(respond(answer)),
        // A refusal that was kept is this very one. Besides, another instance may have been faster where there is no
        // lock, or our own commit's answer was lost: what is kept is what happened.
        Err(problem) => match look(&app, &request).await {
            Ok(Some(Found::Answer(answer))) if answer == problem.clone().into_answer() => Err(problem),
            // It was carried out, and refused without meeting the row of the other request: that is what came of it.
            Ok(Some(Found::OtherRequest)) if is_outcome(&problem) => Err(problem),
            Ok(Some(found)) => again(found),
            Ok(None) | Err(_) => Err(problem),
        },
    }
}

/// Whether it is the request's own word; not that it failed, or that another one with its key was faster.
fn is_outcome(problem: &Problem) -> bool {
    problem.status < 500 && problem.code != IN_PROGRESS
}

async fn look(app: &App, request: &RequestKey) -> Result<Option<Found>, DbError> {
    app.db.retrying(|| async { idempotency::find(&mut app.db.conn().await?, request).await }).await
}

/// The answer that is kept for this request; for another one with its key, the refusal.
fn again(found: Found) -> Result<Response, Problem> {
    match found {
        Found::Answer(answer) => Ok(replay(answer)),
        Found::OtherRequest => Err(reused()),
    }
}

/// An answer with a JSON body.
pub(super) fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    Answer { status: status.as_u16(), body: serde_json::to_vec(body).unwrap_or_default() }
}

/// An answer as a response.
pub(super) fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
    (status, [content_type], Body::from(answer.body)).into_response()
}

fn replay(answer: Answer) -> Response {
    let mut response = respond(answer);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

pub(super) fn in_progress() -> Problem {
    let detail = "the first request with this Idempotency-Key is still running; repeat the same request";
    Problem::new(StatusCode::CONFLICT, IN_PROGRESS, detail).retry_after(1)
}

fn reused() -> Problem {
    let detail = "another request was made with this Idempotency-Key; nothing was done";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "IDEMPOTENCY_KEY_REUSED", detail)
}

#[cfg(test)]
mod fuzz;
