//! Overload is turned away at the door: a request beyond what can be worked on in time hears so at once, before its
//! credential and its body are looked at, and costs next to nothing.
//!
//! Always true: nothing was done for whoever is turned away. A place ([`room`]) stands for work. It is taken when the body
//! is there, so that nobody holds one by sending slowly, and given back while its request waits for a channel or for
//! another request ([`tasks::away`]), so that one channel that hangs leaves the places to the customers of all others.
//! Whoever comes back from such a wait goes ahead of newcomers. Channels have places of their own, so that no rush of
//! customers makes a channel repeat what it has to tell; operators and health checks are never turned away, and who only
//! waits for a change of an order takes no place. As long as a merchant's request is under way, old work makes way for it:
//! see [`Served`](crate::infra::served::Served).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Edge;
use super::error::Problem;
use crate::infra::served::Serving;
use crate::infra::tasks;

mod room;

use room::Room;

/// The places of an instance. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Places {
    merchants: Arc<Room>,
    channels: Arc<Room>,
}

/// Whose requests share places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    Merchants,
    Channels,
    /// Not bounded here.
    Others,
}

impl Callers {
    fn of(method: &Method, uri: &Uri) -> Self {
        let first = uri.path().split('/').nth(1).unwrap_or_default();
        let waits =
            || uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("wait=")));
        match first {
            "webhooks" => Self::Channels,
            "admin" => Self::Others,
            "orders" if *method == Method::GET && waits() => Self::Others,
            _ => Self::Merchants,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Merchants => "merchants",
            Self::Channels => "channels",
            Self::Others => "others",
        }
    }
}

impl Places {
    /// So many for merchants, and as many for channels.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { merchants: Arc::new(Room::of(count)), channels: Arc::new(Room::always_whole(count)) }
    }

    fn of(&self, callers: Callers) -> Option<&Arc<Room>> {
        match callers {
            Callers::Merchants => Some(&self.merchants),
            Callers::Channels => Some(&self.channels),
            Callers::Others => None,
        }
    }
}

/// A request's place, once it is taken, until it is answered.
#[derive(Debug)]
struct Place {
    callers: Callers,
    room: Arc<Room>,
    is_taken: AtomicBool,
    /// Old work makes way for merchants. It does not for channels: closing old orders makes those call.
    _serving: Option<Serving>,
}

impl Place {
    fn take(&self) -> Result<(), Problem> {
        if !self.is_taken.load(Ordering::Relaxed) {
            if !self.room.enter() {
                return Err(self.none_left());
            }
            self.is_taken.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn none_left(&self) -> Problem {
        let callers = self.callers.as_str();
        metrics::counter!("payonce_requests_turned_away_total", "callers" => callers).increment(1);
        let detail = "more requests are under way than can be answered in time; nothing was done, ask again";
        Problem::unavailable("OVERLOADED", detail).retry_after(self.room.next_return_secs())
    }
}

impl tasks::Place for Place {
    fn leave(&self) -> bool {
        let may_leave = self.is_taken.load(Ordering::Relaxed) && self.room.leave_for_a_while();
        if may_leave {
            self.is_taken.store(false, Ordering::Relaxed);
        }
        may_leave
    }

    fn come_back(&self) {
        if !self.is_taken.swap(true, Ordering::Relaxed) {
            self.room.come_back();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            self.room.leave();
        }
    }
}

/// Lets a request in while there is a place, and turns it away otherwise. What has no body takes its place here.
pub(super) async fn admit(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let callers = Callers::of(request.method(), request.uri());
    let Some(room) = edge.places.of(callers) else { return next.run(request).await };
    let serving = (callers == Callers::Merchants).then(|| edge.app.served.enter());
    let room = Arc::clone(room);
    let place = Arc::new(Place { callers, room, is_taken: AtomicBool::new(false), _serving: serving });
    let admitted = match *request.method() {
        Method::GET | Method::HEAD => place.take(),
        _ if !place.room.has_place() => Err(place.none_left()),
        _ => Ok(()),
    };
    if let Err(turned_away) = admitted {
        return turned_away.into_response();
    }
    request.extensions_mut().insert(Arc::clone(&place));
    // What outlives a client that hung up keeps the place.
    tasks::holding(place, next.run(request)).await
}

/// Takes the place of a request whose body is there.
pub(super) fn take_place(parts: &Parts) -> Result<(), Problem> {
    parts.extensions.get::<Arc<Place>>().map_or(Ok(()), |place| place.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_by_who_asks() {
        let of = |method, uri: &'static str| Callers::of(&method, &Uri::from_static(uri));
        assert_eq!(of(Method::POST, "/pay/url"), Callers::Merchants);
        assert_eq!(of(Method::POST, "/orders?wait=25"), Callers::Merchants);
        assert_eq!(of(Method::GET, "/orders/o1"), Callers::Merchants);
        assert_eq!(of(Method::GET, "/orders/o1?wait=25"), Callers::Others);
        assert_eq!(of(Method::GET, "/pay/po_1?wait=25"), Callers::Merchants);
        assert_eq!(of(Method::POST, "/webhooks/sandbox"), Callers::Channels);
        assert_eq!(of(Method::GET, "/admin/overview"), Callers::Others);
    }
}
