//! Which command does what which admin route does. A test compares it with the routes.

/// A command and its route; what it takes is read from the route's own description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    /// The command, behind `payonce admin`.
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
}

const fn get(name: &'static str, path: &'static str) -> Deed {
    Deed { name, method: "GET", path }
}

const fn post(name: &'static str, path: &'static str) -> Deed {
    Deed { name, method: "POST", path }
}

/// Every one, in the order of the help.
pub(super) const DEEDS: &[Deed] = &[
    get("overview", "/admin/overview"),
    get("orders", "/admin/orders"),
    get("order", "/admin/orders/{order_no}"),
    get("timeline", "/admin/orders/{order_no}/timeline"),
    get("exceptions", "/admin/exceptions"),
    post("resolve-exception", "/admin/exceptions/{exception_id}/resolve"),
    get("stray-payments", "/admin/stray-payments"),
    get("trial-balance", "/admin/ledger/trial-balance"),
    get("booking", "/admin/ledger/transactions/{transaction_id}"),
    get("compensations", "/admin/compensations"),
    post("retry-task", "/admin/compensations/{task_id}/retry"),
    post("retry-tasks", "/admin/compensations/retry"),
    post("compensate", "/admin/orders/{order_no}/compensate"),
    post("sweep", "/admin/sweep"),
    get("lanes", "/admin/lanes"),
    post("pause-lane", "/admin/lanes/{lane}/pause"),
    post("resume-lane", "/admin/lanes/{lane}/resume"),
    get("refunds", "/admin/refunds"),
    post("refund", "/admin/refunds"),
    post("approve-refund", "/admin/refunds/{refund_no}/approve"),
    post("reject-refund", "/admin/refunds/{refund_no}/reject"),
    post("refund-was-not-made", "/admin/refunds/{refund_no}/not-made"),
    get("withdrawals", "/admin/withdrawals"),
    post("withdrawal-was-returned", "/admin/withdrawals/{withdrawal_no}/returned"),
    get("receivables", "/admin/receivables"),
    post("collect-receivable", "/admin/receivables/collect"),
    post("write-off-receivable", "/admin/receivables/write-off"),
    get("webhooks", "/admin/webhooks"),
    post("replay-webhook", "/admin/webhooks/{webhook_id}/replay"),
    get("delay-queue", "/admin/delay-queue"),
    get("audit", "/admin/audit"),
    get("log", "/admin/admin-log"),
    get("merchants", "/admin/merchants"),
    post("create-merchant", "/admin/merchants"),
    get("keys", "/admin/merchants/{merchant_id}/keys"),
    post("rotate-keys", "/admin/merchants/{merchant_id}/keys"),
    post("set-notify-url", "/admin/merchants/{merchant_id}/notify-url"),
    post("rotate-notify-secret", "/admin/merchants/{merchant_id}/notify-secret"),
    get("outbox", "/admin/outbox"),
    get("event", "/admin/outbox/{event_id}"),
    post("resend-event", "/admin/outbox/{event_id}/resend"),
    post("resend-events", "/admin/outbox/resend"),
    get("skus", "/admin/skus"),
    post("set-stock", "/admin/skus"),
    get("products", "/admin/products"),
    post("set-product", "/admin/products"),
    get("usage-holds", "/admin/usage/holds"),
    get("user-balances", "/admin/users/{user_id}/balances"),
    get("rebate-rules", "/admin/rebate-rules"),
    post("set-rebate-rule", "/admin/rebate-rules"),
    get("user-levels", "/admin/user-levels"),
    post("set-user-level", "/admin/user-levels"),
    post("settle", "/admin/settlements/run"),
    get("settlement-runs", "/admin/settlements/runs"),
    get("reconciliations", "/admin/reconciliations"),
    post("reconcile", "/admin/reconciliations"),
    post("upload-statement", "/admin/reconciliations/upload"),
    get("reconciliation", "/admin/reconciliations/{reconciliation_id}"),
    get("differences", "/admin/reconciliations/{reconciliation_id}/items"),
    get("differences-csv", "/admin/reconciliations/{reconciliation_id}/items.csv"),
    post("approve-difference", "/admin/reconciliation-items/{item_id}/approve"),
    post("dismiss-difference", "/admin/reconciliation-items/{item_id}/dismiss"),
    post("reverse-charge", "/admin/reconciliation-items/{item_id}/reverse-charge"),
    get("settlement-run", "/admin/settlements/runs/{run_id}"),
];

/// The command of that name.
pub(super) fn find(name: &str) -> Option<Deed> {
    DEEDS.iter().find(|deed| deed.name == name).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_admin_route_has_one_command_and_every_command_a_route() {
        let document = serde_json::to_value(crate::http::document()).unwrap();
        let routes: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(path, _)| path.starts_with("/admin/"))
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let commands: BTreeSet<_> =
            DEEDS.iter().map(|deed| (deed.method.to_owned(), deed.path.to_owned())).collect();
        assert_eq!(routes, commands, "add the route to DEEDS in src/cli/admin/table.rs, or take it out");
        let names: BTreeSet<_> = DEEDS.iter().map(|deed| deed.name).collect();
        assert_eq!((names.len(), commands.len()), (DEEDS.len(), DEEDS.len()), "no name and no route twice");
    }
}
