//! Which request is being served.

tokio::task_local! {
    static CURRENT: String;
}

/// Serves a request under its id.
pub async fn within<T>(id: String, serving: impl Future<Output = T>) -> T {
    CURRENT.scope(id, serving).await
}

/// Serves a request under its id, at once.
pub fn within_at_once<T>(id: String, serve: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id, serve)
}

/// The id of the request that is being served; empty outside of one.
#[must_use]
pub fn request_id() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}
