//! `/withdrawals`: make, look at, list.

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
use super::pay::check_channel;
use super::views::{Page, PageParams};
use crate::idempotency::Answer;
use crate::ids::{UserId, WithdrawalNo};
use crate::money::{Amount, Currency, Money};
use crate::withdrawals::{
    self, Created, Leg, LegKind, LegStatus, NewWithdrawal, WithdrawalDetails, WithdrawalFilter,
    WithdrawalStatus,
};

/// Characters of a receiving account at most.
const MAX_ACCOUNT: usize = 256;

/// A withdrawal to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"withdrawal_no": "W-1", "user_id": "u1", "amount": 500, "currency": "CNY",
    "channel": "sandbox", "account": "u1@example.com"}))]
pub(super) struct NewWithdrawalBody {
    /// Your number.
    withdrawal_no: WithdrawalNo,
    /// Whose balance it is taken from.
    user_id: UserId,
    /// Minor units.
    amount: Amount,
    /// ISO 4217.
    currency: Currency,
    /// Through which channel.
    #[schema(min_length = 1, max_length = 32, example = "sandbox")]
    channel: String,
    /// Where to, in the channel's own form; 256 characters at most.
    #[schema(min_length = 1, max_length = 256, example = "u1@example.com")]
    account: String,
}

impl NewWithdrawalBody {
    fn check(self) -> Result<NewWithdrawal, Problem> {
        check_channel(&self.channel)?;
        let is_text = !self.account.trim().is_empty() && !self.account.chars().any(char::is_control);
        if !is_text || self.account.chars().count() > MAX_ACCOUNT {
            let expected = format!("expected 1 to {MAX_ACCOUNT} characters without control characters");
            return Err(Problem::invalid("account", expected));
        }
        Ok(NewWithdrawal {
            withdrawal_no: self.withdrawal_no,
            user_id: self.user_id,
            money: Money { amount: self.amount, currency: self.currency },
            channel: self.channel,
            account: self.account,
        })
    }
}

/// One leg of a withdrawal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LegView {
    /// Which one.
    leg: LegKind,
    /// How far it has come.
    status: LegStatus,
    /// When it came to be.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// When it last moved.
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

impl From<Leg> for LegView {
    fn from(leg: Leg) -> Self {
        let Leg { leg, status, created_at, updated_at } = leg;
        Self { leg, status, created_at, updated_at }
    }
}

/// A withdrawal with its legs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"withdrawal_id": "wd_06H8K2M4N6P8R0T2V4X6Z8B0D2", "withdrawal_no": "W-1", "user_id": "u1", "amount": 500,
    "currency": "CNY", "channel": "sandbox", "account": "u1@example.com", "status": "DEBITED", "failure": null,
    "channel_payout_id": null, "returned_at": null, "legs": [
        {"leg": "DEBIT", "status": "SUCCEEDED", "created_at": "2026-11-21T10:00:00Z", "updated_at": "2026-11-21T10:00:00Z"},
        {"leg": "PAYOUT", "status": "PENDING", "created_at": "2026-11-21T10:00:00Z", "updated_at": "2026-11-21T10:00:00Z"}],
    "created_at": "2026-11-21T10:00:00Z"}))]
pub(super) struct WithdrawalView {
    /// Its id, by which its channel knows it.
    withdrawal_id: String,
    /// Your number.
    withdrawal_no: String,
    /// Whose balance it is taken from.
    user_id: String,
    /// Minor units.
    amount: i64,
    /// Of what.
    currency: Currency,
    /// Through which channel.
    channel: String,
    /// Where to.
    account: String,
    /// Where it stands.
    status: WithdrawalStatus,
    /// Why it was refused, in the channel's words.
    failure: Option<String>,
    /// The channel's own number of the payout. Beside `REVERSED`: the channel made it after it had been given back, and it was
    /// taken from its user once more, until `returned_at`.
    channel_payout_id: Option<String>,
    /// When the money came back that had gone out: its user has it again.
    #[serde(with = "time::serde::rfc3339::option")]
    returned_at: Option<OffsetDateTime>,
    /// Its legs, in their order.
    legs: Vec<LegView>,
    /// When it was asked for.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<WithdrawalDetails> for WithdrawalView {
    fn from(details: WithdrawalDetails) -> Self {
        let WithdrawalDetails { withdrawal, legs } = details;
        Self {
            withdrawal_id: withdrawal.withdrawal_id.into(),
            withdrawal_no: withdrawal.withdrawal_no.into(),
            user_id: withdrawal.user_id.into(),
            amount: withdrawal.amount,
            currency: withdrawal.currency,
            channel: withdrawal.channel,
            account: withdrawal.account,
            status: withdrawal.status,
            failure: withdrawal.failure,
            channel_payout_id: withdrawal.channel_payout_id,
            returned_at: withdrawal.returned_at,
            legs: legs.into_iter().map(Into::into).collect(),
            created_at: withdrawal.created_at,
        }
    }
}

/// Sets a user's money aside and sends it out. The answer does not wait for the channel: look at the withdrawal, or
/// listen to `withdrawal.finished`, for its end. The same number sends the money once.
#[utoipa::path(post, path = "/withdrawals", tag = "users", request_body = NewWithdrawalBody,
    params(IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 201, body = WithdrawalView, description = "Its money is set aside, and on its way out"),
        (status = 200, body = WithdrawalView, description = "It was there already, and is the same"),
        (status = 409, body = Problem, description = "`LOCK_BUSY`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `INSUFFICIENT_BALANCE`,
         `WITHDRAWAL_PARAMS_MISMATCH`, `UNKNOWN_CHANNEL`: nothing moved"),
    ))]
pub(super) async fn create(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Keyed { body, key }: Keyed<NewWithdrawalBody>,
) -> Result<Response, Problem> {
    let new = body.check()?;
    edge.once(key.of(&caller), created, |app, keep| async move {
        withdrawals::create(&app, &caller.merchant_id, &new, keep.as_ref()).await
    })
    .await
}

fn created(Created { details, is_new }: Created) -> Answer {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    answer(status, &WithdrawalView::from(details))
}

/// The withdrawal of that number with its legs.
#[utoipa::path(get, path = "/withdrawals/{withdrawal_no}", tag = "users",
    params(("withdrawal_no" = WithdrawalNo, Path, description = "The withdrawal's number")),
    security(("secret_key" = [])),
    responses((status = 200, body = WithdrawalView), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(withdrawal_no): PathId<WithdrawalNo>,
) -> Result<Json<WithdrawalView>, Problem> {
    Ok(Json(withdrawals::find(&edge.app, &caller.merchant_id, &withdrawal_no).await?.into()))
}

/// Which withdrawals.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WithdrawalParams {
    /// Of one user.
    #[param(value_type = Option<String>)]
    user_id: Option<UserId>,
    /// In one state.
    status: Option<WithdrawalStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The `withdrawal_id` of the last entry of the page before.
    starting_after: Option<String>,
}

/// A page of your withdrawals with their legs, newest first.
#[utoipa::path(get, path = "/withdrawals", tag = "users", params(WithdrawalParams), security(("secret_key" = [])),
    responses(
        (status = 200, body = Page<WithdrawalView>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(super) async fn list(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Params(params): Params<WithdrawalParams>,
) -> Result<Json<Page<WithdrawalView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let filter = WithdrawalFilter {
        merchant_id: Some(&caller.merchant_id),
        user_id: params.user_id.as_ref(),
        status: params.status,
        starting_after: page.after_id("withdrawal_id", "wd_")?,
    };
    let rows = withdrawals::list(&edge.app, filter, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, WithdrawalView::from)))
}
