//! The HTTP server: hyper's own connection builder, because `axum::serve` never closes a half-sent header.
//!
//! Always true: a connection that has not sent a whole header in time ([`patience`]), be it silent or dripping, is
//! closed, one after the other where they are many ([`crowd`]). One that takes in nothing of its answer for
//! [`UNREAD_DEADLINE`], or next to nothing for longer, is closed, too. One that is idle between requests, or waits for something to
//! happen, is kept for long while fewer than half of the connections that there may be are open. Those above all of them wait in the kernel's queue until one ends, which those
//! deadlines make soon. A stop lets the requests under way end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::Door;

mod crowd;
mod patience;

pub(super) use crowd::Crowd;
use patience::{Answer, Noted, Progress};

/// Longest wait for a peer to take in what was sent to it; the kernel closes the connection then.
const UNREAD_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes that the kernel keeps for a peer without having sent them: what it has taken from us is what that peer takes.
const UNSENT: u32 = 32 * 1024;
/// Connections that wait in the kernel's queue at most; when it is full, they come again a second later or not at
/// all. The kernel's own bound is `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Most header lines of one request.
const MAX_HEADERS: usize = 64;
/// Most bytes of a request's header.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait for the other end to close after the last answer.
const LINGER: Duration = Duration::from_secs(1);
/// Most pieces of 16 KiB that are taken in meanwhile.
const MAX_UNHEARD: usize = 256;

/// Begins to listen.
///
/// # Errors
/// When the address cannot be listened on.
pub fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of a process that was here before may still be ending.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Serves as many connections at once as may be in the crowd, until `stopping`, then lets each finish the request it is in.
pub(super) async fn serve(listener: TcpListener, door: Door, stopping: CancellationToken) {
    let (connections, crowd) = (TaskTracker::new(), door.crowd());
    while let Some(Some((stream, place))) = stopping.run_until_cancelled(accept(&listener, &crowd)).await {
        let (crowd, door, stopping) = (Arc::clone(&crowd), door.clone(), stopping.clone());
        connections.spawn(serve_connection(stream, place, door, crowd, stopping));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The next connection, once there is a place for it.
async fn accept(listener: &TcpListener, crowd: &Crowd) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = crowd.place().await?;
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return Some((stream, place)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    door: Door,
    crowd: Arc<Crowd>,
    stopping: CancellationToken,
) {
    let open = metrics::gauge!("payonce_http_connections");
    open.increment(1.0);
    if let Err(error) = serve_stream(stream, door, &crowd, stopping).await {
        tracing::debug!(%error, "a connection ended early");
    }
    open.decrement(1.0);
    drop(place);
}

async fn serve_stream(
    stream: TcpStream,
    door: Door,
    crowd: &Crowd,
    stopping: CancellationToken,
) -> Result<(), hyper::Error> {
    set_options(&stream);
    let progress = Progress::begin();
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (answer, under_way) = (door.clone().carry_out(request.map(Body::new)), progress.carry_out());
        async move { answer.await.map(|answer| answer.map(|body| Answer { body, _request: under_way })) }
    });
    let mut connection = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(Noted { stream, progress: Arc::clone(&progress) }), service);
    let driven = progress.drive(&mut connection, crowd);
    let Some(driven) = stopping.run_until_cancelled(driven).await else {
        Pin::new(&mut connection).graceful_shutdown();
        return progress.drive(&mut connection, crowd).await.unwrap_or(Ok(()));
    };
    // Who let the time run out was told nothing.
    let Some(ended) = driven else { return Ok(()) };
    let Noted { stream, .. } = connection.into_parts().io.into_inner();
    stopping.run_until_cancelled(tokio::time::timeout(LINGER, heard_out(&stream))).await;
    ended
}

/// Takes in what the other end still says, until it closes: a close with bytes unread is a reset, which takes an
/// answer along that is on its way, such as the one that says what was too long.
async fn heard_out(stream: &TcpStream) {
    for _ in 0..MAX_UNHEARD {
        if stream.readable().await.is_err() {
            return;
        }
        let mut unheard = [0; 16 * 1024];
        match stream.try_read(&mut unheard) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Small answers wait for nothing, and nobody waits for ever for a peer that does not take its answer.
fn set_options(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let outcome: Result<(), io::Error> = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(Some(UNREAD_DEADLINE)))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection goes on without its options");
    }
}
