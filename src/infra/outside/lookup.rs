//! Where names are looked up, and in whose place.
//!
//! A look-up keeps a thread until its server speaks, also when whoever asked has gone away, and there are only so many.
//! Always true: there is one look-up of a name at a time, and whoever asks meanwhile hears its answer, which is kept for
//! nobody else, because the next one may differ. What is known to answer soon, what is not known and what keeps silent
//! have places of their own, and a look-up that turns out to be silent leaves its place to others while there is room
//! among the silent: names under a server that never speaks do not keep those from being looked up that answer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::names::{Names, Standing};

/// Names that are looked up at once, of those that answer and of those that nothing is known of.
const PLACES: usize = 64;
/// The same, of those that are silent. With these, less than two thirds of the 512 threads that a process has for
/// everything that blocks.
const SILENT_PLACES: usize = 192;
/// Names of a standing under way or waiting at most, those that answer excepted, which are as many as are remembered.
const MOST: usize = 1024;
/// What takes longer is silent.
const SOON: Duration = Duration::from_secs(2);

/// Where names are looked up; stories have names of their own.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name.
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// As the machine does.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) }.boxed()
    }
}

/// A lookup that many share. Cheap to clone.
#[derive(Clone)]
pub struct SharedLookup<L>(Arc<Inside<L>>);

struct Inside<L> {
    lookup: L,
    known: Mutex<Known>,
    answering: Arc<Semaphore>,
    unknown: Arc<Semaphore>,
    silent: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    names: Names,
    flights: HashMap<String, (Standing, Flight)>,
}

type Flight = Shared<BoxFuture<'static, Answer>>;
type Answer = Result<Vec<IpAddr>, Failure>;

/// An error that many hear.
#[derive(Clone)]
struct Failure(io::ErrorKind, String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.kind(), error.to_string())
    }
}

impl<L> fmt::Debug for SharedLookup<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLookup").finish_non_exhaustive()
    }
}

impl<L: Lookup> SharedLookup<L> {
    /// Shares this one.
    #[must_use]
    pub fn new(lookup: L) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let (answering, unknown, silent) = (places(PLACES), places(PLACES), places(SILENT_PLACES));
        Self(Arc::new(Inside { lookup, known: Mutex::default(), answering, unknown, silent }))
    }
}

impl<L: Lookup> Lookup for SharedLookup<L> {
    fn look(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let inside = self.0.clone();
        let look = async move {
            join(&inside, name)?.await.map_err(|Failure(kind, text)| io::Error::new(kind, text))
        };
        look.boxed()
    }
}

/// The look-up of the name that is under way, or a new one.
fn join<L: Lookup>(inside: &Arc<Inside<L>>, name: String) -> io::Result<Flight> {
    let mut known = inside.known();
    if let Some((_, flight)) = known.flights.get(&name) {
        return Ok(flight.clone());
    }
    let standing = known.names.standing(&name);
    let alike = || known.flights.values().filter(|(other, _)| *other == standing).count();
    if standing != Standing::Answers && alike() >= MOST {
        return Err(io::Error::other("too many names are being looked up"));
    }
    let landing = Landing { inside: inside.clone(), name: name.clone() };
    // By itself: whoever asked may leave, and what is learnt of the name serves the next.
    let flying = async move {
        let flown = tokio::spawn(fly(landing, standing)).await;
        flown.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    };
    let flight = flying.boxed().shared();
    known.flights.insert(name, (standing, flight.clone()));
    Ok(flight)
}

async fn fly<L: Lookup>(landing: Landing<L>, standing: Standing) -> Answer {
    let (inside, name) = (&landing.inside, &landing.name);
    let mut place = inside.place(standing).acquire_owned().await.map_err(io::Error::other)?;
    let mut looking = inside.lookup.look(name.clone());
    let outcome = match timeout(SOON, &mut looking).await {
        Ok(outcome) => {
            // An error that comes soon keeps no place for long, and says nothing for good.
            if outcome.is_ok() {
                inside.known().names.remember(name, Standing::Answers);
            }
            outcome
        }
        Err(_) => {
            inside.known().names.remember(name, Standing::Silent);
            place = inside.among_the_silent(place);
            looking.await
        }
    };
    drop(place);
    outcome.map_err(Failure::from)
}

impl<L> Inside<L> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, standing: Standing) -> Arc<Semaphore> {
        match standing {
            Standing::Answers => self.answering.clone(),
            Standing::Unknown => self.unknown.clone(),
            Standing::Silent => self.silent.clone(),
        }
    }

    /// A place among the silent, or the one it had where those are taken.
    fn among_the_silent(&self, place: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        self.silent.clone().try_acquire_owned().unwrap_or(place)
    }
}

/// The end of a look-up, whatever it comes to.
struct Landing<L> {
    inside: Arc<Inside<L>>,
    name: String,
}

impl<L> Drop for Landing<L> {
    fn drop(&mut self) {
        let landed = self.inside.known().flights.remove(&self.name);
        // Only now: with the last of those who hear it, whatever it holds is dropped too.
        drop(landed);
    }
}
