//! What users owe, and what an operator can do about it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Admin, Operator, Viewer};
use super::super::error::{Problem, insufficient_balance};
use super::super::extract::{self, Params};
use super::super::idempotency::{answer, respond};
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::ids::{ClearingNo, MerchantId, UserId};
use crate::money::{Amount, Currency};
use crate::receivables::{self, Clearing, ClearingKind, NewClearing, Receivable, ReceivableError, Which};

/// Whose debts.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ReceivableParams {
    /// Of one merchant.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before, as `merchant_id:user_id:currency`.
    starting_after: Option<String>,
}

/// A page of what users owe, in the order of their accounts' names, each with what the user has.
#[utoipa::path(get, path = "/admin/receivables", tag = "admin", params(ReceivableParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<Receivable>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<ReceivableParams>,
) -> Result<Json<Page<Receivable>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let after = page.after("merchant_id:user_id:currency", last_of)?;
    let rows = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let which = Which { merchant_id: params.merchant_id.as_ref(), after, limit: rows };
    let rows = receivables::list(&edge.app, &which).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

fn last_of(text: &str) -> Option<(&str, &str, &str)> {
    let (merchant_id, rest) = text.split_once(':')?;
    let (user_id, currency) = rest.split_once(':')?;
    Some((merchant_id, user_id, currency))
}

/// A debt to clear.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ClearingBody {
    /// Whose user.
    merchant_id: MerchantId,
    /// Who owes.
    user_id: UserId,
    /// Of what.
    currency: Currency,
    /// Your number of it, unique per merchant: the same again clears nothing more.
    clearing_no: ClearingNo,
    /// Minor units; by default all that is owed, and of a collection as much of it as the user has.
    amount: Option<Amount>,
    /// Why.
    reason: Reason,
}

impl From<ReceivableError> for Problem {
    fn from(error: ReceivableError) -> Self {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            ReceivableError::NothingOwed => {
                let detail = "the user owes this merchant nothing in that currency; nothing moved";
                Self::new(unprocessable, "NOTHING_OWED", detail)
            }
            ReceivableError::ExceedsOwed(owed) => {
                let detail = format!("{owed} minor units are owed; nothing moved");
                Self::new(unprocessable, "AMOUNT_EXCEEDS_OWED", detail)
                    .field("amount", format!("expected at most {owed}"))
            }
            ReceivableError::InsufficientBalance => insufficient_balance(),
            ReceivableError::ParamsMismatch(fields) => {
                let names = fields.join(", ");
                let detail = format!("the clearing exists and differs in {names}; nothing was changed");
                Self::new(unprocessable, "CLEARING_PARAMS_MISMATCH", detail).differing(&fields)
            }
            ReceivableError::Db(error) => Self::from(error),
        }
    }
}

/// Collects what a user owes from what they have. The same number again moves nothing and gives it as it stands.
#[utoipa::path(post, path = "/admin/receivables/collect", tag = "admin",
    request_body(content = ClearingBody, example = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY",
        "clearing_no": "C-1", "amount": 50, "reason": "ticket 4711"})),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = Clearing, description = "Taken from what the user has"),
        (status = 200, body = Clearing, description = "It was there already, and is the same"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `NOTHING_OWED`, `AMOUNT_EXCEEDS_OWED`,
         `INSUFFICIENT_BALANCE`, `CLEARING_PARAMS_MISMATCH`: nothing moved"),
    ))]
pub(in crate::http) async fn collect(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<ClearingBody>,
) -> Result<Response, Problem> {
    clear(&edge, admin, ClearingKind::Collection, body).await
}

/// Writes off what a user owes: it is the merchant's loss. The same number again moves nothing and gives it as it stands.
#[utoipa::path(post, path = "/admin/receivables/write-off", tag = "admin",
    request_body(content = ClearingBody, example = json!({"merchant_id": "demo", "user_id": "u1", "currency": "CNY",
        "clearing_no": "C-2", "amount": 50, "reason": "the user has left"})),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = Clearing, description = "Owed no more"),
        (status = 200, body = Clearing, description = "It was there already, and is the same"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `NOTHING_OWED`, `AMOUNT_EXCEEDS_OWED`,
         `CLEARING_PARAMS_MISMATCH`: nothing moved"),
    ))]
pub(in crate::http) async fn write_off(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<ClearingBody>,
) -> Result<Response, Problem> {
    clear(&edge, admin, ClearingKind::WriteOff, body).await
}

async fn clear(
    edge: &Edge,
    admin: Admin,
    kind: ClearingKind,
    body: ClearingBody,
) -> Result<Response, Problem> {
    let ClearingBody { merchant_id, user_id, currency, clearing_no, amount, reason } = body;
    let action = match kind {
        ClearingKind::Collection => "receivables.collect",
        ClearingKind::WriteOff => "receivables.write_off",
    };
    let entry = entry(admin, action, format!("{merchant_id}/{clearing_no} of {user_id}"), Some(reason));
    let new = NewClearing { merchant_id, clearing_no, kind, user_id, amount, currency };
    let cleared = edge.owned(|app| async move { receivables::clear(&app, &new, &entry).await }).await?;
    let status = if cleared.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(respond(answer(status, &cleared.clearing)))
}
