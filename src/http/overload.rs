//! Overload is turned away at the [`door`](super::door): a request beyond what can be worked on in time hears so at once,
//! before its credential is looked at, and costs next to nothing.
//!
//! Always true: nothing was done for whoever is turned away. A place ([`room`]) stands for work. It is taken when the body
//! is there, so that nobody holds one by sending slowly, and given back while its request waits for a channel or for
//! another request ([`tasks::away`]), so that one channel that hangs leaves the places to the customers of all others. Of
//! bodies that come piece by piece only so many are let in at a time.
//! Whoever comes back from such a wait goes ahead of newcomers. Channels have places of their own, so that no rush of
//! customers makes a channel repeat what it has to tell; operators and health checks are never turned away, and who only
//! waits for a change of an order takes no place. A merchant's key that must be looked up is so in one, whoever shows it
//! ([`in_a_place`]). As long as a merchant's request is under way, old work makes way for it: see
//! [`Served`](crate::infra::served::Served).

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::SemaphorePermit;

use super::error::Problem;
use super::orders::WaitParams;
use super::{Edge, ambiguity, observe};
use crate::infra::body;
use crate::infra::tasks;

mod place;
mod room;

use place::Place;
use room::Room;

/// Largest body that is waited for at the door, in bytes: no more than a connection reads ahead anyway.
const SMALL: u64 = 8 * 1024;

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
        match Self::of_path(uri.path()) {
            // A browser's question whether it may ask at all is answered before everything else.
            _ if *method == Method::OPTIONS => Self::Others,
            Self::Merchants if uri.path().starts_with("/orders") && waits(method, uri) => Self::Others,
            callers => callers,
        }
    }

    fn of_path(path: &str) -> Self {
        match path.split('/').nth(1).unwrap_or_default() {
            "webhooks" => Self::Channels,
            "events" | "orders" | "pay" | "refunds" | "settlements" | "usage" | "users" | "withdrawals" => {
                Self::Merchants
            }
            _ => Self::Others,
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

/// Whether requests of a route can be turned away.
pub(super) fn is_bounded(path: &str) -> bool {
    Callers::of_path(path) != Callers::Others
}

/// Whether a look at an order waits for its next change, as its handler reads that.
fn waits(method: &Method, uri: &Uri) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && Query::<WaitParams>::try_from_uri(uri)
            .is_ok_and(|Query(params)| params.wait.is_some_and(|secs| secs > 0))
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

/// There was no place.
#[derive(Clone, Debug)]
struct NoPlace(Arc<Place>);

/// A request at the door.
pub(super) enum Asked {
    /// It needs no place, has one, or takes it once its body is there.
    In(Request),
    /// To be answered with as little work as that takes.
    TurnedAway(Request),
}

/// Finds a place for a request that needs one. A small body is waited for at the door: it mostly came along with its
/// header, and who then finds no place is turned away here.
pub(super) async fn ask_in(edge: &Edge, mut request: Request) -> Asked {
    let callers = Callers::of(request.method(), request.uri());
    let Some(room) = edge.places.of(callers) else { return Asked::In(request) };
    let serving = (callers == Callers::Merchants).then(|| edge.app.served.enter());
    let place = Arc::new(Place::new(callers, Arc::clone(room), serving));
    let is_let_in = match *request.method() {
        Method::GET | Method::HEAD => place.take(),
        _ if !place.is_left() => false,
        _ if is_small(&request) => {
            let body = std::mem::take(request.body_mut());
            *request.body_mut() = body::arrived(body).await;
            place.take()
        }
        _ => true,
    };
    if is_let_in {
        request.extensions_mut().insert(place);
        Asked::In(request)
    } else {
        request.extensions_mut().insert(NoPlace(place));
        Asked::TurnedAway(request)
    }
}

/// Whether a request's body is at most [`SMALL`], and on its way without being asked for.
fn is_small(request: &Request) -> bool {
    let length = request.body().size_hint().exact();
    length.is_some_and(|length| length <= SMALL) && !request.headers().contains_key(header::EXPECT)
}

/// Lets the body of a request in that has no place yet, while it comes.
pub(super) fn listen(parts: &Parts) -> Result<Option<SemaphorePermit<'_>>, Problem> {
    match parts.extensions.get::<Arc<Place>>().filter(|place| !place.is_taken()) {
        Some(place) => place.listen().map(Some).ok_or_else(|| place.none_left()),
        None => Ok(None),
    }
}

/// Takes the place of a request whose body is there, where it has none yet.
pub(super) fn take_place(parts: &Parts) -> Result<(), Problem> {
    let place = parts.extensions.get::<Arc<Place>>();
    place.map_or(Ok(()), |place| if place.take() { Ok(()) } else { Err(place.none_left()) })
}

/// Whether a request has its place.
pub(super) fn has_place(parts: &Parts) -> bool {
    parts.extensions.get::<Arc<Place>>().is_some_and(|place| place.is_taken())
}

/// Does a piece of work in a place of merchants, for whoever came past the door without one; with none left it is not
/// begun. Old work does not make way for it.
pub(super) async fn in_a_place<T>(edge: &Edge, work: impl Future<Output = T>) -> Result<T, Problem> {
    let place = Place::new(Callers::Merchants, Arc::clone(&edge.places.merchants), None);
    if place.take() { Ok(work.await) } else { Err(place.none_left()) }
}

/// Answers at once who found no place, past all routes: what that takes is taken from those inside, so that a wrong path
/// or method is told so once there is a place. There is no answer here for a page in a browser, which may read one only
/// with its route's word for it, nor for what is ambiguous.
pub(super) fn turn_away(edge: &Edge, request: &Request) -> Option<Response> {
    let no_place = request.extensions().get::<NoPlace>()?;
    let answer = || no_place.0.none_left().into_response();
    (!is_of_a_page(request) && ambiguity::is_plain(request))
        .then(|| observe::at_the_door(edge, request, answer))
}

/// Whether it comes from a page in a browser, to a route that such pages may call (`browser_routes`, all below `/pay/`).
fn is_of_a_page(request: &Request) -> bool {
    request.uri().path().starts_with("/pay/") && request.headers().contains_key(header::ORIGIN)
}

/// Answers who found no place, and everybody before the time is known. Where there is a place, what outlives a client that
/// hung up keeps it.
pub(super) async fn admit(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    if let Some(no_place) = request.extensions().get::<NoPlace>() {
        return no_place.0.none_left().into_response();
    }
    if let Err(away) = edge.app.db.know_time().await {
        return Problem::from(away).into_response();
    }
    match request.extensions().get::<Arc<Place>>().cloned() {
        Some(place) => tasks::holding(place, next.run(request)).await,
        None => next.run(request).await,
    }
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
        for (method, uri) in [
            (Method::GET, "/orders/o1?wait=25"),
            (Method::GET, "/orders/o1?%77ait=3%30"),
            (Method::HEAD, "/orders/o1?wait=1"),
        ] {
            assert_eq!(of(method, uri), Callers::Others, "{uri}");
        }
        for uri in ["/orders/o1?wait=0", "/orders/o1?wait=soon", "/orders/o1?await=1", "/orders/o1?wait"] {
            assert_eq!(of(Method::GET, uri), Callers::Merchants, "{uri}");
        }
        assert_eq!(of(Method::GET, "/pay/po_1?wait=25"), Callers::Merchants);
        assert_eq!(of(Method::POST, "/webhooks/sandbox"), Callers::Channels);
        assert_eq!(of(Method::GET, "/admin/overview"), Callers::Others);
    }

    #[test]
    fn every_route_of_merchants_and_channels_is_bounded() {
        for path in crate::http::document()["paths"].as_object().unwrap().keys() {
            let expected = !["/admin/", "/livez", "/metrics", "/readyz", "/sandbox/"]
                .iter()
                .any(|other| path.starts_with(other));
            assert_eq!(is_bounded(path), expected, "{path}");
        }
    }
}
