//! Reading variables: each by its name, wrong ones told by it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use secrecy::SecretString;

use super::variables;

/// Fewest bytes of a secret outside `dev`.
pub const MIN_SECRET_BYTES: usize = 24;

/// A variable that is missing or wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; expected {expected}")]
pub struct ConfigError {
    /// The variable's name.
    pub name: &'static str,
    /// What is wrong with it. Never shows the value of a secret.
    pub problem: String,
    /// What it should look like.
    pub expected: &'static str,
}

/// Adds to the process's environment what a `.env` file in the working directory says; it never overrides what is there. To
/// be called while the process has one thread.
///
/// # Errors
/// [`ConfigError`] when there is one that cannot be read to its end. Shows nothing of it.
pub fn add_file() -> Result<(), ConfigError> {
    let problem = match dotenvy::from_path(".env") {
        Err(error) if !error.not_found() => match error {
            dotenvy::Error::Io(error) => error.to_string(),
            _ => "a line of it cannot be read".to_owned(),
        },
        _ => return Ok(()),
    };
    Err(ConfigError { name: ".env", problem, expected: "lines of NAME=value, or no such file" })
}

/// Whether a missing or short secret is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Everywhere but on a developer's machine.
    Strict,
    /// `payonce dev` and tests: weak secrets have weak defaults.
    Dev,
}

/// Where variables come from: the process, or a map in tests.
#[derive(Clone, Debug)]
pub struct Env {
    values: HashMap<String, String>,
    /// Names of those whose value is no text. Most are none of ours.
    unreadable: HashSet<String>,
    pub(super) strictness: Strictness,
}

impl Env {
    /// The process's environment, to which `main` has added a file's: see [`add_file`].
    #[must_use]
    pub fn of_process(strictness: Strictness) -> Self {
        Self::of_os(strictness, std::env::vars_os())
    }

    pub(super) fn of_os(
        strictness: Strictness,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let mut env = Self { values: HashMap::new(), unreadable: HashSet::new(), strictness };
        // Our own names are all text.
        for (name, value) in variables.into_iter().filter_map(|(k, v)| Some((k.into_string().ok()?, v))) {
            if let Ok(value) = value.into_string() {
                env.values.insert(name, value);
            } else {
                env.unreadable.insert(name);
            }
        }
        env
    }

    /// Just these variables.
    pub fn of<'a>(strictness: Strictness, values: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        Self::of_os(strictness, values.into_iter().map(|(k, v)| (k.into(), v.into())))
    }

    /// Sets a variable, whatever it was.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.unreadable.remove(name);
        self.values.insert(name.to_owned(), value.into());
    }

    /// Has this value, and no other, stand for a variable; none where it is empty.
    pub fn replace(&mut self, name: &str, value: &str) {
        let file = format!("{name}_FILE");
        for place in [name, &file] {
            self.unreadable.remove(place);
            self.values.remove(place);
        }
        if !value.is_empty() {
            self.set(name, value);
        }
    }

    /// The value as it stands, without its default; an empty one counts as missing.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether a value is given, be it in a file.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.stands(name) || self.stands(&format!("{name}_FILE"))
    }

    /// Whether anything is given in this very place, be it no text.
    #[must_use]
    pub fn stands(&self, place: &str) -> bool {
        self.raw(place).is_some() || self.unreadable.contains(place)
    }

    /// What stands in `place`, which says what `name` is; an empty one counts as missing.
    fn said_by(&self, place: &str, name: &'static str) -> Result<Option<&str>, ConfigError> {
        if self.unreadable.contains(place) {
            return Err(self.wrong(name, format!("what stands in {place} is not UTF-8")));
        }
        Ok(self.raw(place))
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, ConfigError> {
        let (variable, file) = (variables::find(name), format!("{name}_FILE"));
        if let Some(value) = self.said_by(name, name)? {
            // Such as an old one in `.env`, and a new one from whoever starts the service.
            if variable.is_secret && self.said_by(&file, name)?.is_some() {
                return Err(self.wrong(name, format!("{file} is set, too: leave one of them out")));
            }
            return Ok(Some(value.to_owned()));
        }
        if variable.is_secret
            && let Some(path) = self.said_by(&file, name)?
        {
            let content = std::fs::read_to_string(path)
                .map_err(|error| self.wrong(name, format!("the file of {file} cannot be read ({error})")))?;
            return Ok(Some(content.trim_end_matches(['\r', '\n']).to_owned()));
        }
        Ok(Some(variable.default).filter(|default| !default.is_empty()).map(str::to_owned))
    }

    #[expect(clippy::unused_self, reason = "reads like the other ways to end")]
    pub(super) fn wrong(&self, name: &'static str, problem: impl Into<String>) -> ConfigError {
        ConfigError { name, problem: problem.into(), expected: variables::find(name).expected }
    }

    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, name: &'static str) -> Result<T, ConfigError> {
        let text = self.text(name)?.ok_or_else(|| self.wrong(name, "it is not set"))?;
        text.parse().map_err(|error| self.wrong(name, format!("`{text}` is not valid ({error})")))
    }

    pub(super) fn within<T>(&self, name: &'static str, low: T, high: T) -> Result<T, ConfigError>
    where
        T: FromStr<Err: Display> + PartialOrd + Display,
    {
        let value: T = self.parsed(name)?;
        if value < low || value > high {
            return Err(self.wrong(name, format!("{value} is not from {low} to {high}")));
        }
        Ok(value)
    }

    /// What stands in `SSL_CERT_FILE` is read by whoever makes a connection, and would be missed there in silence.
    pub(super) fn check_authorities(&self) -> Result<(), ConfigError> {
        let name = "SSL_CERT_FILE";
        self.said_by(name, name)?;
        // An empty one is no missing one: whoever makes a connection takes it at its word, and trusts nobody.
        let Some(path) = self.values.get(name) else { return Ok(()) };
        let content =
            std::fs::read(path).map_err(|error| self.wrong(name, format!("it cannot be read ({error})")))?;
        // What stands between certificates may be in any encoding.
        let has_some = String::from_utf8_lossy(&content).contains("-----BEGIN CERTIFICATE-----");
        if has_some { Ok(()) } else { Err(self.wrong(name, "no certificate stands in it")) }
    }

    pub(super) fn millis(&self, name: &'static str, low: u64, high: u64) -> Result<Duration, ConfigError> {
        Ok(Duration::from_millis(self.within(name, low, high)?))
    }

    pub(super) fn url(&self, name: &'static str, schemes: &[&str]) -> Result<Option<String>, ConfigError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let url =
            reqwest::Url::parse(&text).map_err(|error| self.wrong(name, format!("not a URL ({error})")))?;
        if !schemes.contains(&url.scheme()) {
            return Err(self.wrong(name, format!("the scheme `{}` is not supported", url.scheme())));
        }
        // Whoever reads it further would repeat what it cannot read, and there may be a password in it.
        if !text.trim()[url.scheme().len()..].starts_with("://") {
            return Err(self.wrong(name, "there is no `//` behind the scheme"));
        }
        Ok(Some(text))
    }

    /// A secret that only commands ask for, where it is given.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn secret_of_command(&self, name: &'static str) -> Result<Option<SecretString>, ConfigError> {
        Ok(self.text(name)?.map(Into::into))
    }

    pub(super) fn secret(&self, name: &'static str, dev_default: &str) -> Result<SecretString, ConfigError> {
        let is_dev = self.strictness == Strictness::Dev;
        match self.text(name)? {
            Some(secret) if is_dev || secret.len() >= MIN_SECRET_BYTES => Ok(secret.into()),
            Some(_) => Err(self.wrong(name, format!("it has fewer than {MIN_SECRET_BYTES} bytes"))),
            None if is_dev => Ok(dev_default.into()),
            None => Err(self.wrong(name, "it is not set")),
        }
    }
}
