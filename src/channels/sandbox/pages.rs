//! The cashier page: what is paid, two buttons, a clear sentence for every end. No script, nothing from
//! outside.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use time::OffsetDateTime;
use time::macros::format_description;
use utoipa_axum::router::OpenApiRouter;

use crate::money::Currency;

use super::books::TradeView;
use super::cashier::{PayOptions, Receipt};
use super::gateway::{Gateway, GatewayError};
use super::problem::{Problem, TradeId};
use super::routes::Edge;
use super::trades::TradeStatus;

/// The page loads nothing but its own style and posts only to its own origin. `form-action 'self'` also covers
/// the redirects that follow a post, which is why the way back to the shop is a plain link.
const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Smallest side of the QR code in pixels.
const QR_PIXELS: u32 = 160;

/// The pages' routes.
pub(super) fn routes() -> OpenApiRouter<Edge> {
    OpenApiRouter::new()
        .route("/sandbox/cashier/{pay_order_id}", get(show))
        .route("/sandbox/cashier/{pay_order_id}/pay", post(press_pay))
        .route("/sandbox/cashier/{pay_order_id}/decline", post(press_decline))
}

async fn show(State(gateway): State<Gateway>, trade: Result<TradeId, Problem>) -> Response {
    let Ok(TradeId(id)) = trade else { return respond(Sight::Unknown, None) };
    match gateway.view(&id).await {
        Ok(Some(trade)) => {
            let sight = Sight::of(&trade, gateway.now());
            respond(sight, Some(Slip::of(&trade, &gateway.cashier_url(&id))))
        }
        Ok(None) => respond(Sight::Unknown, None),
        Err(error) => unavailable(&error),
    }
}

async fn press_pay(State(gateway): State<Gateway>, trade: Result<TradeId, Problem>) -> Response {
    let Ok(TradeId(id)) = trade else { return respond(Sight::Unknown, None) };
    after_press(id.as_str(), gateway.pay(&id, PayOptions::default()).await)
}

async fn press_decline(State(gateway): State<Gateway>, trade: Result<TradeId, Problem>) -> Response {
    let Ok(TradeId(id)) = trade else { return respond(Sight::Unknown, None) };
    after_press(id.as_str(), gateway.decline(&id, PayOptions::default()).await)
}

/// Whatever came of it, the page says how things stand now. The address is relative, so that the page also
/// works below a path of somebody's proxy.
fn after_press(pay_order_id: &str, outcome: Result<Receipt, GatewayError>) -> Response {
    match outcome {
        Ok(_) | Err(GatewayError::Refused(_)) => {
            (SECURITY_HEADERS, Redirect::to(&format!("../{pay_order_id}"))).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

fn unavailable(error: &GatewayError) -> Response {
    tracing::error!(error = error as &dyn std::error::Error, "the sandbox's cashier failed");
    respond(Sight::Unavailable, None)
}

/// What the buyer meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Open,
    Paid,
    Declined,
    Closed,
    Expired,
    Unknown,
    Unavailable,
}

impl Sight {
    fn of(trade: &TradeView, now: OffsetDateTime) -> Self {
        match trade.status {
            TradeStatus::Open if now < trade.expires_at => Self::Open,
            TradeStatus::Open => Self::Expired,
            TradeStatus::Paid => Self::Paid,
            TradeStatus::Declined => Self::Declined,
            TradeStatus::Closed => Self::Closed,
        }
    }

    /// The value of `data-state`, for programs that look at the page.
    const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paid => "paid",
            Self::Declined => "declined",
            Self::Closed => "closed",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Unavailable => "unavailable",
        }
    }

    const fn headline(self) -> &'static str {
        match self {
            Self::Open => "Waiting for your payment",
            Self::Paid => "Paid",
            Self::Declined => "You declined this payment",
            Self::Closed => "This payment was closed",
            Self::Expired => "This link has expired",
            Self::Unknown => "There is no such payment",
            Self::Unavailable => "The cashier cannot be reached",
        }
    }

    const fn explanation(self) -> &'static str {
        match self {
            Self::Open => "Press Pay to pay, or Decline to call it off.",
            Self::Paid => "Thank you. You can go back to the shop now.",
            Self::Declined => "Nothing was charged. Go back to the shop to try again.",
            Self::Closed => "The shop called it off, and nothing can be charged any more.",
            Self::Expired => "Nothing was charged. Go back to the shop for a new link.",
            Self::Unknown => "Check the link, or go back to the shop for a new one.",
            Self::Unavailable => "Reload this page in a moment: pressing Pay again never pays twice.",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        }
    }
}

/// What the page tells of a trade, ready to read.
#[derive(Debug)]
struct Slip {
    pay_order_id: String,
    amount: String,
    subject: String,
    valid_until: String,
    paid: Option<PaidSlip>,
    back: Option<String>,
    qr: String,
}

/// What the page tells of a payment; the amount may differ from the one asked.
#[derive(Debug)]
struct PaidSlip {
    transaction_id: String,
    amount: String,
    at: String,
}

impl Slip {
    fn of(trade: &TradeView, own_url: &str) -> Self {
        Self {
            pay_order_id: trade.pay_order_id.to_string(),
            amount: readable_amount(trade.amount, trade.currency),
            subject: trade.subject.clone(),
            valid_until: readable_time(trade.expires_at),
            paid: trade.payments.first().map(|payment| PaidSlip {
                transaction_id: payment.transaction_id.clone(),
                amount: readable_amount(payment.amount, payment.currency),
                at: readable_time(payment.paid_at),
            }),
            back: trade.return_url.as_deref().and_then(web_address),
            qr: qr_code(own_url),
        }
    }
}

#[derive(Template)]
#[template(path = "sandbox/cashier.html")]
struct CashierPage {
    sight: Sight,
    slip: Option<Slip>,
}

fn respond(sight: Sight, slip: Option<Slip>) -> Response {
    match (CashierPage { sight, slip }).render() {
        Ok(html) => (sight.status(), SECURITY_HEADERS, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the cashier page cannot be written");
            (StatusCode::INTERNAL_SERVER_ERROR, SECURITY_HEADERS).into_response()
        }
    }
}

/// `CNY 1,234.50`: grouped by thousands, with as many decimals as the currency has.
fn readable_amount(minor: i64, currency: Currency) -> String {
    let exponent =
        iso_currency::Currency::from_code(currency.as_str()).and_then(iso_currency::Currency::exponent);
    let decimals = usize::from(exponent.unwrap_or(0));
    let digits = format!("{minor:0>width$}", width = decimals + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);

    let mut amount = format!("{currency} ");
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            amount.push(',');
        }
        amount.push(digit);
    }
    if !fraction.is_empty() {
        amount.push('.');
        amount.push_str(fraction);
    }
    amount
}

/// In UTC, because the server does not know where the buyer is and the page runs no script.
fn readable_time(at: OffsetDateTime) -> String {
    let form = format_description!("[day padding:none] [month repr:short] [year], [hour]:[minute] UTC");
    at.to_offset(time::UtcOffset::UTC).format(form).unwrap_or_default()
}

/// A link that leads to a web page; any other scheme, such as `javascript:`, is no way back.
fn web_address(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.into())
}

/// The text as inline SVG. Dark on light also in dark mode, which some scanners need.
fn qr_code(text: &str) -> String {
    let Ok(code) = qrcode::QrCode::new(text) else { return String::new() };
    let svg = code
        .render::<qrcode::render::svg::Color<'_>>()
        .min_dimensions(QR_PIXELS, QR_PIXELS)
        .dark_color(qrcode::render::svg::Color("#111"))
        .light_color(qrcode::render::svg::Color("#fff"))
        .build();
    // The declaration in front is for files of their own.
    svg.find("<svg").map(|start| svg[start..].to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_their_currency_is_written() {
        for (minor, currency, expected) in [
            (1, "CNY", "CNY 0.01"),
            (1990, "CNY", "CNY 19.90"),
            (123_456_789, "USD", "USD 1,234,567.89"),
            (1990, "JPY", "JPY 1,990"),
            (1990, "KWD", "KWD 1.990"),
        ] {
            assert_eq!(readable_amount(minor, currency.parse().unwrap()), expected);
        }
    }

    #[test]
    fn only_web_pages_are_a_way_back() {
        assert_eq!(web_address("https://shop.example/o?n=1").as_deref(), Some("https://shop.example/o?n=1"));
        for bad in ["javascript:alert(1)", "data:text/html,x", "/relative", "", "ftp://shop.example/"] {
            assert_eq!(web_address(bad), None, "{bad}");
        }
    }
}
