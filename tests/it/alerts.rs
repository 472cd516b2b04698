//! The alert rules and the dashboard under `deploy/`: the rules fire when they should, and every metric that either
//! names is one that a busy instance has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use payonce::local::{Finder, packages};
use serde_json::json;
use time::Duration;

use crate::support::{TestApp, minutes};

mod figures;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn the_rules_fire_when_they_should_and_are_silent_otherwise() {
    let find = || Finder::of_machine().program("promtool");
    let promtool = packages::ensure("promtool", &["prometheus"], find).await.expect("promtool");
    for args in [
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
        let output = Command::new(&promtool).args(args).current_dir(folder).output().expect("promtool runs");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
    let (rules, tests) = (read("deploy/prometheus/rules.yml"), read("deploy/prometheus/rules.test.yml"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let silent = format!("alertname: {alert}}}");
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(tests.contains(&silent) && tests.contains(&fires), "{alert} is not shown firing and silent");
    }
}

/// The metrics that a text names: of a histogram, its own name.
fn named_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("payonce_"));
    ours.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[tokio::test]
async fn every_metric_that_the_rules_and_the_dashboard_name_is_there() {
    let app = TestApp::start_working().await;
    app.stock("TEA", 10).await;
    let id = app.order_to_pay("A1").await;
    app.sandbox_pay(&id, json!({})).await.expect(200);
    app.eventually("it is paid", async || app.status_of("A1").await == "PAID").await;
    // Money that comes too late, and goes back.
    let id = app.order_to_pay("A2").await;
    app.post("/orders/A2/close", json!({})).await.expect(200);
    app.sandbox_pay(&id, json!({"force": true})).await.expect(200);
    app.eventually("it is stray", async || app.count("stray_payments").await == 1).await;
    app.order_with(
        json!({"order_no": "A3", "user_id": "u1", "currency": "CNY", "amount": 1, "expires_in": 1}),
    )
    .await;
    app.clock.advance(minutes(1));
    app.eventually("it is closed", async || app.status_of("A3").await == "CLOSED").await;
    let day = (app.clock.now().date() - Duration::days(2)).to_string();
    let body = json!({"channel": "sandbox", "day": day, "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    let id = begun.text_of("reconciliation_id");
    app.eventually("the day is compared", async || app.reconciliation(id).await["status"] == "DONE").await;
    payonce::operations::publish(&app.instance.app).await.expect("figures");
    payonce::reconciliation::publish(&app.instance.app).await.expect("figures");
    app.admin_get("/admin/audit").await.expect(200);
    payonce::audit::publish(&app.instance.app.db).await.expect("figures");

    let text = app.call(reqwest::Method::GET, "/metrics", "", None).await.expect(200).text;
    let there = named_in(&text);
    let wanted =
        named_in(&(read("deploy/prometheus/rules.yml") + read("deploy/grafana/payonce.json").as_str()));
    assert!(wanted.len() > 15, "{wanted:?}");
    let missing: Vec<_> = wanted.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?} are in no answer of /metrics");
    let _: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/payonce.json")).expect("a dashboard");
    app.end().await;
}
