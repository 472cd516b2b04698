//! A client whose every connection goes to an address that was looked at.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::Outside;
use crate::infra::http_client;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection that rests is kept: less than any server waits before it closes one.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Where names are looked up; stories have names of their own.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name.
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// Names that this process looks up at once at most. Each keeps a thread for as long as its server is silent, also after
/// whoever asked has gone away, and of those a process has 512 for everything that blocks.
static LOOKUPS: Semaphore = Semaphore::const_new(64);

/// As the machine does.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        async move {
            let place = LOOKUPS.acquire().await.map_err(io::Error::other)?;
            let looking = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name, 0)).await;
                drop(place);
                Ok(found?.map(|found| found.ip()).collect())
            });
            looking.await.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
        .boxed()
    }
}

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
