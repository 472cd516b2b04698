//! A client whose every connection goes to an address that was looked at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::Outside;
use super::lookup::Lookup;
use crate::infra::http_client;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection that rests is kept: less than any server waits before it closes one.
const KEPT_FOR: Duration = Duration::from_secs(1);

struct Guarded<L> {
    outside: Outside,
    lookup: L,
}

impl<L: Lookup> Resolve for Guarded<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let (looking, outside) = (self.lookup.look(name.as_str().to_owned()), self.outside.clone());
        Box::pin(async move {
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in looking.await? {
                match outside.check(address) {
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(refusal) if allowed.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// The client. A host that is an address is connected to without a lookup: whoever uses the client checks it before
/// ([`super::read_url`]).
///
/// # Errors
/// When the machine has no certificates to trust.
pub fn client(outside: Outside, lookup: impl Lookup) -> reqwest::Result<reqwest::Client> {
    http_client::builder()
        .dns_resolver(Arc::new(Guarded { outside, lookup }))
        .connect_timeout(CONNECT_WITHIN)
        .pool_idle_timeout(KEPT_FOR)
        .tcp_nodelay(true)
        .user_agent("Payonce")
        .build()
}
