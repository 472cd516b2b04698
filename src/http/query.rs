//! What is said in a query to a route that knows none is refused: nothing is done as if it had not been said. Routes that
//! know parameters refuse the others by themselves ([`super::extract::Params`]), behind the credential; here nobody is asked
//! who they are.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::error::Problem;

/// Whether routes under that tag take a query to the letter. Browsers, channels and probes may add what they like to the
/// address that they were given.
pub(super) fn is_taken_to_the_letter(tag: &str) -> bool {
    !matches!(tag, "pay" | "webhooks" | "sandbox" | "health")
}

/// The routes that refuse a query, by their documentation.
#[derive(Clone, Debug)]
pub(super) struct Refusing(Arc<HashSet<(Method, String)>>);

impl Refusing {
    pub(super) fn of(document: &OpenApi) -> Self {
        let routes = document.paths.paths.iter().flat_map(|(path, item)| {
            let by_method = [
                (Method::GET, &item.get),
                (Method::HEAD, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::DELETE, &item.delete),
            ];
            let refusing =
                by_method.into_iter().filter(|(_, operation)| operation.as_ref().is_some_and(refuses));
            refusing.map(|(method, _)| (method, path.clone()))
        });
        Self(Arc::new(routes.collect()))
    }

    fn includes(&self, request: &Request) -> bool {
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        path.is_some_and(|path| self.0.contains(&(request.method().clone(), path.to_owned())))
    }
}

fn refuses(operation: &Operation) -> bool {
    let tag = operation.tags.iter().flatten().next();
    let mut parameters = operation.parameters.iter().flatten();
    tag.is_some_and(|tag| is_taken_to_the_letter(tag))
        && !parameters.any(|one| matches!(one, RefOr::T(known) if known.parameter_in == ParameterIn::Query))
}

/// Lets a request through that says nothing in its query, or says it to a route that hears it.
pub(super) async fn refuse_unknown(
    State(refusing): State<Refusing>,
    request: Request,
    next: Next,
) -> Response {
    let says_something = request.uri().query().is_some_and(|query| !query.is_empty());
    if says_something && refusing.includes(&request) {
        let detail = "expected nothing behind the `?`: this route knows no parameters there";
        return Problem::invalid("query", detail).into_response();
    }
    next.run(request).await
}
