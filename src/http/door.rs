//! The door: one thread has all connections, and the workers do the work.
//!
//! Always true: what found its place ([`overload`]) is carried out by the workers, answers that are made while they are sent
//! included, and what found none is answered here. Gathered commands share a commit, so answers come due in crowds; on a
//! thread of theirs, whoever is turned away would wait behind each crowd to hear so. And however many are turned away, and
//! however soon they come again, that takes one thread's share of the machine from those who are served.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

use super::observe::ArrivedAt;
use super::overload::{self, Asked};
use super::server::Crowd;
use super::{Edge, panicked, server};

/// Pieces of an answer that are made ahead of the one that is sent.
const PIECES_AHEAD: usize = 1;

/// What the requests of all connections go through. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door {
    router: Router,
    edge: Edge,
    workers: Handle,
}

impl Door {
    /// A door to these routes. The runtime that this is called in has the workers.
    #[must_use]
    pub fn new(router: Router, edge: Edge) -> Self {
        Self { router, edge, workers: Handle::current() }
    }

    /// Lets connections in, as many at once as their crowd may have, until `closing`. What is given ends with the last of them.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub async fn open(
        self,
        listener: TcpListener,
        closing: CancellationToken,
    ) -> io::Result<oneshot::Receiver<Infallible>> {
        let (opened, is_open) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        thread::Builder::new().name("payonce-door".to_owned()).spawn(move || {
            match begin(listener) {
                Ok((runtime, listener)) => {
                    // Who asked has gone: then there is nobody to let in for.
                    if opened.send(Ok(())).is_ok() {
                        runtime.block_on(server::serve(listener, self, closing));
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
            drop(ended);
        })?;
        is_open.await.map_err(io::Error::other)??;
        Ok(end)
    }

    /// All whom it lets in.
    pub(super) fn crowd(&self) -> Arc<Crowd> {
        Arc::clone(&self.edge.crowd)
    }

    /// Answers a request. There is no answer when the workers have gone.
    pub(super) async fn carry_out(self, mut request: Request) -> Result<Response, JoinError> {
        let Self { router, edge, workers } = self;
        request.extensions_mut().insert(ArrivedAt(Instant::now()));
        match overload::ask_in(&edge, request).await {
            Asked::TurnedAway(request) => match overload::turn_away(&edge, &request) {
                Some(answer) => Ok(answer),
                None => Ok(answered(router, request).await),
            },
            Asked::In(request) => {
                let work = edge.app.tasks.track(answered(router, request), &workers);
                // Who hangs up ends the wait; what runs as an owned task goes on.
                match AbortOnDropHandle::new(work).await {
                    Ok(answer) => Ok(answer.map(|body| made_by(&workers, body))),
                    Err(ended) => ended.try_into_panic().map(panicked::answer),
                }
            }
        }
    }
}

/// What the thread needs.
fn begin(listener: TcpListener) -> io::Result<(runtime::Runtime, tokio::net::TcpListener)> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    drop(inside);
    Ok((runtime, listener))
}

async fn answered(router: Router, request: Request) -> Response {
    let Ok(answer) = router.oneshot(request).await;
    answer
}

/// Has an answer that is made while it is sent made by the workers: it asks the database, and what a connection is opened by
/// drives it for its whole life.
fn made_by(workers: &Handle, body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (pieces, made) = mpsc::channel(PIECES_AHEAD);
    let making = AbortOnDropHandle::new(workers.spawn(async move {
        let mut body = body.into_data_stream();
        while let Some(piece) = body.next().await {
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
    }));
    Body::from_stream(stream::unfold(Some((made, making)), next_piece))
}

/// The pieces that are made, and their maker.
type Made = (mpsc::Receiver<Result<Bytes, axum::Error>>, AbortOnDropHandle<()>);

/// What was cut off must not look whole.
async fn next_piece(state: Option<Made>) -> Option<(Result<Bytes, axum::Error>, Option<Made>)> {
    let (mut made, making) = state?;
    match made.recv().await {
        Some(piece) => Some((piece, Some((made, making)))),
        None => making.await.err().map(|cut_off| (Err(axum::Error::new(cut_off)), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of two pieces, each of which tells by whom it was made, and which ends well or not.
    fn two_pieces(ends_well: bool) -> Body {
        let pieces = stream::iter(0..3).filter_map(move |number| async move {
            assert!(number < 2 || ends_well, "in the middle of an answer");
            (number < 2).then(|| Ok::<_, Infallible>(format!("{:?};", Handle::current().id())))
        });
        Body::from_stream(pieces)
    }

    #[test]
    fn what_is_made_while_it_is_sent_is_made_by_the_workers_and_what_is_cut_off_is_not_whole() {
        let workers = runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let door = runtime::Builder::new_current_thread().build().unwrap();
        let read = |body| door.block_on(axum::body::to_bytes(body, 1024));

        let made = read(made_by(workers.handle(), two_pieces(true))).unwrap();
        assert_eq!(made, format!("{0:?};{0:?};", workers.handle().id()));
        read(made_by(workers.handle(), two_pieces(false))).unwrap_err();
        assert_eq!(read(made_by(workers.handle(), Body::from("whole"))).unwrap(), "whole");
    }
}
