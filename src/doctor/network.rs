//! Where the service listens, how the world reaches it, and the broker.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Url;
use tokio::net::{TcpListener, TcpStream};

use super::model::Finding;
use super::settings::Settings;
use crate::config::{Config, Env};
use crate::infra::http_client;

/// Longest wait for a peer.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn examine(env: &Env, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(config) = settings.with("BIND_ADDR") {
        findings.push(port(config.http.bind).await);
    }
    if let Some(config) = settings.with("PUBLIC_URL") {
        findings.push(public_url(config));
    }
    if let Some(url) = env.raw("AMQP_URL") {
        findings.push(broker(url).await);
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
    if url.as_ref().is_some_and(|url| url.path() != "/" || url.query().is_some()) {
        let found = format!("{text} has a path or a query; our own paths come behind it");
        return Finding::wrong(check, found, mend);
    }
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

/// Whether the broker can be reached at all.
async fn broker(url: &str) -> Finding {
    let check = "rabbitmq.reachable";
    let mend = "AMQP_URL=amqp://user:password@host:5672/, or: rabbitmq-server -detached";
    let Ok(parsed) = Url::parse(url) else { return Finding::wrong(check, "AMQP_URL is not a URL", mend) };
    let port = parsed.port().unwrap_or(if parsed.scheme() == "amqps" { 5671 } else { 5672 });
    let host = parsed.host_str().unwrap_or("localhost").to_owned();
    match tokio::time::timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(_)) => Finding::fine(check, format!("{host}:{port} takes connections")),
        Ok(Err(error)) => Finding::wrong(check, format!("{host}:{port}: {error}"), mend),
        Err(_) => Finding::wrong(check, format!("{host}:{port}: no answer within three seconds"), mend),
    }
}
