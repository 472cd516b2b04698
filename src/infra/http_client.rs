//! Outgoing HTTP: one way to begin a client.

use std::sync::Once;

static PROVIDER: Once = Once::new();

/// A client that goes where it is told and nowhere else: no redirect is followed, and no proxy of the
/// environment is used.
pub fn builder() -> reqwest::ClientBuilder {
    // The one TLS provider of the process; ring, because the database's connections use it anyway. That somebody
    // installed one before is as good.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy()
}
