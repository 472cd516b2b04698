//! Commissions: rules, levels, and settling in batches.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::ids::{MerchantId, SettlementRunId, Sku, UserId};
use crate::settlement::{
    self, Begun, Factor, MAX_DAYS, NewRun, Rate, RebateRule, SettlementRun, UserLevel, Waiting,
};

/// Characters of a level's name at most.
const MAX_LEVEL: usize = 64;

/// A rule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RuleBody {
    /// Whose.
    merchant_id: MerchantId,
    /// Of which thing; of all that have no rule of their own, where there is none.
    sku: Option<Sku>,
    /// The share, a decimal string from 0 to 1 with 8 places at most.
    #[schema(value_type = String, example = "0.05")]
    rate: Rate,
    /// Why.
    reason: Option<Reason>,
}

/// Sets a merchant's share for commissions, of one thing or of all others. What is settled keeps its rates.
#[utoipa::path(post, path = "/admin/rebate-rules", tag = "admin",
    request_body(content = RuleBody, example = json!({"merchant_id": "demo", "sku": "TEA", "rate": "0.05"})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = RebateRule),
        (status = 404, body = Problem, description = "`NOT_FOUND`: no such merchant"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `UNKNOWN_SKU`: nothing was changed"),
    ))]
pub(in crate::http) async fn set_rule(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<RuleBody>,
) -> Result<Json<RebateRule>, Problem> {
    let RuleBody { merchant_id, sku, rate, reason } = body;
    let thing = sku.as_ref().map_or("*", Sku::as_str);
    let entry = entry(admin, "rebate_rules.set", format!("{merchant_id}/{thing} = {rate}"), reason);
    let rule = edge.owned(|app| async move {
        settlement::set_rule(&app, &merchant_id, sku.as_ref(), rate, &entry).await
    });
    Ok(Json(rule.await?))
}

/// A part of what belongs to one merchant.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct OfMerchant {
    /// Whose.
    #[param(value_type = String)]
    merchant_id: MerchantId,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before: its sku, or its user.
    starting_after: Option<String>,
}

impl OfMerchant {
    fn limit(&self) -> Result<usize, Problem> {
        PageParams { limit: self.limit, starting_after: None }.limit()
    }
}

/// A page of a merchant's rules: that of all others first, then by thing.
#[utoipa::path(get, path = "/admin/rebate-rules", tag = "admin", params(OfMerchant),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<RebateRule>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_rules(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<OfMerchant>,
) -> Result<Json<Page<RebateRule>>, Problem> {
    let (limit, after) = (params.limit()?, params.starting_after.as_deref());
    let rows = settlement::list_rules(&edge.app, &params.merchant_id, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// A user's level.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LevelBody {
    /// Whose user.
    merchant_id: MerchantId,
    /// Which one.
    user_id: UserId,
    /// What the merchant calls it, 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64, example = "GOLD")]
    level: String,
    /// What the user's commissions are multiplied by, a decimal string above 0 and at most 10 with 4 places at most.
    #[schema(value_type = String, example = "1.2")]
    factor: Factor,
    /// Why.
    reason: Option<Reason>,
}

/// Sets a user's level. What is settled keeps its factor.
#[utoipa::path(post, path = "/admin/user-levels", tag = "admin",
    request_body(content = LevelBody,
        example = json!({"merchant_id": "demo", "user_id": "u1", "level": "GOLD", "factor": "1.2"})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = UserLevel),
        (status = 404, body = Problem, description = "`NOT_FOUND`: no such merchant"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`: nothing was changed"),
    ))]
pub(in crate::http) async fn set_level(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<LevelBody>,
) -> Result<Json<UserLevel>, Problem> {
    let LevelBody { merchant_id, user_id, level, factor, reason } = body;
    if level.trim().is_empty() || level.chars().count() > MAX_LEVEL {
        return Err(Problem::invalid("level", format!("expected 1 to {MAX_LEVEL} characters")));
    }
    let target = format!("{merchant_id}/{user_id} = {level}, {factor}");
    let entry = entry(admin, "user_levels.set", target, reason);
    let level = edge.owned(|app| async move {
        settlement::set_level(&app, &merchant_id, &user_id, &level, factor, &entry).await
    });
    Ok(Json(level.await?))
}

/// A page of a merchant's users with a level, by user.
#[utoipa::path(get, path = "/admin/user-levels", tag = "admin", params(OfMerchant),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<UserLevel>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_levels(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<OfMerchant>,
) -> Result<Json<Page<UserLevel>>, Problem> {
    let (limit, after) = (params.limit()?, params.starting_after.as_deref());
    let rows = settlement::list_levels(&edge.app, &params.merchant_id, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// What to settle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RunBody {
    /// Orders that were paid so many days ago or earlier, 0 to 36500.
    #[schema(minimum = 0, maximum = 36500, example = 30)]
    older_than_days: u32,
    /// Of one merchant; of all where none is named.
    merchant_id: Option<MerchantId>,
    /// Says what there is to settle, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Why; required unless it is a dry run.
    reason: Option<Reason>,
}

/// What a run is for, and the run.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct BegunView {
    /// Whether nothing was done.
    dry_run: bool,
    /// Orders that were paid before.
    #[serde(with = "time::serde::rfc3339")]
    paid_before: OffsetDateTime,
    /// What there is to settle among the oldest million orders, whoever's they are. Empty, with `has_more`, for a run that was
    /// begun although that took too long to count.
    waiting: Vec<Waiting>,
    /// Whether more orders wait, of whomever, than were looked at: there may be more to settle.
    has_more: bool,
    /// The run, which the workers carry out.
    run: Option<SettlementRun>,
}

/// Settles all paid orders of some age, in batches. The workers carry it out; what it has come to is to be looked at.
#[utoipa::path(post, path = "/admin/settlements/run", tag = "admin",
    request_body(content = RunBody, example = json!({"older_than_days": 30, "dry_run": true})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = BegunView),
        (status = 404, body = Problem, description = "`NOT_FOUND`: no such merchant"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`: nothing was begun"),
    ))]
pub(in crate::http) async fn begin(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<RunBody>,
) -> Result<Json<BegunView>, Problem> {
    let RunBody { older_than_days, merchant_id, dry_run, reason } = body;
    if older_than_days > MAX_DAYS {
        return Err(Problem::invalid("older_than_days", format!("expected days from 0 to {MAX_DAYS}")));
    }
    if !dry_run && reason.is_none() {
        return Err(Problem::invalid("reason", "expected why, in 1 to 500 characters"));
    }
    let new = NewRun { merchant_id, older_than_days };
    let entry = (!dry_run).then(|| entry(admin, "settlements.run", new.to_string(), reason));
    let begun = edge.owned(|app| async move { settlement::begin_run(&app, &new, entry).await }).await?;
    let Begun { paid_before, waiting, has_more, run } = begun;
    Ok(Json(BegunView { dry_run, paid_before, waiting, has_more, run }))
}

/// A page of runs, newest first.
#[utoipa::path(get, path = "/admin/settlements/runs", tag = "admin", params(PageParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<SettlementRun>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_runs(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(page): Params<PageParams>,
) -> Result<Json<Page<SettlementRun>>, Problem> {
    let limit = page.limit()?;
    let rows = settlement::list_runs(&edge.app, page.starting_after.as_deref(), limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// A run, as far as it has come.
#[utoipa::path(get, path = "/admin/settlements/runs/{run_id}", tag = "admin",
    params(("run_id" = SettlementRunId, Path, description = "As the run began")),
    security(("admin_token" = [])),
    responses((status = 200, body = SettlementRun), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(in crate::http) async fn find_run(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(run_id): PathId<SettlementRunId>,
) -> Result<Json<SettlementRun>, Problem> {
    Ok(Json(settlement::find_run(&edge.app, &run_id).await?))
}
