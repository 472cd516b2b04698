//! `/refunds`: ask for, look at, list those of an order.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Edge;
use super::admin::MAX_REASON;
use super::auth::SecretKey;
use super::error::{Problem, insufficient_balance};
use super::extract::{Params, PathId};
use super::idempotency::{IdempotencyKey, Keyed, answer};
use super::views::{Page, PageParams, RefundView};
use crate::idempotency::Answer;
use crate::ids::{OrderNo, RefundNo};
use crate::money::Amount;
use crate::orders::OrderKey;
use crate::refunds::{self, AskedBy, Created, NewRefund, RefundError};

/// The reason of a refund that names none.
const NO_REASON: &str = "requested";

/// A refund to ask for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"refund_no": "R-1", "order_no": "A-1", "amount": 500, "reason": "one cup was broken"}))]
pub(super) struct NewRefundBody {
    /// Your number.
    refund_no: RefundNo,
    /// Which order.
    order_no: OrderNo,
    /// Minor units; by default what is left of the payment.
    amount: Option<Amount>,
    /// Why, in 1 to 500 characters; the buyer may read it.
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
    /// Whether the order's stock comes back, once all of its money has gone back.
    #[serde(default)]
    return_stock: bool,
}

impl NewRefundBody {
    fn check(self) -> Result<NewRefund, Problem> {
        let reason = self.reason.unwrap_or_else(|| NO_REASON.to_owned());
        if reason.trim().is_empty() || reason.chars().count() > MAX_REASON {
            return Err(Problem::invalid(
                "reason",
                format!("expected 1 to {MAX_REASON} characters, not only spaces"),
            ));
        }
        Ok(NewRefund {
            refund_no: self.refund_no,
            order_no: self.order_no,
            amount: self.amount,
            reason,
            return_stock: self.return_stock,
        })
    }
}

/// Gives an order's money back, all of what is left or a part. The answer does not wait for the channel: look at the
/// refund, or listen to `refund.finished`, for its end. The same number gives the money back once.
#[utoipa::path(post, path = "/refunds", tag = "refunds", request_body = NewRefundBody,
    params(IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 201, body = RefundView,
         description = "Written down: `PENDING`, `PROCESSING` where its channel is asked at once, or `AWAITING_APPROVAL`
         above your limit"),
        (status = 200, body = RefundView, description = "It was there already, and is the same"),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`ORDER_NOT_PAID`, `TOP_UP_CHARGED`: nothing moved"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `REFUND_EXCEEDS_PAID` (its detail says what is left:
         a refund that stands `FAILED` and that its channel made after all, or may have made, has taken its part),
         `REFUND_PARAMS_MISMATCH`, `INSUFFICIENT_BALANCE` (a top-up that was spent): nothing moved"),
    ))]
pub(super) async fn create(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Keyed { body, key }: Keyed<NewRefundBody>,
) -> Result<Response, Problem> {
    let new = body.check()?;
    edge.once(key.of(&caller), created, |app, keep| async move {
        refunds::create(&app, &caller.merchant_id, new, AskedBy::Merchant(keep)).await
    })
    .await
}

fn created(Created { refund, is_new, .. }: Created) -> Answer {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    answer(status, &RefundView::from(refund))
}

/// The refund of that number.
#[utoipa::path(get, path = "/refunds/{refund_no}", tag = "refunds",
    params(("refund_no" = RefundNo, Path, description = "The refund's number")),
    security(("secret_key" = [])),
    responses((status = 200, body = RefundView), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(refund_no): PathId<RefundNo>,
) -> Result<Json<RefundView>, Problem> {
    Ok(Json(refunds::find(&edge.app, &caller.merchant_id, &refund_no).await?.into()))
}

/// Which of an order's refunds.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RefundsParams {
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The `refund_id` of the last entry of the page before.
    starting_after: Option<String>,
}

/// A page of an order's refunds, newest first.
#[utoipa::path(get, path = "/orders/{order_no}/refunds", tag = "refunds",
    params(("order_no" = OrderNo, Path, description = "The order's number"), RefundsParams),
    security(("secret_key" = [])),
    responses(
        (status = 200, body = Page<RefundView>),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(super) async fn list(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(order_no): PathId<OrderNo>,
    Params(params): Params<RefundsParams>,
) -> Result<Json<Page<RefundView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let (limit, after) = (page.limit()?, page.after_id("refund_id", "rf_")?);
    let key = OrderKey { merchant_id: caller.merchant_id, order_no };
    let rows = refunds::page_of_order(&edge.app, &key, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, RefundView::from)))
}

impl From<RefundError> for Problem {
    fn from(error: RefundError) -> Self {
        let (conflict, unprocessable) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
        match error {
            RefundError::NotFound => Self::not_found(),
            RefundError::OrderNotFound => Self::order_not_found(),
            RefundError::OrderNotPaid => {
                let detail = "the order has no payment that could be given back; nothing was done";
                Self::new(conflict, "ORDER_NOT_PAID", detail)
            }
            RefundError::ExceedsPaid(left) => {
                let detail = format!("{left}; nothing was done");
                Self::new(unprocessable, "REFUND_EXCEEDS_PAID", detail)
                    .field("amount", format!("expected at most {}", left.amount))
            }
            RefundError::ParamsMismatch(fields) => {
                let names = fields.join(", ");
                let detail = format!("the refund exists and differs in {names}; nothing was changed");
                Self::new(unprocessable, "REFUND_PARAMS_MISMATCH", detail).differing(&fields)
            }
            RefundError::InsufficientBalance => insufficient_balance(),
            RefundError::TopUpCharged => {
                let detail = "the channel denied this top-up's money, and its user was charged for it: an operator must \
                              give that charge back first; nothing was done";
                Self::new(conflict, "TOP_UP_CHARGED", detail)
            }
            RefundError::Ambiguous => Self::ambiguous_number("a refund"),
            RefundError::SameOperator => {
                let detail = "whoever asked for the refund may not decide over it; nothing was changed";
                Self::new(StatusCode::FORBIDDEN, "SAME_OPERATOR", detail)
            }
            RefundError::NotAwaitingApproval(status) => {
                let detail = format!("the refund is {status} and waits for nobody; nothing was changed");
                Self::new(conflict, "REFUND_NOT_AWAITING_APPROVAL", detail)
            }
            RefundError::NotMadeAfterAll(status) => {
                let detail = format!(
                    "the refund is {status}, and is not known to have been made after all; nothing was changed"
                );
                Self::new(conflict, "REFUND_NOT_MADE_AFTER_ALL", detail)
            }
            RefundError::IsMade => {
                let detail = "its channel says that it made the refund, and that counts: have it taken back there, if it \
                              should not be";
                Self::new(conflict, "REFUND_IS_MADE", detail)
            }
            RefundError::ChannelSilent(why) => {
                let detail = format!(
                    "the channel does not say now what became of the refund: {why}; nothing was changed"
                );
                Self::unavailable("CHANNEL_UNAVAILABLE", &detail).retry_after(2)
            }
            RefundError::Db(error) => Self::from(error),
        }
    }
}
