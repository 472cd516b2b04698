//! Carrying a command out: at a running instance, or in this process over the database itself.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

use super::description::{Kind, Place};
use super::target::target;
use super::{Given, Options};
use crate::cli::{CliError, insides, secret_of};
use crate::config::{AdminToken, Config, Env, Role, Strictness};
use crate::http::{self, Answer};
use crate::ids::Ids;
use crate::infra::clock::Clock;
use crate::infra::http_client;
use crate::run;

/// Longest wait for an instance: it gives up its own work after as long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for what walks whole tables or reads a whole file: an audit is given ten minutes there.
const LONG_PATIENCE: Duration = Duration::from_secs(630);

/// Asks what the command says.
pub(super) async fn call(options: &Options, given: &Given) -> Result<Answer, CliError> {
    match &options.url {
        Some(url) => call_instance(url, options, given).await,
        None => call_within(options, given).await,
    }
}

async fn call_instance(url: &str, options: &Options, given: &Given) -> Result<Answer, CliError> {
    let Some(token) = secret_of(options.token.clone(), "PAYONCE_ADMIN_TOKEN")? else {
        return Err(
            "an instance asks for a token: give PAYONCE_ADMIN_TOKEN, PAYONCE_ADMIN_TOKEN_FILE or --token"
                .into(),
        );
    };
    let http = http_client::builder().connect_timeout(PATIENCE).timeout(patience(given)).build()?;
    let request = http.request(given.deed.method.parse()?, target(url, given)?);
    let request = request.bearer_auth(token.expose_secret());
    let request = match body(given)? {
        Some((kind, bytes)) => request.header(CONTENT_TYPE, kind).body(bytes),
        None => request,
    };
    let response = request.send().await?;
    let status = response.status().as_u16();
    Ok((status, response.bytes().await?))
}

fn patience(given: &Given) -> Duration {
    match given.deed.name {
        "audit" | "upload-statement" => LONG_PATIENCE,
        _ => PATIENCE,
    }
}

/// Who can read the service's secrets is an operator: the request goes to the same router, under that name.
async fn call_within(options: &Options, given: &Given) -> Result<Answer, CliError> {
    let mut config = Config::read(&Env::of_process(Strictness::Strict))?;
    let token = Ids::random(Clock::system()).secret();
    let own = AdminToken { role: Role::Operator, name: options.actor(), token: token.clone().into() };
    config.admin.tokens = vec![own];
    let app = insides(config, options.roles)?;
    run::check_schema(&app.db).await?;
    let target = target("http://within", given)?;
    let path = target.query().map_or(target.path().to_owned(), |query| format!("{}?{query}", target.path()));
    let answer = http::answer_within(&app, given.deed.method, &path, &token, body(given)?).await;
    app.tasks.drained().await;
    app.db.close().await;
    Ok(answer?)
}

/// What is sent, and what kind of thing it is. A large statement goes by `payonce reconcile`, piece by piece.
fn body(given: &Given) -> Result<Option<(&'static str, Vec<u8>)>, CliError> {
    if given.deed.method == "GET" {
        return Ok(None);
    }
    if let Some((_, path)) = given.values.iter().find(|(field, _)| field.place == Place::File) {
        return Ok(Some(("application/octet-stream", std::fs::read(path)?)));
    }
    let mut body = Map::new();
    for (field, value) in given.values.iter().filter(|(field, _)| field.place == Place::Body) {
        let value = match field.kind {
            Kind::Text => Value::String(value.clone()),
            Kind::Whole | Kind::Truth | Kind::Json => serde_json::from_str(value)
                .map_err(|error| format!("--{}: {error}", field.name.replace('_', "-")))?,
        };
        body.insert(field.name.clone(), value);
    }
    Ok(Some(("application/json", serde_json::to_vec(&Value::Object(body))?)))
}
