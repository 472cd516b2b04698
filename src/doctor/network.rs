//! Where the service listens, how the world reaches it, and the broker.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Url;
use tokio::net::TcpListener;

use super::model::Finding;
use super::settings::Settings;
use crate::config::Config;
use crate::infra::amqp::{Amqp, AmqpDown};
use crate::infra::http_client;

/// Longest wait for another instance.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn examine(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(config) = settings.with("BIND_ADDR") {
        findings.push(port(config.http.bind).await);
    }
    if let Some(config) = settings.with("PUBLIC_URL") {
        findings.push(public_url(config));
    }
    if let Some(config) = settings.with("AMQP_URL").filter(|config| config.broker.url.is_some()) {
        findings.push(broker(config).await);
    }
    findings
}

async fn port(bind: SocketAddr) -> Finding {
    let check = "network.port";
    let Err(error) = TcpListener::bind(bind).await else {
        return Finding::fine(check, format!("{bind} is free"));
    };
    let Ok(http) = http_client::builder().timeout(PATIENCE).build() else {
        return Finding::unknown(check, format!("{bind}: {error}"));
    };
    if let Ok(answer) = http.get(format!("http://{bind}/livez")).send().await
        && answer.headers().contains_key("x-request-id")
    {
        return Finding::note(check, format!("a payonce listens on {bind} already"));
    }
    let mend = format!(
        "BIND_ADDR={}:{}, or stop what `ss -ltnp 'sport = :{}'` shows",
        bind.ip(),
        bind.port().wrapping_add(1),
        bind.port()
    );
    Finding::wrong(check, format!("cannot listen on {bind}: {error}"), mend)
}

fn public_url(config: &Config) -> Finding {
    let check = "network.public_url";
    let mend = "PUBLIC_URL=https://pay.shop.example";
    let Some(text) = &config.http.public_url else {
        if config.http.bind.ip().is_unspecified() {
            let found =
                format!("not set, so browsers and channels would be sent to http://{}", config.http.bind);
            return Finding::wrong(check, found, mend);
        }
        return Finding::note(
            check,
            format!("not set: http://{}, which only this machine reaches", config.http.bind),
        );
    };
    let url = Url::parse(text).ok();
    let is_near = url
        .as_ref()
        .and_then(Url::host_str)
        .is_some_and(|host| host == "localhost" || host.starts_with("127."));
    if text.starts_with("http://") && !is_near {
        return Finding::wrong(
            check,
            format!("{text} is not encrypted: keys and callbacks could be read"),
            mend,
        );
    }
    Finding::fine(check, text)
}

/// Whether the broker lets the service in, as that will ask it.
async fn broker(config: &Config) -> Finding {
    let check = "rabbitmq.reachable";
    let mend = "AMQP_URL=amqp://user:password@host:5672/vhost, or: rabbitmq-server -detached";
    let Some(url) = &config.broker.url else { return Finding::wrong(check, "AMQP_URL is not set", mend) };
    let amqp = match Amqp::new(url) {
        Ok(amqp) => amqp,
        Err(error) => return Finding::wrong(check, error.to_string(), mend),
    };
    match amqp.reach().await {
        Ok(()) => Finding::fine(check, "it lets the service in"),
        Err(AmqpDown::Failed(error)) => Finding::wrong(check, error.to_string(), mend),
        Err(error) => Finding::wrong(check, error.to_string(), mend),
    }
}
