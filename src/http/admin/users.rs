//! What users have, for operators.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use super::super::extract::{Params, PathId};
use super::super::users::BalancesView;
use crate::ids::{MerchantId, UserId};

/// Whose user.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct UserParams {
    /// Whose.
    #[param(value_type = String)]
    merchant_id: MerchantId,
}

/// What a user of a merchant has, by currency; nothing for a user who never had anything.
#[utoipa::path(get, path = "/admin/users/{user_id}/balances", tag = "admin",
    params(("user_id" = UserId, Path, description = "The user"), UserParams), security(("admin_token" = [])),
    responses(
        (status = 200, body = BalancesView),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn balances(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(user_id): PathId<UserId>,
    Params(params): Params<UserParams>,
) -> Result<Json<BalancesView>, Problem> {
    Ok(Json(BalancesView::of(&edge, &params.merchant_id, &user_id).await?))
}
