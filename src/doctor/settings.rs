//! The configuration, variable by variable.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use reqwest::Url;

use super::model::Finding;
use crate::config::{Config, Env, VARIABLES, Variable};
use crate::run::Roles;

/// What can be examined further.
pub(super) struct Settings {
    /// The configuration; what is wrong in it has a harmless value.
    pub(super) config: Option<Config>,
    wrong: BTreeSet<&'static str>,
}

impl Settings {
    /// The configuration, when this variable of it is right.
    pub(super) fn with(&self, name: &str) -> Option<&Config> {
        self.config.as_ref().filter(|_| !self.wrong.contains(name))
    }
}

/// A harmless value of a variable that is wrong, so that the ones after it can be read too.
fn stand_in(variable: &Variable) -> &'static str {
    match variable.name {
        "DATABASE_URL" => "postgres://127.0.0.1:1/payonce",
        "REDIS_URL" => "redis://127.0.0.1:1",
        "AMQP_URL" => "amqp://127.0.0.1:1",
        "ADMIN_TOKENS" => "operator:stands-in-for-a-right-value",
        // Without one RECON_AUTO=all is refused.
        "RECON_DAILY_CAP" => "CNY:1",
        _ if variable.is_secret => "stands-in-for-a-right-value",
        _ => variable.default,
    }
}

/// Reads all variables; a wrong one does not hide the next.
pub(super) fn examine(env: &Env) -> (Settings, Vec<Finding>) {
    let (mut env, mut findings, mut wrong) = (env.clone(), Vec::new(), BTreeSet::new());
    let config = loop {
        let error = match Config::read(&env) {
            Ok(config) => break Some(config),
            Err(error) => error,
        };
        let Some(variable) = VARIABLES.iter().find(|variable| variable.name == error.name) else {
            break None;
        };
        let mend = mend(&env, variable);
        findings.push(Finding::wrong(
            name_of(variable),
            format!("{}; expected {}", error.problem, error.expected),
            mend,
        ));
        if !wrong.insert(error.name) {
            // Even the stand-in is refused: a defect of ours, which must not go round for ever.
            break None;
        }
        env.replace(error.name, stand_in(variable));
    };
    findings.extend(roles(&env));
    let told: BTreeSet<String> = findings.iter().map(|finding| finding.check.clone()).collect();
    let others = VARIABLES.iter().filter(|variable| !told.contains(&name_of(variable)));
    findings.extend(others.map(|variable| match config {
        Some(_) => Finding::fine(name_of(variable), shown(&env, variable)),
        None => Finding::unknown(name_of(variable), "not looked at, because of what is wrong before it"),
    }));
    (Settings { config, wrong }, findings)
}

fn name_of(variable: &Variable) -> String {
    format!("config.{}", variable.name)
}

/// The line that mends it. A secret is drawn once and kept: a start script that draws it would have another one each time.
fn mend(env: &Env, variable: &Variable) -> String {
    let (name, file, example) = (variable.name, format!("{}_FILE", variable.name), example(variable));
    let line = format!("{name}={example}");
    match (env.stands(name), env.raw(&file).filter(|_| variable.is_secret)) {
        (true, Some(_)) => format!("leave out {name}= or {file}="),
        // What stands in it may be all that there is of a key.
        (false, Some(path)) if may_hold_something(path) => {
            format!("put {path} right, or let this user read it")
        }
        (false, Some(path)) => format!("echo \"{example}\" > \"{path}\""),
        (_, None) if !line.contains("$(") => line,
        (false, None) => format!("echo \"{line}\" >> .env"),
        (true, None) => format!("echo \"{line}\", and that in place of what is there"),
    }
}

/// Whether something may stand in a file, as far as can be seen from here.
fn may_hold_something(path: &str) -> bool {
    match std::fs::metadata(path) {
        Ok(file) => file.len() > 0,
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// A value to start from; a secret is best drawn.
fn example(variable: &Variable) -> String {
    match variable.name {
        "DATABASE_URL" => "postgres://user:password@host:5432/payonce".to_owned(),
        "REDIS_URL" => "redis://host:6379/0".to_owned(),
        "AMQP_URL" => "amqp://user:password@host:5672/%2f".to_owned(),
        "ADMIN_TOKENS" => "operator@NAME:$(openssl rand -hex 24)".to_owned(),
        "PUBLIC_URL" => "https://pay.shop.example".to_owned(),
        "SSL_CERT_FILE" => "/etc/ssl/certs/ca-certificates.crt".to_owned(),
        "RECON_DAILY_CAP" => "CNY:500000".to_owned(),
        _ if variable.is_secret => "$(openssl rand -hex 24)".to_owned(),
        _ => variable.default.to_owned(),
    }
}

fn shown(env: &Env, variable: &Variable) -> String {
    match (env.raw(variable.name), variable.is_secret) {
        (Some(_), true) => "set".to_owned(),
        (Some(value), false) => without_password(value),
        (None, true) if env.is_set(variable.name) => "set, in a file".to_owned(),
        (None, _) if variable.default.is_empty() => "not set".to_owned(),
        (None, _) => format!("{} (the default)", variable.default),
    }
}

/// A URL may hold a password, for whoever asks there.
fn without_password(value: &str) -> String {
    match Url::parse(value) {
        Ok(mut url) if url.password().is_some() => {
            let is_hidden = url.set_password(None).is_ok() && url.set_username("").is_ok();
            if is_hidden { format!("{url} (and a password)") } else { "set".to_owned() }
        }
        _ => value.to_owned(),
    }
}

/// The one variable that the command line reads.
fn roles(env: &Env) -> Option<Finding> {
    let check = "config.PAYONCE_ROLES";
    let written = env.raw("PAYONCE_ROLES").unwrap_or("api,workers");
    match written.parse::<Roles>() {
        Err(error) => Some(Finding::wrong(check, error, "PAYONCE_ROLES=api,workers")),
        Ok(roles) if !roles.sandbox && env.raw("SANDBOX_URL").is_none() => {
            let found = format!(
                "{written}, and no SANDBOX_URL: there is no channel, and every pay URL is refused with UNKNOWN_CHANNEL; \
                 PAYONCE_ROLES=api,workers,sandbox has the sandbox, in which no real money moves"
            );
            Some(Finding::note(check, found))
        }
        Ok(_) => None,
    }
}
