//! The HTTP server: hyper's own connection builder, because `axum::serve` never closes a half-sent header.
//!
//! Always true: a connection that has not sent a whole header within [`HEADER_DEADLINE`], be it silent, dripping
//! or idle between requests, is closed, and so is one that takes in nothing of its answer for
//! [`UNREAD_DEADLINE`]. A stop lets the requests under way end.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Longest wait for a whole request header.
pub const HEADER_DEADLINE: Duration = Duration::from_secs(2);

/// Longest wait for a peer to take in what was sent to it; the kernel closes the connection then.
const UNREAD_DEADLINE: Duration = Duration::from_secs(20);

/// Most header lines of one request.
const MAX_HEADERS: usize = 64;
/// Most bytes of a request's header.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stopping`, then lets every connection finish the request it is in.
pub async fn serve(listener: TcpListener, router: Router, stopping: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
        };
        match accepted {
            Ok((stream, _peer)) => {
                connections.spawn(serve_connection(stream, router.clone(), stopping.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve_connection(stream: TcpStream, router: Router, stopping: CancellationToken) {
    if let Err(error) = serve_stream(stream, router, stopping).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn serve_stream(
    stream: TcpStream,
    router: Router,
    stopping: CancellationToken,
) -> Result<(), hyper::Error> {
    set_options(&stream);
    let service = TowerToHyperService::new(
        router.map_request(|request: hyper::Request<Incoming>| request.map(Body::new)),
    );
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Small answers wait for nothing, and nobody waits for ever for a peer that does not take its answer.
fn set_options(stream: &TcpStream) {
    let outcome: Result<(), io::Error> = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(stream).set_tcp_user_timeout(Some(UNREAD_DEADLINE)));
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection goes on without its options");
    }
}
