//! Who calls: merchants by their keys, operators by their tokens.

use async_trait::async_trait;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::Problem;
use super::{Edge, admin, overload};
use crate::admin_log;
use crate::channels::sandbox::{Deed, NotAdmitted, Operators};
use crate::config::{AdminConfig, Role};
use crate::merchants::{self, Caller, KeyKind, Recalled};

fn unauthenticated(expected: &str) -> Problem {
    let detail = format!("expected Authorization: Bearer {expected}; nothing was done");
    Problem::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", detail)
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail)
}

/// The token of `Authorization: Bearer …`.
fn bearer(header: Option<&str>) -> Option<&str> {
    let (scheme, token) = header?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

fn bearer_of(parts: &Parts) -> Option<&str> {
    bearer(parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()))
}

/// A merchant, by either kind of key.
#[derive(Clone, Debug)]
pub(super) struct AnyKey(pub(super) Caller);

impl FromRequestParts<Edge> for AnyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        let key = bearer_of(parts).ok_or_else(|| unauthenticated("sk_… or pk_…"))?;
        match caller_of(Some(parts), edge, key).await? {
            Some(caller) => Ok(Self(caller)),
            None if identify_parts(parts, edge).is_ok() => {
                Err(forbidden("this route needs a merchant's key, not an operator's token; nothing was done"))
            }
            None => Err(unauthenticated("a valid key")),
        }
    }
}

/// A merchant's backend, by its secret key.
#[derive(Clone, Debug)]
pub(super) struct SecretKey(pub(super) Caller);

impl FromRequestParts<Edge> for SecretKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        let AnyKey(caller) = AnyKey::from_request_parts(parts, edge).await?;
        match caller.kind {
            KeyKind::Secret => Ok(Self(caller)),
            KeyKind::Publishable => Err(forbidden("this route needs a secret key (sk_…); nothing was done")),
        }
    }
}

/// Who among the operators calls.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    pub(super) name: String,
    pub(super) role: Role,
}

/// Finds the token among all, in the same time whichever it is.
fn identify(config: &AdminConfig, authorization: Option<&str>) -> Option<Admin> {
    // Digests are of equal length, so the comparison does not tell a token's length either.
    let given = Sha256::digest(bearer(authorization)?.as_bytes());
    let mut found = None;
    for token in &config.tokens {
        let expected = Sha256::digest(token.token.expose_secret().as_bytes());
        if bool::from(given.ct_eq(&expected)) {
            found = Some(Admin { name: token.name.clone(), role: token.role });
        }
    }
    found
}

fn identify_parts(parts: &Parts, edge: &Edge) -> Result<Admin, Problem> {
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    identify(&edge.app.config.admin, authorization).ok_or_else(|| unauthenticated("an operator's token"))
}

/// Whose key this is. What has to be looked up waits for the database in a place of merchants, also where its request has none
/// (yet): strangers are so no more than those may be, and with what is no key they do not wait at all. Nor does a merchant
/// wait for a place who was one a moment ago.
async fn caller_of(parts: Option<&Parts>, edge: &Edge, key: &str) -> Result<Option<Caller>, Problem> {
    match merchants::recall(&edge.app, &edge.keys, key) {
        Recalled::Known(caller) => Ok(caller),
        Recalled::Unknown(key) => {
            let needs_no_place = key.was_known || parts.is_some_and(overload::has_place);
            let look_up = merchants::look_up(&edge.app, &edge.keys, key);
            match needs_no_place {
                true => Ok(look_up.await?),
                false => Ok(overload::in_a_place(edge, look_up).await??),
            }
        }
    }
}

/// The operator who calls; a merchant's key is known here, and of the wrong kind.
async fn admin_of(parts: &Parts, edge: &Edge) -> Result<Admin, Problem> {
    let unknown = match identify_parts(parts, edge) {
        Ok(admin) => return Ok(admin),
        Err(unknown) => unknown,
    };
    let Some(key) = bearer_of(parts) else { return Err(unknown) };
    match caller_of(Some(parts), edge, key).await? {
        Some(_) => {
            Err(forbidden("this route needs an operator's token, not a merchant's key; nothing was done"))
        }
        None => Err(unknown),
    }
}

/// Anyone who may look.
#[derive(Clone, Debug)]
pub(super) struct Viewer;

impl FromRequestParts<Edge> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        admin_of(parts, edge).await.map(|_| Self)
    }
}

/// Anyone who may change things.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) Admin);

impl FromRequestParts<Edge> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        let admin = admin_of(parts, edge).await?;
        match admin.role {
            Role::Operator => Ok(Self(admin)),
            Role::Viewer => Err(forbidden("this route needs the role operator; nothing was done")),
        }
    }
}

/// For the sandbox, whose routes are outside this edge.
#[async_trait]
impl Operators for Edge {
    async fn admit(&self, authorization: Option<&str>, deed: Option<Deed>) -> Result<(), NotAdmitted> {
        let key = bearer(authorization).ok_or(NotAdmitted::Unknown)?;
        let Some(admin) = identify(&self.app.config.admin, authorization) else {
            let caller = caller_of(None, self, key).await.map_err(|_| NotAdmitted::Unavailable)?;
            return Err(caller.map_or(NotAdmitted::Unknown, |_| NotAdmitted::Insufficient));
        };
        if admin.role != Role::Operator {
            return Err(NotAdmitted::Insufficient);
        }
        let Some((action, target)) = deed else { return Ok(()) };
        let entry = admin::entry(admin, action, target, None);
        admin_log::append(&self.app, &entry).await.map_err(|_| NotAdmitted::Unavailable)
    }
}
