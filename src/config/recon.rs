//! Our books against the channels'.

use std::collections::BTreeMap;
use std::str::FromStr;

use time::Time;
use time::macros::format_description;

use super::{ConfigError, Env};
use crate::money::{Amount, Currency};

/// Our books against the channels'.
#[derive(Clone, Debug)]
pub struct ReconConfig {
    /// When the day before is compared; `None` when only operators begin. Env: `RECON_AT`.
    pub at: Option<Time>,
    /// Whose time of day that is; PostgreSQL knows what it means. Env: `RECON_TZ`.
    pub time_zone: String,
    /// What is done without a person. Env: `RECON_AUTO`.
    pub auto: ReconAuto,
    /// Minor units that may go back, or be charged to users, in a day of UTC without a person. Env: `RECON_DAILY_CAP`.
    pub daily_cap: BTreeMap<Currency, i64>,
}

/// What is done about differences without a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconAuto {
    /// Nothing: all of them wait.
    Off,
    /// Money is applied to open orders, and the channel is asked.
    Safe,
    /// Also what may give money back or charge a user, within the day's cap.
    All,
}

impl FromStr for ReconAuto {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "safe" => Ok(Self::Safe),
            "all" => Ok(Self::All),
            _ => Err("neither off, safe nor all"),
        }
    }
}

impl ReconConfig {
    pub(super) fn read(env: &Env) -> Result<Self, ConfigError> {
        let (auto, daily_cap) = (env.parsed("RECON_AUTO")?, Self::read_cap(env)?);
        if auto == ReconAuto::All && daily_cap.is_empty() {
            return Err(env.wrong("RECON_DAILY_CAP", "it is not set, and RECON_AUTO=all needs it"));
        }
        let time_zone: String = env.parsed("RECON_TZ")?;
        let is_zone = |c: char| c.is_ascii_alphanumeric() || "_+-/".contains(c);
        if time_zone.len() > 64 || !time_zone.chars().all(is_zone) {
            return Err(env.wrong("RECON_TZ", format!("`{time_zone}` is not such a name")));
        }
        Ok(Self { at: Self::read_at(env)?, time_zone, auto, daily_cap })
    }

    fn read_at(env: &Env) -> Result<Option<Time>, ConfigError> {
        let text: String = env.parsed("RECON_AT")?;
        if text == "off" {
            return Ok(None);
        }
        let at = Time::parse(&text, format_description!("[hour]:[minute]"));
        at.map(Some).map_err(|_| env.wrong("RECON_AT", format!("`{text}` is no time of day")))
    }

    fn read_cap(env: &Env) -> Result<BTreeMap<Currency, i64>, ConfigError> {
        let text = env.text("RECON_DAILY_CAP")?.unwrap_or_default();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let read = |entry: &str| {
            let (currency, amount) = entry.split_once(':')?;
            let amount: i64 = amount.parse().ok()?;
            Some((currency.parse().ok()?, Amount::try_from(amount).ok()?.minor()))
        };
        entries
            .map(|entry| {
                read(entry).ok_or_else(|| env.wrong("RECON_DAILY_CAP", format!("`{entry}` is no such cap")))
            })
            .collect()
    }
}
