//! Endpoints as they are saved, refused at once where they could not be reached later, and as they are told again.

use std::net::IpAddr;
use std::time::Duration;

use super::relay::Relay;
use super::store;
use crate::infra::db::{DbError, Tx};
use crate::infra::outside::{Lookup, read_url};

/// Longest wait for the addresses of a name.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

impl Relay {
    /// Makes sure that a URL has the form of an endpoint.
    ///
    /// # Errors
    /// What is wrong with it, for whoever gave it.
    pub fn check_form(&self, url: &str) -> Result<(), String> {
        read_url(&self.outside, url).map(drop)
    }

    /// The same, and that its name stands for an address that may be reached now. A name that nobody knows yet is let
    /// in: it is looked up anew whenever something goes there.
    ///
    /// # Errors
    /// What is wrong with it, for whoever gave it.
    pub async fn check_endpoint(&self, url: &str) -> Result<(), String> {
        let read = read_url(&self.outside, url)?;
        if read.address.is_some() {
            return Ok(());
        }
        let looking = tokio::time::timeout(LOOK_WITHIN, self.lookup.look(read.host.clone())).await;
        let found: Vec<IpAddr> = looking.ok().and_then(Result::ok).unwrap_or_default();
        let refusals: Vec<_> =
            found.iter().filter_map(|address| self.outside.check(*address).err()).collect();
        match refusals.first() {
            Some(refusal) if refusals.len() == found.len() => {
                Err(format!("{} stands for {refusal}", read.host))
            }
            _ => Ok(()),
        }
    }
}

/// What an exception about an endpoint that wants nothing more is about.
pub(super) fn subject_of(merchant_id: &str, url: &str) -> String {
    format!("{merchant_id} {url}")
}

/// Lets the endpoint of such an exception be told again: a person has seen to it. What was dropped meanwhile can be sent
/// again.
///
/// # Errors
/// When the database cannot be reached.
pub(crate) async fn enable_in_tx(tx: &mut Tx, subject: &str) -> Result<(), DbError> {
    match subject.split_once(' ') {
        Some((merchant_id, url)) => store::enable(tx, merchant_id, url).await,
        None => Ok(()),
    }
}
