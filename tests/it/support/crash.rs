//! An instance that dies as by `kill -9`: nothing that it began is brought to an end.

use tokio::runtime::Runtime;

use super::app::{TestApp, TestOptions};

/// An instance with a runtime of its own, over the stores of another.
pub struct Doomed {
    pub app: TestApp,
    runtime: Runtime,
}

impl Doomed {
    /// Starts an instance beside `other`, whose locks die so soon after it.
    pub async fn beside(other: &TestApp, lock_ttl_ms: u32) -> Self {
        let options = TestOptions {
            database_url: Some(other.database_url.clone()),
            redis_url: Some(other.redis_url.clone()),
            clock: other.clock.clone(),
            vars: vec![("LOCK_TTL_MS", lock_ttl_ms.to_string())],
            ..TestOptions::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let app = runtime.spawn(TestApp::start_with(options)).await.expect("an instance");
        Self { app, runtime }
    }

    /// Ends every task of the instance where it stands.
    pub fn kill(self) {
        self.runtime.shutdown_background();
    }
}
