//! `/orders`: make, look at, wait for, close.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use rust_decimal::Decimal;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Edge;
use super::auth::SecretKey;
use super::error::Problem;
use super::extract::{Params, PathId};
use super::idempotency::{IdempotencyKey, Keyed, answer};
use super::views::OrderView;
use crate::app::App;
use crate::idempotency::Answer;
use crate::ids::{OrderNo, Sku, UserId};
use crate::money::{Amount, Currency, MAX_MINOR};
use crate::orders::{self, Created, Metadata, NewOrder, OrderDetails, OrderItem, OrderKey, OrderKind};
use crate::settlement::Rate;

/// Longest life of an order, in seconds: 7 days.
const MAX_LIFE_SECS: i64 = 604_800;
/// Lines of an order at most.
const MAX_ITEMS: usize = 100;
/// Most of one thing in a line.
const MAX_QUANTITY: i64 = 1_000_000;
/// Characters of a subject at most.
pub(super) const MAX_SUBJECT: usize = 256;
/// Bytes of a URL at most.
pub(super) const MAX_URL: usize = 2048;
/// Longest `?wait=`, in seconds.
const MAX_WAIT_SECS: u64 = 30;

/// A line of an order to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewItemBody {
    /// What is sold.
    sku: Sku,
    /// How many, 1 to 1000000.
    #[schema(minimum = 1, maximum = 1_000_000, example = 1)]
    quantity: i64,
    /// Minor units each, 0 to 10^12.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64, example = 1990)]
    unit_price: i64,
}

/// The commission's own terms.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RebateBody {
    /// Who earns it, where it is not the buyer.
    user_id: Option<UserId>,
    /// The share, a decimal string from 0 to 1.
    #[schema(value_type = Option<String>, example = "0.05")]
    rate: Option<Rate>,
}

/// An order to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"order_no": "A-1", "user_id": "u1", "currency": "CNY",
    "items": [{"sku": "TEA", "quantity": 1, "unit_price": 1990}], "subject": "Tea"}))]
pub(super) struct NewOrderBody {
    /// Your number; without one the server allots one.
    order_no: Option<OrderNo>,
    /// The buyer.
    user_id: UserId,
    /// ISO 4217.
    currency: Currency,
    /// Minor units; by default the sum of the items.
    amount: Option<Amount>,
    /// What is sold; reserved until the order is paid or closed.
    #[serde(default)]
    #[schema(max_items = 100)]
    items: Vec<NewItemBody>,
    /// Seconds until the order times out, 1 to 604800; by default `ORDER_TIMEOUT_SECONDS`.
    #[schema(minimum = 1, maximum = 604_800)]
    expires_in: Option<i64>,
    /// What it is for: a `TOPUP`, which has neither items nor rebate, is paid into the balance of `user_id`.
    kind: Option<OrderKind>,
    /// The commission's own terms.
    rebate: Option<RebateBody>,
    /// What the buyer reads, 256 characters at most.
    #[schema(min_length = 1, max_length = 256)]
    subject: Option<String>,
    /// Where its events go, where it is not the merchant's own URL.
    #[schema(max_length = 2000)]
    notify_url: Option<String>,
    /// Your own notes: any JSON object. Their values come back as they are written, numbers of up to 1000 characters to the
    /// last digit; not so the order of keys, what a key said before it was said again, and how a number is written (`1e5`).
    #[schema(value_type = Option<Object>)]
    metadata: Option<Metadata>,
}

impl NewOrderBody {
    /// Checks what types alone cannot say.
    fn check(self, app: &App) -> Result<NewOrder, Problem> {
        let amount = self.checked_amount()?;
        let expires_in_secs = self.expires_in.unwrap_or(app.config.orders.timeout_secs);
        if !(1..=MAX_LIFE_SECS).contains(&expires_in_secs) {
            return Err(Problem::invalid("expires_in", "expected seconds from 1 to 604800"));
        }
        let rebate = self.rebate.unwrap_or(RebateBody { user_id: None, rate: None });
        check_subject(self.subject.as_deref())?;
        if let Some(Err(wrong)) = self.notify_url.as_deref().map(|url| app.relay.check_form(url)) {
            return Err(Problem::invalid("notify_url", wrong));
        }
        let item = |item: NewItemBody| OrderItem {
            sku: item.sku,
            quantity: item.quantity,
            unit_price: item.unit_price,
        };
        Ok(NewOrder {
            order_no: self.order_no,
            user_id: self.user_id,
            amount,
            currency: self.currency,
            items: self.items.into_iter().map(item).collect(),
            expires_in_secs,
            kind: self.kind.unwrap_or(OrderKind::Sale),
            rebate_user_id: rebate.user_id,
            rebate_rate: rebate.rate.map(Decimal::from),
            subject: self.subject,
            notify_url: self.notify_url,
            metadata: self.metadata,
        })
    }

    /// The amount: given, or the sum of the items; both must agree.
    fn checked_amount(&self) -> Result<Amount, Problem> {
        if self.items.len() > MAX_ITEMS {
            return Err(Problem::invalid("items", format!("expected at most {MAX_ITEMS} items")));
        }
        let mut sum: i128 = 0;
        for (index, item) in self.items.iter().enumerate() {
            if !(1..=MAX_QUANTITY).contains(&item.quantity) {
                let field = format!("items[{index}].quantity");
                return Err(Problem::invalid(field, "expected a whole number from 1 to 1000000"));
            }
            if !(0..=MAX_MINOR).contains(&item.unit_price) {
                let field = format!("items[{index}].unit_price");
                return Err(Problem::invalid(field, "expected minor units from 0 to 1000000000000"));
            }
            // Cannot overflow: 100 lines of 10^6 × 10^12.
            sum += i128::from(item.quantity) * i128::from(item.unit_price);
        }
        match self.amount {
            None if self.items.is_empty() => {
                Err(Problem::invalid("amount", "expected an amount, or items to add up"))
            }
            Some(amount) if !self.items.is_empty() && i128::from(amount.minor()) != sum => {
                Err(Problem::invalid("amount", format!("expected the sum of the items, {sum}")))
            }
            Some(amount) => Ok(amount),
            None => i64::try_from(sum).ok().and_then(|sum| Amount::try_from(sum).ok()).ok_or_else(|| {
                Problem::invalid("items", "expected a sum from 1 to 1000000000000 minor units")
            }),
        }
    }
}

/// Checks what a buyer reads.
pub(super) fn check_subject(subject: Option<&str>) -> Result<(), Problem> {
    match subject {
        Some(text) if text.trim().is_empty() || text.chars().count() > MAX_SUBJECT => Err(Problem::invalid(
            "subject",
            format!("expected 1 to {MAX_SUBJECT} characters, not only spaces"),
        )),
        _ => Ok(()),
    }
}

/// Checks a URL that browsers or the service will follow.
pub(super) fn check_url(field: &'static str, url: Option<&str>) -> Result<(), Problem> {
    let Some(url) = url else { return Ok(()) };
    let is_http = reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if url.len() > MAX_URL || !is_http {
        return Err(Problem::invalid(field, format!("expected an http(s) URL of at most {MAX_URL} bytes")));
    }
    Ok(())
}

/// How long to wait for a change.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParams {
    /// Seconds to wait for the next change of the order, or of an attempt, a refund or stray money of it; 30 at most. It is
    /// answered after 2.5 s, and its connection closed, where more than half of the connections that there may be are open.
    #[param(maximum = 30)]
    pub(super) wait: Option<u64>,
}

/// Makes an order, or gives back the one of that number when it is the same.
#[utoipa::path(post, path = "/orders", tag = "orders", request_body = NewOrderBody,
    params(IdempotencyKey), security(("secret_key" = [])),
    responses(
        (status = 201, body = OrderView, description = "Made; its stock is held"),
        (status = 200, body = OrderView, description = "It was there already, and is the same"),
        (status = 409, body = Problem, description = "`OUT_OF_STOCK`: nothing was reserved"),
        (status = 422, body = Problem,
         description = "`VALIDATION_FAILED`, `ORDER_PARAMS_MISMATCH`, `UNKNOWN_SKU`: nothing was done"),
    ))]
pub(super) async fn create(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Keyed { body, key }: Keyed<NewOrderBody>,
) -> Result<Response, Problem> {
    let new = body.check(&edge.app)?;
    edge.once(key.of(&caller), created, |app, keep| async move {
        orders::create(&app, &caller.merchant_id, &new, keep.as_ref()).await
    })
    .await
}

fn created(Created { details, is_new }: Created) -> Answer {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    answer(status, &OrderView::from(details))
}

/// The order of that number, at once or at its next change.
#[utoipa::path(get, path = "/orders/{order_no}", tag = "orders",
    params(("order_no" = OrderNo, Path, description = "The order's number"), WaitParams),
    security(("secret_key" = [])),
    responses((status = 200, body = OrderView), (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`")))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(order_no): PathId<OrderNo>,
    Params(params): Params<WaitParams>,
) -> Result<Response, Problem> {
    let key = OrderKey { merchant_id: caller.merchant_id, order_no };
    let Some(secs) = params.wait else { return Ok(Json(look(&edge, &key).await?).into_response()) };
    if secs > MAX_WAIT_SECS {
        return Err(Problem::invalid("wait", format!("expected at most {MAX_WAIT_SECS} seconds")));
    }
    let (waits, mut turn) = ((Instant::now(), Duration::from_secs(secs)), None);
    orders::wait_for_change(&edge.app, &key, || edge.crowd.ends_at(waits, &mut turn)).await?;
    let view = Json(look(&edge, &key).await?);
    // In a large crowd whoever waits once more comes anew, behind those who want to be let in.
    let leaves = edge.crowd.is_large().then_some([(CONNECTION, "close")]);
    Ok((leaves, view).into_response())
}

async fn look(edge: &Edge, key: &OrderKey) -> Result<OrderView, Problem> {
    Ok(orders::details(&edge.app, key).await?.into())
}

/// Nothing: the body of an action that needs no words.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoBody {}

/// Closes an order before its time; a closed one stays as it is.
#[utoipa::path(post, path = "/orders/{order_no}/close", tag = "orders", request_body = NoBody,
    params(("order_no" = OrderNo, Path, description = "The order's number"), IdempotencyKey),
    security(("secret_key" = [])),
    responses(
        (status = 200, body = OrderView, description = "It is closed, its stock is free again"),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`ORDER_IS_ALREADY_PAID`, `LOCK_BUSY`"),
        (status = 503, body = Problem, description = "`CHANNEL_UNAVAILABLE`: the order stays open"),
    ))]
pub(super) async fn close(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(order_no): PathId<OrderNo>,
    Keyed { body: NoBody {}, key }: Keyed<NoBody>,
) -> Result<Response, Problem> {
    let request = key.of(&caller);
    let order = OrderKey { merchant_id: caller.merchant_id, order_no };
    let closed = |details: OrderDetails| answer(StatusCode::OK, &OrderView::from(details));
    edge.once(request, closed, |app, keep| async move { orders::close(&app, &order, keep.as_ref()).await })
        .await
}
