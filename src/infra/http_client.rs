//! Outgoing HTTP: one way to begin a client.

use std::sync::OnceLock;

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;

static TRUST: OnceLock<Option<ClientConfig>> = OnceLock::new();

/// A client that goes where it is told and nowhere else: no redirect is followed, and no proxy of the
/// environment is used.
pub fn builder() -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    match TRUST.get_or_init(trust) {
        Some(trust) => builder.tls_backend_preconfigured(trust.clone()),
        // It looks by itself then, and says what is wrong.
        None => builder,
    }
}

/// What the machine trusts: read once, because that is most of what a client's beginning takes.
fn trust() -> Option<ClientConfig> {
    // The one TLS provider of the process; ring, because the database's connections use it anyway. That somebody
    // installed one before is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut trust = ClientConfig::builder().with_platform_verifier().ok()?.with_no_client_auth();
    // As a client of its own would say, which speaks nothing else.
    trust.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(trust)
}
