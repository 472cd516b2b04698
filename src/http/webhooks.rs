//! `/webhooks/{channel}`: what channels tell us, answered in their own words.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Edge;
use super::error::Problem;
use super::extract::{PathId, read_body};
use crate::channels::{Acknowledgement, CallbackError, Reception};
use crate::webhooks::{self, Taken};

/// Takes a channel's callback in.
#[utoipa::path(post, path = "/webhooks/{channel}", tag = "webhooks",
    params(("channel" = String, Path, description = "The channel's name", example = "sandbox")),
    request_body(content = String, description = "The channel's own, signed", content_type = "application/json",
        example = json!({"event_id": "ev-1", "transaction_id": "txn_1", "out_trade_no": "po_06H8K2M4N6P8R0T2V4X6Z8B0D2",
            "total_fee": 1990, "currency": "CNY", "trade_status": "SUCCESS", "paid_at": "2026-11-21T10:00:00Z"})),
    responses(
        (status = 200, description = "Taken in, in the channel's own words",
         body = String, content_type = "text/plain", example = json!("SUCCESS")),
        (status = 400, description = "Not believed, or of a wrong amount or account: in the channel's own words",
         body = String, content_type = "text/plain", example = json!("FAIL")),
        (status = 404, body = Problem, description = "No such channel"),
        (status = 500, description = "Not taken in, in the channel's own words: send it again",
         body = String, content_type = "text/plain", example = json!("FAIL")),
    ))]
pub(super) async fn receive(
    State(edge): State<Edge>,
    PathId(channel_name): PathId<String>,
    request: Request,
) -> Result<Response, Problem> {
    let channel = edge.app.channels.get(&channel_name).cloned().ok_or_else(Problem::not_found)?;
    let (parts, body) = request.into_parts();
    let body = read_body(&parts, body).await?;
    let incoming = match webhooks::verify(&edge.app, channel.as_ref(), &parts.headers, &body) {
        Ok(incoming) => incoming,
        Err(error) => {
            let is_shown =
                error != CallbackError::Malformed || show_unreadable(&edge, channel.name(), body).await;
            let reception = if is_shown { Reception::Rejected } else { Reception::TryAgain };
            return Ok(answer(channel.acknowledge(reception)));
        }
    };
    let (app, key) = (edge.app.clone(), incoming.clone());
    let taken = edge.callbacks.join(key, || async move { webhooks::take_in(&app, &incoming).await }).await;
    let reception = match taken {
        Ok(Taken::Accepted) => Reception::Accepted,
        Ok(Taken::Rejected) => Reception::Rejected,
        Ok(Taken::NotNow) | Err(_) => Reception::TryAgain,
    };
    Ok(answer(channel.acknowledge(reception)))
}

/// Shows a person a callback that its channel has signed and nobody can read. `false` where that could not be done now.
async fn show_unreadable(edge: &Edge, channel: &'static str, body: Bytes) -> bool {
    let shown = edge.owned(|app| async move { webhooks::report_unreadable(&app, channel, &body).await });
    shown.await.is_ok()
}

fn answer(acknowledgement: Acknowledgement) -> Response {
    let status = StatusCode::from_u16(acknowledgement.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Body::from(acknowledgement.body.into_owned())).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(acknowledgement.content_type));
    response
}
