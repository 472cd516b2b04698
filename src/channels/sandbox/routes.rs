//! The sandbox over HTTP: for machines, for remote adapters, for operators; the cashier's pages are next door.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{FromRef, State};
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::routing::post;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::books::TradeView;
use super::cashier::{PayOptions, Receipt};
use super::faults::{ActiveFault, NewFault};
use super::gateway::{Gateway, Refused};
use super::pages;
use super::problem::{JsonBody, Problem, RawBody, TradeId, parse};
use super::protocol::{self, Call, Envelope, Outcome};
use crate::ids::PayOrderId;

/// Why a caller may not order faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// Nobody knows the credential.
    Unknown,
    /// It is known, and allows something else.
    Insufficient,
    /// It cannot be told, or not be written down, now.
    Unavailable,
}

/// What an operator is about to change: its name in the admin log, and to what it is done.
pub type Deed = (&'static str, String);

/// The operators of the service around the sandbox, which stands above it and hands them in.
#[async_trait]
pub trait Operators: Send + Sync {
    /// Lets an operator pass, by an `Authorization` header. A deed is written down before it is done.
    async fn admit(&self, authorization: Option<&str>, deed: Option<Deed>) -> Result<(), NotAdmitted>;
}

/// What handlers reach.
#[derive(Clone)]
pub(super) struct Edge {
    gateway: Gateway,
    operators: Arc<dyn Operators>,
}

impl FromRef<Edge> for Gateway {
    fn from_ref(edge: &Edge) -> Self {
        edge.gateway.clone()
    }
}

/// Everything below `/sandbox`.
pub fn routes(gateway: Gateway, operators: Arc<dyn Operators>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(pay))
        .routes(routes!(decline))
        .routes(routes!(show_trade))
        .routes(routes!(set_fault, list_faults, clear_faults))
        .merge(adapter_routes())
        .merge(pages::routes())
        .with_state(Edge { gateway, operators })
}

/// The gateway's own interface, which only a remote adapter speaks.
fn adapter_routes() -> OpenApiRouter<Edge> {
    fn route<C: Call>(router: OpenApiRouter<Edge>) -> OpenApiRouter<Edge> {
        router.route(&format!("/sandbox/gateway/{}", C::OPERATION), post(carry_out::<C>))
    }
    let router = OpenApiRouter::new();
    let router = route::<protocol::Create>(router);
    let router = route::<protocol::Query>(router);
    let router = route::<protocol::Close>(router);
    let router = route::<protocol::Refund>(router);
    let router = route::<protocol::QueryRefund>(router);
    let router = route::<protocol::Payout>(router);
    let router = route::<protocol::QueryPayout>(router);
    route::<protocol::Statement>(router)
}

/// Checks the signature over the raw bytes, then carries the call out.
async fn carry_out<C: Call>(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<Outcome<C::Answer>>, Problem> {
    gateway.know_time().await?;
    let signed = gateway.keys().verify(&headers, &body, gateway.now());
    signed.map_err(|error| Problem::unauthenticated(&error.to_string()))?;

    let envelope: Envelope<C> = parse(&body)?;
    if envelope.operation != C::OPERATION {
        return Err(Problem::unauthenticated("this call was signed for another operation"));
    }
    Ok(Json(gateway.answer(envelope.call).await?))
}

/// Pay a sandbox trade, as the cashier's button does
///
/// Pressing again gives the same payment back. `force` pays a trade that is closed, declined or expired, and a
/// paid one a second time under a new number.
#[utoipa::path(
    post, path = "/sandbox/trades/{pay_order_id}/pay", tag = "sandbox",
    params(("pay_order_id" = PayOrderId, Path, description = "Our id of the attempt")),
    request_body = Option<PayOptions>,
    responses(
        (status = 200, description = "Paid", body = Receipt),
        (status = 404, description = "`TRADE_NOT_FOUND`", body = Problem),
        (status = 409, description = "`TRADE_CLOSED`, `TRADE_DECLINED`, `TRADE_EXPIRED`", body = Problem),
        (status = 422, description = "`VALIDATION_FAILED`", body = Problem),
    )
)]
async fn pay(
    State(gateway): State<Gateway>,
    TradeId(pay_order_id): TradeId,
    JsonBody(options): JsonBody<PayOptions>,
) -> Result<Json<Receipt>, Problem> {
    Ok(Json(gateway.pay(&pay_order_id, options).await?))
}

/// Decline a sandbox trade, as the cashier's button does
///
/// `force` sends the webhook of a failed payment also for a trade that is not open, and changes nothing else.
#[utoipa::path(
    post, path = "/sandbox/trades/{pay_order_id}/decline", tag = "sandbox",
    params(("pay_order_id" = PayOrderId, Path, description = "Our id of the attempt")),
    request_body = Option<PayOptions>,
    responses(
        (status = 200, description = "Declined; nothing was taken", body = Receipt),
        (status = 404, description = "`TRADE_NOT_FOUND`", body = Problem),
        (status = 409, description = "`TRADE_PAID`, `TRADE_CLOSED`, `TRADE_EXPIRED`", body = Problem),
        (status = 422, description = "`VALIDATION_FAILED`", body = Problem),
    )
)]
async fn decline(
    State(gateway): State<Gateway>,
    TradeId(pay_order_id): TradeId,
    JsonBody(options): JsonBody<PayOptions>,
) -> Result<Json<Receipt>, Problem> {
    Ok(Json(gateway.decline(&pay_order_id, options).await?))
}

/// What the sandbox's books say of a trade
#[utoipa::path(
    get, path = "/sandbox/trades/{pay_order_id}", tag = "sandbox",
    params(("pay_order_id" = PayOrderId, Path, description = "Our id of the attempt")),
    responses(
        (status = 200, description = "The trade, its payments, refunds and webhooks", body = TradeView),
        (status = 404, description = "`TRADE_NOT_FOUND`", body = Problem),
    )
)]
async fn show_trade(
    State(gateway): State<Gateway>,
    TradeId(pay_order_id): TradeId,
) -> Result<Json<TradeView>, Problem> {
    let view = gateway.view(&pay_order_id).await?;
    Ok(Json(view.ok_or(Refused::TradeNotFound)?))
}

/// Every fault that still waits for its calls.
#[derive(Debug, Serialize, ToSchema)]
struct FaultList {
    /// The oldest first.
    data: Vec<ActiveFault>,
}

/// Order a misbehaviour of the sandbox
///
/// Setting the same `op` and `fault` again replaces what was left of it. Pairs that make no sense are refused.
#[utoipa::path(
    put, path = "/sandbox/faults", tag = "sandbox", security(("admin_token" = [])),
    request_body = NewFault,
    responses(
        (status = 200, description = "All faults that wait now", body = FaultList),
        (status = 401, description = "`UNAUTHENTICATED`", body = Problem),
        (status = 422, description = "`VALIDATION_FAILED`", body = Problem),
    )
)]
async fn set_fault(
    State(edge): State<Edge>,
    headers: HeaderMap,
    JsonBody(fault): JsonBody<NewFault>,
) -> Result<Json<FaultList>, Problem> {
    let target = format!("{} {}, {} times", fault.op, fault.fault, fault.times.unwrap_or(1));
    admit(&edge, &headers, Some(("sandbox.set_fault", target))).await?;
    edge.gateway.set_fault(fault).await?;
    active_faults(&edge.gateway).await
}

/// The misbehaviours that still wait for their calls
#[utoipa::path(
    get, path = "/sandbox/faults", tag = "sandbox", security(("admin_token" = [])),
    responses(
        (status = 200, description = "All faults that wait now", body = FaultList),
        (status = 401, description = "`UNAUTHENTICATED`", body = Problem),
    )
)]
async fn list_faults(State(edge): State<Edge>, headers: HeaderMap) -> Result<Json<FaultList>, Problem> {
    admit(&edge, &headers, None).await?;
    active_faults(&edge.gateway).await
}

/// Let the sandbox behave again
#[utoipa::path(
    delete, path = "/sandbox/faults", tag = "sandbox", security(("admin_token" = [])),
    responses(
        (status = 200, description = "No fault waits", body = FaultList),
        (status = 401, description = "`UNAUTHENTICATED`", body = Problem),
    )
)]
async fn clear_faults(State(edge): State<Edge>, headers: HeaderMap) -> Result<Json<FaultList>, Problem> {
    admit(&edge, &headers, Some(("sandbox.clear_faults", "all".to_owned()))).await?;
    edge.gateway.clear_faults().await?;
    active_faults(&edge.gateway).await
}

async fn active_faults(gateway: &Gateway) -> Result<Json<FaultList>, Problem> {
    Ok(Json(FaultList { data: gateway.list_faults().await? }))
}

async fn admit(edge: &Edge, headers: &HeaderMap, deed: Option<Deed>) -> Result<(), Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    edge.operators.admit(header, deed).await.map_err(|error| match error {
        NotAdmitted::Unknown => {
            Problem::unauthenticated("faults are for operators: send `Authorization: Bearer <admin token>`")
        }
        NotAdmitted::Insufficient => Problem::forbidden("faults are for the role operator; nothing was done"),
        NotAdmitted::Unavailable => Problem::unavailable(),
    })
}
