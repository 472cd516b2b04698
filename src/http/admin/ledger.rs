//! The books, for operators.

use axum::Json;
use axum::extract::State;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use super::super::extract::PathId;
use crate::ledger::{self, Booking, TransactionId, TrialBalance};

/// Every account's balance on its side, and what both sides come to, exact at one instant.
#[utoipa::path(get, path = "/admin/ledger/trial-balance", tag = "admin", security(("admin_token" = [])),
    responses((status = 200, body = TrialBalance, example = json!({
        "balanced": true,
        "totals": [{"currency": "CNY", "debit": 6990, "credit": 6990}],
        "accounts": [
            {"currency": "CNY", "kind": "CHANNEL", "merchant_id": null, "channel": "sandbox",
             "debit": 6990, "credit": 0},
            {"currency": "CNY", "kind": "MERCHANT", "merchant_id": "demo", "channel": null,
             "debit": 0, "credit": 1990},
            {"currency": "CNY", "kind": "USER_AVAILABLE", "merchant_id": "demo", "channel": null,
             "debit": 0, "credit": 5000}]}))))]
pub(in crate::http) async fn trial_balance(
    State(edge): State<Edge>,
    _viewer: Viewer,
) -> Result<Json<TrialBalance>, Problem> {
    Ok(Json(ledger::trial_balance(&edge.app.db).await?))
}

/// One booking with its entries.
#[utoipa::path(get, path = "/admin/ledger/transactions/{transaction_id}", tag = "admin",
    params(("transaction_id" = String, Path, description = "The booking's id",
            example = "PAYMENT:po_06H8K2M4N6P8R0T2V4X6Z8B0D2")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Booking, example = json!({
            "transaction_id": "PAYMENT:po_06H8K2M4N6P8R0T2V4X6Z8B0D2", "kind": "PAYMENT", "merchant_id": "demo",
            "order_no": "A-1", "reverses": null, "reversed_by": null, "created_at": "2026-11-21T10:00:00Z",
            "entries": [{"account": "CHANNEL:sandbox:CNY", "debit": 1990, "credit": 0},
                        {"account": "MERCHANT:demo:CNY", "debit": 0, "credit": 1990}]})),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
    ))]
pub(in crate::http) async fn find_transaction(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(id): PathId<TransactionId>,
) -> Result<Json<Booking>, Problem> {
    ledger::find_booking(&edge.app.db, &id).await?.map(Json).ok_or_else(Problem::not_found)
}
