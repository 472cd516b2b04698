//! Every route, on one screen.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::SwaggerUi;

use super::error::Problem;
use super::{
    Edge, admin, ambiguity, events, health, observe, openapi, orders, overload, panicked, pay, query,
    refunds, settlements, usage, users, webhooks, withdrawals,
};

/// The routes that browsers may call from the pages of `CORS_ORIGINS`.
fn browser_routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new().routes(routes!(pay::url)).routes(routes!(pay::find))
}

fn other_routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new()
        .routes(routes!(orders::create))
        .routes(routes!(orders::find))
        .routes(routes!(orders::close))
        .routes(routes!(settlements::create))
        .routes(routes!(settlements::find))
        .routes(routes!(refunds::create))
        .routes(routes!(refunds::find))
        .routes(routes!(refunds::list))
        .routes(routes!(users::balances))
        .routes(routes!(users::entries))
        .routes(routes!(withdrawals::create, withdrawals::list))
        .routes(routes!(withdrawals::find))
        .routes(routes!(usage::create))
        .routes(routes!(usage::find))
        .routes(routes!(usage::progress))
        .routes(routes!(usage::confirm))
        .routes(routes!(usage::release))
        .routes(routes!(usage::list))
        .routes(routes!(webhooks::receive))
        .routes(routes!(admin::merchants::create, admin::merchants::list))
        .routes(routes!(admin::merchants::rotate, admin::merchants::list_keys))
        .routes(routes!(admin::skus::set, admin::skus::list))
        .routes(routes!(admin::usage::set_product, admin::usage::list_products))
        .routes(routes!(admin::usage::list_holds))
        .routes(routes!(admin::users::balances))
        .routes(routes!(admin::settlements::set_rule, admin::settlements::list_rules))
        .routes(routes!(admin::settlements::set_level, admin::settlements::list_levels))
        .routes(routes!(admin::settlements::begin))
        .routes(routes!(admin::settlements::list_runs))
        .routes(routes!(admin::settlements::find_run))
        .merge(event_routes())
        .merge(reconciliation_routes())
        .routes(routes!(admin::orders::list))
        .routes(routes!(admin::orders::find))
        .routes(routes!(admin::orders::timeline))
        .routes(routes!(admin::refunds::create, admin::refunds::list))
        .routes(routes!(admin::refunds::approve))
        .routes(routes!(admin::refunds::reject))
        .routes(routes!(admin::refunds::not_made))
        .routes(routes!(admin::withdrawals::list))
        .routes(routes!(admin::withdrawals::returned))
        .routes(routes!(admin::receivables::list))
        .routes(routes!(admin::receivables::collect))
        .routes(routes!(admin::receivables::write_off))
        .routes(routes!(admin::exceptions::list))
        .routes(routes!(admin::exceptions::resolve))
        .routes(routes!(admin::exceptions::list_strays))
        .routes(routes!(admin::ledger::trial_balance))
        .routes(routes!(admin::ledger::find_transaction))
        .routes(routes!(admin::webhooks::list))
        .routes(routes!(admin::webhooks::replay))
        .routes(routes!(admin::system::overview))
        .routes(routes!(admin::system::delay_queue))
        .routes(routes!(admin::compensations::list))
        .routes(routes!(admin::compensations::retry))
        .routes(routes!(admin::compensations::retry_many))
        .routes(routes!(admin::compensations::compensate_order))
        .routes(routes!(admin::compensations::sweep))
        .routes(routes!(admin::lanes::list))
        .routes(routes!(admin::lanes::pause))
        .routes(routes!(admin::lanes::resume))
        .routes(routes!(admin::system::admin_log))
        .routes(routes!(admin::system::audit))
}

fn event_routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new()
        .routes(routes!(events::list))
        .routes(routes!(events::find))
        .routes(routes!(admin::notifications::set_url))
        .routes(routes!(admin::notifications::rotate_secret))
        .routes(routes!(admin::notifications::list))
        .routes(routes!(admin::notifications::find))
        .routes(routes!(admin::notifications::resend))
        .routes(routes!(admin::notifications::resend_all))
}

fn reconciliation_routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new()
        .routes(routes!(admin::reconciliations::begin, admin::reconciliations::list))
        .routes(routes!(admin::reconciliations::upload))
        .routes(routes!(admin::reconciliations::find))
        .routes(routes!(admin::reconciliations::list_items))
        .routes(routes!(admin::reconciliations::csv))
        .routes(routes!(admin::reconciliations::approve))
        .routes(routes!(admin::reconciliations::dismiss))
        .routes(routes!(admin::reconciliations::reverse_charge))
}

fn health_routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new()
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// All routes of the service itself, with their documentation.
pub(super) fn routes() -> OpenApiRouter<Edge> {
    let base = OpenApiRouter::with_openapi(openapi::base());
    base.merge(browser_routes()).merge(other_routes()).merge(health_routes())
}

/// The browser's routes with CORS around them. Here the answer to other methods is set before the layer, so that
/// the layer is around it too: the preflight, an OPTIONS that no route has, would be refused otherwise.
fn browser_routes_for(edge: &Edge) -> OpenApiRouter<Edge> {
    let (routes, document) = browser_routes().split_for_parts();
    let routes = routes.method_not_allowed_fallback(method_not_allowed);
    let routes = routes.layer(from_fn_with_state(edge.clone(), overload::admit));
    let routes = routes.layer(cors(&edge.app.config.http.cors_origins));
    OpenApiRouter::with_openapi(document).merge(OpenApiRouter::from(routes))
}

async fn method_not_allowed() -> Response {
    let detail = "this route has other methods; nothing was done";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail).into_response()
}

/// The router of an instance: without the role `api` only its health, and `sandbox` where that role runs.
pub fn router(edge: Edge, sandbox: Option<OpenApiRouter>, with_api: bool) -> Router {
    let mut all = OpenApiRouter::with_openapi(openapi::base()).merge(health_routes());
    if with_api {
        all = all.merge(browser_routes_for(&edge));
        all = all.merge(other_routes().layer(from_fn_with_state(edge.clone(), overload::admit)));
    }
    let mut all = all.with_state(edge.clone());
    if let Some(sandbox) = sandbox {
        all = all.merge(sandbox);
    }
    let (router, document) = all.split_for_parts();
    router
        .merge(docs(&document))
        .fallback(|| async { Problem::not_found().into_response() })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(query::Refusing::of(&document), query::refuse_unknown))
        .layer(CatchPanicLayer::custom(panicked::answer))
        .layer(from_fn(ambiguity::refuse))
        .layer(from_fn_with_state(edge, observe::on_its_way))
}

/// The document, put into words once: nobody has it made anew by asking for it. And its reader, for which everything is in
/// the binary: its badge would ask validator.swagger.io.
fn docs(document: &OpenApi) -> Router {
    let document = Bytes::from(openapi::completed(document).to_string());
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let config = utoipa_swagger_ui::Config::from("/openapi.json").validator_url("none");
    Router::from(SwaggerUi::new("/docs").config(config))
        .route("/openapi.json", get(async move || (json, document)))
}

fn cors(origins: &[String]) -> CorsLayer {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            HeaderName::from_static("idempotency-key"),
        ])
        .expose_headers([
            HeaderName::from_static("x-request-id"),
            super::idempotency::REPLAYED,
            header::RETRY_AFTER,
        ])
        .max_age(std::time::Duration::from_secs(600))
}
