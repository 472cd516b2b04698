//! The OpenAPI document, generated from the routes.

use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi as _};

use super::error::Problem;
use crate::ids::{
    ExceptionId, HoldId, MerchantId, OrderNo, PayOrderId, ReconciliationId, ReconciliationItemId, RefundNo,
    SettlementRunId, WithdrawalNo,
};

mod complete;
mod events;
mod examples;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Payonce",
        description = "An order is paid once, settled once, refunded once, cancelled once and reported once.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    // The ids stand in paths too, where they are named only.
    components(schemas(
        Problem, ExceptionId, HoldId, MerchantId, OrderNo, PayOrderId, ReconciliationId, ReconciliationItemId, RefundNo,
        SettlementRunId, WithdrawalNo,
    )),
    modifiers(&Credentials),
    tags(
        (name = "orders", description = "Orders of a merchant"),
        (name = "pay", description = "Pay URLs and attempts; also for browsers"),
        (name = "refunds", description = "Money that goes back"),
        (name = "users", description = "What users have, and what goes out to them"),
        (name = "usage", description = "Metered work: held before it, charged after it"),
        (name = "settlements", description = "Commissions of users"),
        (name = "webhooks", description = "What channels tell us"),
        (name = "events", description = "What merchants are told of"),
        (name = "admin", description = "What operators see and do"),
        (name = "health", description = "Whether it runs, and how"),
        (name = "sandbox", description = "The gateway that is built in, and what it may do wrong"),
    )
)]
struct Document;

struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut OpenApi) {
        let bearer = |description: &str| {
            let scheme =
                HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
            SecurityScheme::Http(scheme)
        };
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("secret_key", bearer("`sk_…`: a merchant's backend"));
        components.add_security_scheme("publishable_key", bearer("`pk_…`: browsers and apps"));
        components.add_security_scheme("admin_token", bearer("an operator's token"));
    }
}

/// What the routes are added to.
pub(super) fn base() -> OpenApi {
    Document::openapi()
}

/// What the routes said of themselves, with all that follows from how they are made.
pub(super) fn completed(generated: &OpenApi) -> Value {
    let mut document = complete::complete(serde_json::to_value(generated).unwrap_or_default());
    document["webhooks"] = events::webhooks();
    document
}

/// The whole document, without a running service.
#[must_use]
pub fn document() -> Value {
    completed(&super::router::routes().split_for_parts().1)
}
