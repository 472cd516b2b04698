//! `/settlements`: give an order's commission, look at it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Edge;
use super::auth::SecretKey;
use super::error::Problem;
use super::extract::PathId;
use super::idempotency::{IdempotencyKey, Keyed, answer, respond};
use super::views::SettlementView;
use crate::idempotency::Answer;
use crate::ids::OrderNo;
use crate::orders::OrderKey;
use crate::settlement::{self, Settled, SettlementError};

/// Which order to settle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"order_no": "A-1"}))]
pub(super) struct SettlementBody {
    /// Its number.
    order_no: OrderNo,
}

/// Settles an order: its user's commission, once. A repeat gets the same settlement.
///
/// The commission is floor(Σ line amount × rate × factor × base / amount): a line's rate is the order's own, else that
/// of its sku's rule, else the merchant's, else 0; the base is what did not go back.
#[utoipa::path(post, path = "/settlements", tag = "settlements", request_body = SettlementBody,
    params(IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 201, body = SettlementView, description = "Settled; the user has the commission"),
        (status = 200, body = SettlementView, description = "It was settled already"),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`ORDER_NOT_PAID`, `ORDER_NOT_SETTLEABLE`, `LOCK_BUSY`"),
        (status = 503, body = Problem, description = "`RATES_UNAVAILABLE`: nothing was moved. With `Retry-After`, repeat the
         same request; without it the answer of the source of rates cannot be used, and an operator must look at it"),
    ))]
pub(super) async fn create(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Keyed { body, key }: Keyed<SettlementBody>,
) -> Result<Response, Problem> {
    let request = key.of(&caller);
    let order = OrderKey { merchant_id: caller.merchant_id, order_no: body.order_no };
    if request.is_some() {
        let settle =
            |app, keep: Option<_>| async move { settlement::settle(&app, &order, keep.as_ref()).await };
        return edge.once(request, created, settle).await;
    }
    let (app, equal) = (edge.app.clone(), order.clone());
    let mut is_first = false;
    let work = || {
        is_first = true;
        async move { settlement::settle(&app, &order, None).await.map_err(Arc::new) }
    };
    let settled = edge.settlements.join(equal, work).await?;
    let settled = settled.map_err(|error| Problem::from(error.as_ref()))?;
    // Whoever joins the request under way did not make it.
    Ok(respond(created(Settled { is_new: settled.is_new && is_first, ..settled })))
}

fn created(Settled { settlement, is_new }: Settled) -> Answer {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    answer(status, &SettlementView::from(settlement))
}

/// The settlement of an order.
#[utoipa::path(get, path = "/settlements/{order_no}", tag = "settlements",
    params(("order_no" = OrderNo, Path, description = "The order's number")),
    security(("secret_key" = [])),
    responses(
        (status = 200, body = SettlementView),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`, `NOT_FOUND`: it is not settled"),
    ))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(order_no): PathId<OrderNo>,
) -> Result<Json<SettlementView>, Problem> {
    let key = OrderKey { merchant_id: caller.merchant_id, order_no };
    Ok(Json(settlement::find(&edge.app, &key).await?.into()))
}

impl From<&SettlementError> for Problem {
    fn from(error: &SettlementError) -> Self {
        let conflict = StatusCode::CONFLICT;
        match error {
            SettlementError::OrderNotFound => Self::order_not_found(),
            SettlementError::UnknownMerchant | SettlementError::NotSettled | SettlementError::RunNotFound => {
                Self::not_found()
            }
            SettlementError::OrderNotPaid => {
                let detail = "the order is not paid, so nothing is earned by it yet; nothing was moved";
                Self::new(conflict, "ORDER_NOT_PAID", detail)
            }
            SettlementError::NotSettleable(why) => {
                Self::new(conflict, "ORDER_NOT_SETTLEABLE", format!("{why}; nothing was moved"))
            }
            SettlementError::RatesUnavailable(why) => {
                tracing::warn!(why, "the source of rates gave none");
                let detail =
                    "the source of rates gives none for now; nothing was moved, repeat the same request";
                Self::unavailable("RATES_UNAVAILABLE", detail).retry_after(2)
            }
            // Without a time to come back at: the same again helps nobody.
            SettlementError::RatesUnusable(why) => {
                tracing::error!(why, "the source of rates gave an answer that cannot be used");
                let detail = "the source of rates gave an answer that cannot be used; nothing was moved, an operator must \
                              look at it";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "RATES_UNAVAILABLE", detail)
            }
            SettlementError::UnknownSku(sku) => {
                let detail = "the merchant has no such thing on sale; nothing was changed";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "UNKNOWN_SKU", detail)
                    .field("sku", format!("there is no sku {sku}"))
            }
            SettlementError::Busy(_) => Self::busy("order"),
            SettlementError::Db(error) => Self::from(error),
        }
    }
}

impl From<SettlementError> for Problem {
    fn from(error: SettlementError) -> Self {
        Self::from(&error)
    }
}
