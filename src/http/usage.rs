//! `/usage`: hold, report, confirm, release, look at.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::Edge;
use super::auth::SecretKey;
use super::error::Problem;
use super::extract::{Params, PathId};
use super::idempotency::{IdempotencyKey, Keyed, answer};
use super::views::{Page, PageParams};
use crate::idempotency::Answer;
use crate::ids::{Cycle, FxVersion, HoldId, MessageId, ProductCode, RequestId, UsageKey, UserId};
use crate::money::Currency;
use crate::usage::{
    self, Done, Hold, HoldStatus, NewHold, Pricing, Refusal, Report, Units, UsageError, Which, Whose,
};

/// Seconds that a hold lives, where nothing is said.
const DEFAULT_LIFE: i64 = 900;
/// Seconds that a hold lives at most: a week.
const MAX_LIFE: i64 = 604_800;

/// Work that is about to begin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"request_id": "req-1", "user_id": "u1", "product_code": "llm-tokens",
    "idempotency_key": "chat-42", "currency": "CNY", "estimated_units": 1000}))]
pub(super) struct NewHoldBody {
    /// Your name of the request; not compared on a repeat.
    request_id: RequestId,
    /// Whose balance pays.
    user_id: UserId,
    /// What is metered.
    product_code: ProductCode,
    /// Your name of the work: with user and product it is held and charged once.
    idempotency_key: UsageKey,
    /// ISO 4217.
    currency: Currency,
    /// Which set of prices in that currency; the one without a name by default.
    fx_version: Option<FxVersion>,
    /// What it may use. More may be reported, as long as the balance lasts.
    estimated_units: Units,
    /// Of which cycle; the present month by default.
    cycle: Option<Cycle>,
    /// Seconds until the hold frees itself; 900 by default, a week at most.
    #[schema(minimum = 1, maximum = 604_800, example = 900)]
    expires_in: Option<i64>,
}

impl NewHoldBody {
    fn check(self) -> Result<NewHold, Problem> {
        let expires_in = self.expires_in.unwrap_or(DEFAULT_LIFE);
        if !(1..=MAX_LIFE).contains(&expires_in) {
            return Err(Problem::invalid(
                "expires_in",
                "expected a whole number of seconds from 1 to 604800",
            ));
        }
        Ok(NewHold {
            request_id: self.request_id,
            user_id: self.user_id,
            product_code: self.product_code,
            idempotency_key: self.idempotency_key,
            currency: self.currency,
            fx_version: self.fx_version,
            estimated_units: self.estimated_units,
            cycle: self.cycle,
            expires_in,
        })
    }
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"hold_id": "uh_06H8K2M4N6P8R0T2V4X6Z8B0D2", "request_id": "req-1", "user_id": "u1",
    "product_code": "llm-tokens", "idempotency_key": "chat-42", "currency": "CNY", "fx_version": null,
    "cycle": "2026-11", "pricing": "PER_UNIT", "unit_price": "0.03", "status": "HELD", "estimated_units": 1000,
    "units": null, "held": 30, "charged": 0, "shortfall": 0, "late": false,
    "expires_at": "2026-11-21T10:15:00Z", "created_at": "2026-11-21T10:00:00Z"}))]
pub(super) struct HoldView {
    /// Its id.
    hold_id: String,
    /// Your name of the request.
    request_id: String,
    /// Whose balance pays.
    user_id: String,
    /// What is metered.
    product_code: String,
    /// Your name of the work.
    idempotency_key: String,
    /// Of what.
    currency: Currency,
    /// Which set of prices, where it has a name.
    fx_version: Option<String>,
    /// Of which cycle.
    cycle: String,
    /// What the price is for.
    pricing: Pricing,
    /// Minor units, as they were when the hold was made.
    #[schema(value_type = String)]
    unit_price: usage::Price,
    /// Where it stands.
    status: HoldStatus,
    /// What it was made for.
    estimated_units: i64,
    /// The largest that was reported; what was charged for, once it is confirmed.
    units: Option<i64>,
    /// Minor units set aside.
    held: i64,
    /// Minor units taken.
    charged: i64,
    /// Minor units that were due and not there: the user owes them.
    shortfall: i64,
    /// Whether it was confirmed after it had expired.
    late: bool,
    /// When it frees itself.
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Hold> for HoldView {
    fn from(hold: Hold) -> Self {
        Self {
            hold_id: hold.hold_id.into(),
            request_id: hold.request_id.into(),
            user_id: hold.user_id.into(),
            product_code: hold.product_code.into(),
            idempotency_key: hold.idempotency_key.into(),
            currency: hold.currency,
            fx_version: Some(hold.fx_version).filter(|version| !version.is_empty()),
            cycle: hold.cycle.into(),
            pricing: hold.pricing,
            unit_price: hold.unit_price,
            status: hold.status,
            estimated_units: hold.estimated_units,
            units: hold.units,
            held: hold.held,
            charged: hold.charged,
            shortfall: hold.shortfall,
            late: hold.late,
            expires_at: hold.expires_at,
            created_at: hold.created_at,
        }
    }
}

fn done(Done { hold, is_new }: Done) -> Answer {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    answer(status, &HoldView::from(hold))
}

/// Holds what work may cost before it begins: balance and quota are checked and taken at once. The same key gets the
/// same hold.
#[utoipa::path(post, path = "/usage/holds", tag = "usage", request_body = NewHoldBody,
    params(IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 201, body = HoldView, description = "Its money is set aside"),
        (status = 200, body = HoldView, description = "It was there already, and is the same"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `INSUFFICIENT_BALANCE`, `QUOTA_EXCEEDED`,
         `USAGE_KEY_REUSED`, `UNKNOWN_PRODUCT`: nothing moved"),
    ))]
pub(super) async fn create(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Keyed { body, key }: Keyed<NewHoldBody>,
) -> Result<Response, Problem> {
    let new = body.check()?;
    let key = key.of(&caller);
    edge.once(key, done, |app, keep| async move {
        usage::create(&app, &caller.merchant_id, new, keep).await.map_err(not_held)
    })
    .await
}

/// Of a hold that is only asked for nothing was reported, and nothing was set aside before.
fn not_held(error: UsageError) -> Problem {
    let detail = match &error {
        UsageError::Refused(why @ (Refusal::InsufficientBalance | Refusal::QuotaExceeded(_))) => {
            Some(format!("{why}; nothing was held"))
        }
        _ => None,
    };
    let mut problem = Problem::from(error);
    if let Some(detail) = detail {
        problem.detail = detail;
    }
    problem
}

/// What was used so far.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message_id": "m-1", "cumulative_units": 400}))]
pub(super) struct ProgressBody {
    /// Your name of the message: it acts once.
    message_id: MessageId,
    /// All that was used since the work began.
    cumulative_units: Units,
}

/// Reports what was used so far, any number of times and in any order: the largest counts. For usage beyond the estimate
/// more is set aside as far as the balance goes, also beyond the quota; when balance or quota do not cover all of it the
/// report is heard all the same, and the stream should stop.
#[utoipa::path(post, path = "/usage/holds/{hold_id}/progress", tag = "usage", request_body = ProgressBody,
    params(("hold_id" = HoldId, Path, description = "The hold"), IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 200, body = HoldView),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`HOLD_CLOSED`: stop the stream; of an expired hold it was heard, and
         counts when that is confirmed"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `USAGE_MESSAGE_REUSED`: nothing moved;
         `INSUFFICIENT_BALANCE`, `QUOTA_EXCEEDED`: it was heard, stop the stream"),
    ))]
pub(super) async fn progress(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(hold_id): PathId<HoldId>,
    Keyed { body, key }: Keyed<ProgressBody>,
) -> Result<Response, Problem> {
    let report = Report { message_id: body.message_id, cumulative_units: body.cumulative_units };
    edge.once(key.of(&caller), done, |app, keep| async move {
        usage::progress(&app, &caller.merchant_id, &hold_id, report, keep).await
    })
    .await
}

/// What was used in the end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message_id": "m-9", "units": 900}))]
pub(super) struct ConfirmBody {
    /// Your name of the message.
    message_id: Option<MessageId>,
    /// All that was used; the largest that was reported, where nothing is said. Zero is zero.
    units: Option<Units>,
}

/// Charges what was used and frees the rest. After an expiry it is charged late; what the user does not have then, or
/// beyond the hold, is owed.
#[utoipa::path(post, path = "/usage/holds/{hold_id}/confirm", tag = "usage", request_body = ConfirmBody,
    params(("hold_id" = HoldId, Path, description = "The hold"), IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 200, body = HoldView),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`HOLD_CLOSED`: released, or confirmed with other units"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `UNITS_SHRINK`, `USAGE_MESSAGE_REUSED`: nothing
         moved"),
    ))]
pub(super) async fn confirm(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(hold_id): PathId<HoldId>,
    Keyed { body, key }: Keyed<ConfirmBody>,
) -> Result<Response, Problem> {
    edge.once(key.of(&caller), done, |app, keep| async move {
        usage::confirm(&app, &caller.merchant_id, &hold_id, body.message_id, body.units, keep).await
    })
    .await
}

/// Nothing but the hold itself.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct ReleaseBody {}

/// Frees all of a hold whose work came to nothing.
#[utoipa::path(post, path = "/usage/holds/{hold_id}/release", tag = "usage", request_body = ReleaseBody,
    params(("hold_id" = HoldId, Path, description = "The hold"), IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 200, body = HoldView),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`HOLD_CLOSED`: confirmed, or expired"),
    ))]
pub(super) async fn release(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(hold_id): PathId<HoldId>,
    Keyed { body: ReleaseBody {}, key }: Keyed<ReleaseBody>,
) -> Result<Response, Problem> {
    edge.once(key.of(&caller), done, |app, keep| async move {
        usage::release(&app, &caller.merchant_id, &hold_id, keep).await
    })
    .await
}

/// The hold of that id.
#[utoipa::path(get, path = "/usage/holds/{hold_id}", tag = "usage",
    params(("hold_id" = HoldId, Path, description = "The hold")), security(("secret_key" = [])),
    responses((status = 200, body = HoldView), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(hold_id): PathId<HoldId>,
) -> Result<Json<HoldView>, Problem> {
    Ok(Json(usage::find(&edge.app, &caller.merchant_id, &hold_id).await?.into()))
}

/// Which holds of a user.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HoldParams {
    /// In one state.
    #[param(value_type = Option<String>)]
    status: Option<HoldStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last hold of the page before.
    starting_after: Option<String>,
}

/// A page of a user's holds and charges, newest first.
#[utoipa::path(get, path = "/users/{user_id}/usage", tag = "usage",
    params(("user_id" = UserId, Path, description = "The user"), HoldParams), security(("secret_key" = [])),
    responses(
        (status = 200, body = Page<HoldView>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(super) async fn list(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(user_id): PathId<UserId>,
    Params(params): Params<HoldParams>,
) -> Result<Json<Page<HoldView>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let which = Which {
        whose: Whose::User(caller.merchant_id, user_id),
        status: params.status,
        before: params.starting_after,
    };
    let rows = usage::list(&edge.app, &which, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, HoldView::from)))
}
