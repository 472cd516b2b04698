//! Asking sentinels who the master is. The client crate asks them side by side and checks the `ROLE` of whom they
//! name, so a master that is deposed and does not know it yet is passed over.

use std::time::Duration;

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ErrorKind, RedisError, TlsMode};

use super::servers::SentinelGroup;

/// Longest round of asking them; no request waits for it.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// The present master.
pub(super) async fn find_master(group: &SentinelGroup) -> Result<Client, RedisError> {
    let mut client = client(group)?;
    match tokio::time::timeout(ASK_WITHIN, client.async_get_client()).await {
        Ok(found) => found,
        Err(_) => Err((ErrorKind::Io, "the sentinels did not answer in time").into()),
    }
}

fn client(group: &SentinelGroup) -> Result<SentinelClient, RedisError> {
    let addresses = group.sentinels.iter().cloned().map(|(host, port)| match group.is_tls {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    });
    let mut builder = SentinelClientBuilder::new(addresses, &group.master, SentinelServerType::Master)?
        .set_client_to_redis_db(group.login.db());
    if let Some(username) = group.login.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = group.login.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(password) = &group.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if group.is_tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    builder.build()
}
