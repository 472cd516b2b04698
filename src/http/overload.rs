//! Overload is turned away at the door: a request beyond what can be worked on in time hears so at once, before its
//! credential and its body are looked at, and costs next to nothing.
//!
//! A place stands for work, and there are about as many as keep the machine busy: more would make everybody wait behind
//! everybody, those who are turned away included. A fixed number, because gathered commands take longer the more of them
//! share a commit: a limit that followed measured times would take that for a queue.
//!
//! Always true: nothing was done for whoever is turned away. A place is taken when the body is there, so that nobody
//! holds one by sending slowly, and given back while its request waits for a channel or for another request
//! ([`tasks::away`]), so that one channel that hangs leaves the places to the customers of all others. Whoever comes back
//! from such a wait goes ahead of newcomers. Channels have places of their own, so that no rush of customers makes a
//! channel repeat what it has to tell; operators and health checks are never turned away, and who only waits for a
//! change of an order takes no place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Edge;
use super::error::Problem;
use crate::infra::tasks;

/// Places of channels for each one of merchants: a callback that is turned away comes again after minutes, so more of
/// them may wait.
const CALLBACKS_FOR_EACH: usize = 4;
/// Those who are turned away are told in turn to come again after 1 s, 2 s … so many, so that they do not all come in the
/// same instant.
const LONGEST_AWAY_SECS: u32 = 3;

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
    /// So many for merchants, and more for channels.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { merchants: Room::of(count), channels: Room::of(count.saturating_mul(CALLBACKS_FOR_EACH)) }
    }

    fn of(&self, callers: Callers) -> Option<&Arc<Room>> {
        match callers {
            Callers::Merchants => Some(&self.merchants),
            Callers::Channels => Some(&self.channels),
            Callers::Others => None,
        }
    }
}

/// Places that are shared. More than its size are taken only by those who come back.
#[derive(Debug)]
struct Room {
    size: usize,
    taken: AtomicUsize,
    turned_away: AtomicU32,
}

impl Room {
    fn of(size: usize) -> Arc<Self> {
        Arc::new(Self { size, taken: AtomicUsize::new(0), turned_away: AtomicU32::new(0) })
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.size
    }

    /// Takes a place, if there is one.
    fn enter(&self) -> bool {
        let one_more = |taken| (taken < self.size).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// When the next one who is turned away may come again.
    fn next_return_secs(&self) -> u32 {
        1 + self.turned_away.fetch_add(1, Ordering::Relaxed) % LONGEST_AWAY_SECS
    }
}

/// A request's place, once it is taken, until it is answered.
#[derive(Debug)]
struct Place {
    callers: Callers,
    room: Arc<Room>,
    is_taken: AtomicBool,
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
        let was_taken = self.is_taken.swap(false, Ordering::Relaxed);
        if was_taken {
            self.room.taken.fetch_sub(1, Ordering::Relaxed);
        }
        was_taken
    }

    fn come_back(&self) {
        if !self.is_taken.swap(true, Ordering::Relaxed) {
            self.room.taken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        tasks::Place::leave(self);
    }
}

/// Lets a request in while there is a place, and turns it away otherwise. What has no body takes its place here.
pub(super) async fn admit(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let callers = Callers::of(request.method(), request.uri());
    let Some(room) = edge.places.of(callers) else { return next.run(request).await };
    let place = Arc::new(Place { callers, room: Arc::clone(room), is_taken: AtomicBool::new(false) });
    let admitted = match *request.method() {
        Method::GET | Method::HEAD => place.take(),
        _ if place.room.is_full() => Err(place.none_left()),
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

    #[test]
    fn whoever_comes_back_finds_a_place_and_newcomers_none_until_there_are_fewer_again() {
        let places = Places::new(2);
        let room = &places.merchants;
        let place = |room: &Arc<Room>| Place {
            callers: Callers::Merchants,
            room: Arc::clone(room),
            is_taken: AtomicBool::new(false),
        };
        let [one, other, third, newcomer] = [(); 4].map(|()| place(room));
        assert!(one.take().is_ok() && other.take().is_ok() && one.take().is_ok(), "a request has one");
        assert!(third.take().is_err() && room.is_full());

        assert!(tasks::Place::leave(&one) && !tasks::Place::leave(&one), "given back once");
        assert!(third.take().is_ok());
        tasks::Place::come_back(&one);
        assert_eq!(room.taken.load(Ordering::Relaxed), 3);
        drop(other);
        assert!(newcomer.take().is_err(), "two of two are taken");
        drop((one, third));
        assert!(newcomer.take().is_ok());
        drop(newcomer);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn those_who_are_turned_away_come_again_in_turn() {
        let room = Room::of(0);
        let told: Vec<u32> = std::iter::repeat_with(|| room.next_return_secs()).take(7).collect();
        assert_eq!(told, [1, 2, 3, 1, 2, 3, 1]);
    }
}
