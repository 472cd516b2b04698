//! `/users`: what a merchant's users have, and how it came to be.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Edge;
use super::auth::SecretKey;
use super::error::Problem;
use super::extract::{Params, PathId};
use super::views::{Page, PageParams};
use crate::ids::{MerchantId, UserId};
use crate::ledger::{self, Balance, EntryFilter, UserEntry};
use crate::money::Currency;

/// What a user has.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BalancesView {
    /// One for each currency that the user ever had something in.
    data: Vec<Balance>,
}

impl BalancesView {
    pub(super) async fn of(edge: &Edge, merchant_id: &MerchantId, user_id: &UserId) -> Result<Self, Problem> {
        Ok(Self { data: ledger::balances(&edge.app.db, merchant_id, user_id).await? })
    }
}

/// What a user has, by currency; nothing for a user who never had anything.
#[utoipa::path(get, path = "/users/{user_id}/balances", tag = "users",
    params(("user_id" = UserId, Path, description = "The user")), security(("secret_key" = [])),
    responses((status = 200, body = BalancesView)))]
pub(super) async fn balances(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(user_id): PathId<UserId>,
) -> Result<Json<BalancesView>, Problem> {
    Ok(Json(BalancesView::of(&edge, &caller.merchant_id, &user_id).await?))
}

/// Which entries.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EntryParams {
    /// Of one currency.
    #[param(value_type = Option<String>)]
    currency: Option<Currency>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<i64>,
}

/// A page of the changes of a user's balances, newest first.
#[utoipa::path(get, path = "/users/{user_id}/entries", tag = "users",
    params(("user_id" = UserId, Path, description = "The user"), EntryParams), security(("secret_key" = [])),
    responses(
        (status = 200, body = Page<UserEntry>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(super) async fn entries(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(user_id): PathId<UserId>,
    Params(params): Params<EntryParams>,
) -> Result<Json<Page<UserEntry>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let filter = EntryFilter {
        currency: params.currency,
        before: params.starting_after,
        limit: i64::try_from(limit + 1).unwrap_or(i64::MAX),
    };
    let rows = ledger::entries(&edge.app.db, &caller.merchant_id, &user_id, filter).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}
