//! `/pay`: the two routes that browsers may call too.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Edge;
use super::auth::AnyKey;
use super::error::Problem;
use super::extract::PathId;
use super::idempotency::{IdempotencyKey, Keyed, answer, respond};
use super::orders::{check_subject, check_url};
use super::views::{PayOrderView, PayUrlView};
use crate::idempotency::Answer;
use crate::ids::{OrderNo, PayOrderId, UserId};
use crate::merchants::{Caller, KeyKind};
use crate::money::{Amount, Currency};
use crate::pay::{self, Outcome, PayError, PayUrlRequest};

/// Characters of a channel's name at most.
const MAX_CHANNEL: usize = 32;

/// What to pay, by whom, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"order_no": "A-1", "payer_id": "u1", "channel": "sandbox"}))]
pub(super) struct PayUrlBody {
    /// The order.
    order_no: OrderNo,
    /// Who pays; with a publishable key it must be the order's own user.
    payer_id: UserId,
    /// Through which channel.
    #[schema(min_length = 1, max_length = 32, example = "sandbox")]
    channel: String,
    /// Minor units. With a secret key and an amount, an order that does not exist yet is made on the way.
    amount: Option<Amount>,
    /// ISO 4217; goes with the amount.
    currency: Option<Currency>,
    /// What the buyer reads, 256 characters at most. With a publishable key it comes from the order, whatever stands here.
    #[schema(min_length = 1, max_length = 256)]
    subject: Option<String>,
    /// Where the cashier page leads back to. With a publishable key it counts only where that is a page of an origin in
    /// `CORS_ORIGINS`.
    #[schema(max_length = 2048)]
    return_url: Option<String>,
}

impl PayUrlBody {
    fn check(self, caller: Caller, shop_origins: &[String]) -> Result<PayUrlRequest, Problem> {
        let is_browser = caller.kind == KeyKind::Publishable;
        check_channel(&self.channel)?;
        check_subject(self.subject.as_deref())?;
        check_url("return_url", self.return_url.as_deref())?;
        if is_browser && (self.amount.is_some() || self.currency.is_some()) {
            return Err(Problem::invalid("amount", "the amount comes from the order; expected none here"));
        }
        // Anybody may know a publishable key, and all get the link that the first one asked for. So it says nothing of its own
        // on a page that the buyer trusts, and leads from there to the shop and nowhere else.
        let subject = self.subject.filter(|_| !is_browser);
        let return_url = self.return_url.filter(|url| !is_browser || leads_to_one_of(shop_origins, url));
        Ok(PayUrlRequest {
            merchant_id: caller.merchant_id,
            order_no: self.order_no,
            payer_id: self.payer_id,
            is_payer_checked: is_browser,
            channel: self.channel,
            amount: self.amount,
            currency: self.currency,
            subject,
            return_url,
        })
    }
}

fn leads_to_one_of(origins: &[String], url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| origins.contains(&url.origin().ascii_serialization()))
}

/// Checks what may be the name of a channel.
pub(super) fn check_channel(channel: &str) -> Result<(), Problem> {
    if channel.is_empty() || channel.len() > MAX_CHANNEL {
        return Err(Problem::invalid("channel", "expected the name of a channel"));
    }
    Ok(())
}

/// Makes or repeats the link where the buyer pays an order.
#[utoipa::path(post, path = "/pay/url", tag = "pay", request_body = PayUrlBody,
    params(IdempotencyKey), security(("secret_key" = []), ("publishable_key" = [])),
    responses(
        (status = 200, body = PayUrlView, description = "The link; the same one for a repeat"),
        (status = 402, body = Problem, description = "`CHANNEL_REFUSED`, with the channel's own words"),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`ORDER_IS_ALREADY_PAID`, `ORDER_CLOSED`, `LOCK_BUSY`"),
        (status = 422, body = Problem,
         description = "`VALIDATION_FAILED`, `ORDER_PARAMS_MISMATCH`, `UNKNOWN_CHANNEL`"),
        (status = 503, body = Problem, description = "`CHANNEL_UNAVAILABLE`: repeat the same request"),
    ))]
pub(super) async fn url(
    State(edge): State<Edge>,
    AnyKey(caller): AnyKey,
    Keyed { body, key }: Keyed<PayUrlBody>,
) -> Result<Response, Problem> {
    let key = key.of(&caller);
    let request = body.check(caller, &edge.app.config.http.cors_origins)?;
    if key.is_some() {
        let ask =
            |app, keep: Option<_>| async move { pay::pay_url(&app, &request, keep.as_ref()).await.map(Ok) };
        return edge.once(key, outcome, ask).await;
    }
    let (app, equal) = (edge.app.clone(), request.clone());
    let link = edge
        .pay_urls
        .join(equal, || async move { pay::pay_url(&app, &request, None).await.map_err(std::sync::Arc::new) })
        .await?;
    link.map(|link| respond(outcome(Ok(link)))).map_err(|error| Problem::from(error.as_ref()))
}

fn outcome(outcome: Outcome) -> Answer {
    match outcome {
        Ok(link) => answer(StatusCode::OK, &PayUrlView::from(link)),
        Err(refusal) => Problem::from(PayError::ChannelRefused(refusal)).into_answer(),
    }
}

/// The attempt of that id. One whose result is overdue is asked about at its channel, every ten seconds at most; the
/// answer waits for that a third of a second at most.
#[utoipa::path(get, path = "/pay/{pay_order_id}", tag = "pay",
    params(("pay_order_id" = PayOrderId, Path, description = "As `POST /pay/url` answered")),
    security(("secret_key" = []), ("publishable_key" = [])),
    responses((status = 200, body = PayOrderView), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(super) async fn find(
    State(edge): State<Edge>,
    AnyKey(caller): AnyKey,
    PathId(pay_order_id): PathId<PayOrderId>,
) -> Result<Json<PayOrderView>, Problem> {
    let attempt = pay::find_and_repair(&edge.app, &caller.merchant_id, pay_order_id.as_str()).await?;
    Ok(Json(attempt.into()))
}
