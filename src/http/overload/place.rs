//! A request's place among those under way: taken once, given back with the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::SemaphorePermit;

use super::Callers;
use super::room::Room;
use crate::http::error::Problem;
use crate::infra::served::Serving;
use crate::infra::tasks;

/// A request's place, once it is taken, until it is answered.
#[derive(Debug)]
pub(super) struct Place {
    callers: Callers,
    room: Arc<Room>,
    is_taken: AtomicBool,
    /// Old work makes way for merchants. It does not for channels: closing old orders makes those call.
    _serving: Option<Serving>,
}

impl Place {
    /// One that is to be taken.
    pub(super) fn new(callers: Callers, room: Arc<Room>, serving: Option<Serving>) -> Self {
        Self { callers, room, is_taken: AtomicBool::new(false), _serving: serving }
    }

    /// Whether one would be found now.
    pub(super) fn is_left(&self) -> bool {
        self.room.has_place()
    }

    /// Whether it is taken.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Lets its body in, while that comes.
    pub(super) fn listen(&self) -> Option<SemaphorePermit<'_>> {
        self.room.listen()
    }

    /// Takes it, unless it is taken already. Whether it is.
    pub(super) fn take(&self) -> bool {
        if !self.is_taken() {
            self.is_taken.store(self.room.enter(), Ordering::Relaxed);
        }
        self.is_taken()
    }

    /// What is told when there is none.
    pub(super) fn none_left(&self) -> Problem {
        let callers = self.callers.as_str();
        metrics::counter!("payonce_requests_turned_away_total", "callers" => callers).increment(1);
        let detail = "more requests are under way than can be answered in time; nothing was done, ask again";
        Problem::unavailable("OVERLOADED", detail).retry_after(self.room.next_return_secs())
    }
}

impl tasks::Place for Place {
    fn leave(&self) -> bool {
        let may_leave = self.is_taken() && self.room.leave_for_a_while();
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
