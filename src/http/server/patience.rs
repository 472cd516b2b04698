//! How long a connection may keep us waiting: not long in the middle of a header, and longer between two requests.
//!
//! hyper has one clock for both. A pool of connections wants the second time to be long, because a request that meets its
//! connection's close is lost, and for all that the client knows it was carried out. Whoever holds connections open to do
//! harm wants the first to be long. So the stream notes what comes and goes, the service notes when a request begins and
//! when its answer is out, and whoever drives the connection asks here how long there is still time. The beginning of a
//! header that came along with the request before it counts as nothing heard.
//!
//! Nor may an answer be taken in as slowly as one likes: each KiB of it that is taken buys its reader a second more.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::crowd::{Crowd, REST};

/// Longest wait for a whole request header, from its first byte on, and after the connection was made; who is late then
/// takes a turn.
pub(super) const HEADER: Duration = Duration::from_secs(2);
/// Longest wait for the next request: longer than a balancer or a proxy keeps its own connections (60 s, by their
/// defaults), so that it is they who close.
const IDLE: Duration = Duration::from_secs(75);
/// How long a reader may be behind with an answer, besides what it has bought by taking some of it.
const BEHIND: Duration = Duration::from_secs(30);
/// The same where connections are becoming few.
const BEHIND_IN_A_CROWD: Duration = Duration::from_secs(5);
/// Bytes of an answer that buy a second: less than the slowest line carries.
const A_SECOND: u64 = 1024;
/// The same where connections are becoming few.
const A_SECOND_IN_A_CROWD: u64 = 8 * 1024;

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It was made, and nothing was asked yet.
    Beginning,
    /// A request was heard in part.
    Header,
    /// It is being carried out, or its answer is being made.
    Request,
    /// The other end has yet to take what was said.
    Blocked,
    /// It was answered.
    Idle,
}

/// What a connection is at, and since when.
#[derive(Debug)]
pub(super) struct Progress(Mutex<Step>);

#[derive(Debug)]
struct Step {
    at: At,
    since: Instant,
    /// Requests so far.
    begun: u64,
    /// What is being said, until all that there is to say is on its way.
    saying: Option<Saying>,
}

/// What is being said, since when, and how many bytes of it were taken.
#[derive(Debug)]
struct Saying {
    since: Instant,
    taken: u64,
}

impl Saying {
    /// Until when a reader has time that takes no more of it.
    fn ends_at(&self, is_crowded: bool) -> Instant {
        let (behind, a_second) = match is_crowded {
            true => (BEHIND_IN_A_CROWD, A_SECOND_IN_A_CROWD),
            false => (BEHIND, A_SECOND),
        };
        self.since + behind + Duration::from_millis(self.taken.saturating_mul(1000) / a_second)
    }
}

impl Step {
    fn to(&mut self, at: At) {
        (self.at, self.since) = (at, Instant::now());
    }
}

impl Progress {
    /// Of a connection that was made just now.
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Step { at: At::Beginning, since: Instant::now(), begun: 0, saying: None })))
    }

    /// A request is carried out for as long as this lives.
    pub(super) fn carry_out(self: &Arc<Self>) -> UnderWay {
        let mut step = self.step();
        step.to(At::Request);
        step.begun += 1;
        UnderWay { progress: Arc::clone(self), number: step.begun }
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self) {
        let mut step = self.step();
        if step.at == At::Idle {
            step.to(At::Header);
        }
    }

    /// So many bytes were taken of what is said; `None` where there was no room for any.
    fn say(&self, taken: Option<usize>) {
        let mut step = self.step();
        let saying = step.saying.get_or_insert_with(|| Saying { since: Instant::now(), taken: 0 });
        saying.taken += taken.map_or(0, |taken| u64::try_from(taken).unwrap_or(u64::MAX));
        if matches!(step.at, At::Idle | At::Blocked) {
            step.to(if taken.is_some() { At::Idle } else { At::Blocked });
        }
    }

    /// All that there was to say is on its way.
    fn has_said(&self) {
        self.step().saying = None;
    }

    /// Until when there is time. For a request of which nothing is said yet there are deadlines elsewhere.
    fn ends_at(&self, is_crowded: bool) -> Option<Instant> {
        let step = self.step();
        let time = match step.at {
            At::Beginning | At::Header => HEADER,
            At::Idle if is_crowded => REST,
            At::Idle => IDLE,
            At::Request | At::Blocked => return Some(step.saying.as_ref()?.ends_at(is_crowded)),
        };
        Some(step.since + time)
    }

    /// When it is sent away, its time being over: who rests, on time, because the end of that time was chosen
    /// ([`REST`]); who never came to the point, or to the end, takes a turn.
    fn take_leave(&self, crowd: &Crowd, now: Instant) -> Instant {
        match self.step().at {
            At::Beginning | At::Header | At::Request | At::Blocked => crowd.take_turn(now),
            At::Idle => now,
        }
    }

    /// Drives a connection to its end; nothing where it kept us waiting for too long.
    pub(super) async fn drive<C: Future + Unpin>(
        &self,
        connection: &mut C,
        crowd: &Crowd,
    ) -> Option<C::Output> {
        let mut alarm = pin!(sleep_until(Instant::now() + HEADER));
        let mut turn = None;
        poll_fn(|context| {
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(context) {
                return Poll::Ready(Some(ended));
            }
            // Most of the time the end has only moved away: that is looked at when the alarm rings, which is soon, and sooner
            // where it waits for its turn.
            if turn.is_none()
                && let Some(ends_at) = self.ends_at(crowd.is_large())
                && ends_at < alarm.deadline()
            {
                alarm.as_mut().reset(ends_at);
            }
            while alarm.as_mut().poll(context).is_ready() {
                let (now, ends_at) = (Instant::now(), self.ends_at(crowd.is_large()));
                if ends_at.is_some_and(|ends_at| ends_at <= now) {
                    let leaves_at = *turn.get_or_insert_with(|| self.take_leave(crowd, now));
                    if leaves_at <= now {
                        return Poll::Ready(None);
                    }
                    alarm.as_mut().reset(leaves_at);
                    continue;
                }
                turn = None;
                // A crowd may come meanwhile.
                let look_again = now + REST;
                alarm.as_mut().reset(ends_at.map_or(look_again, |ends_at| ends_at.min(look_again)));
            }
            Poll::Pending
        })
        .await
    }
}

/// A request that is carried out, and its answer, until the last of it is on its way.
#[derive(Debug)]
pub(super) struct UnderWay {
    progress: Arc<Progress>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // The end of an answer may be noticed when the next request has begun.
        let mut step = self.progress.step();
        if step.begun == self.number {
            step.to(At::Idle);
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Body,
    pub(super) _request: UnderWay,
}

impl HttpBody for Answer {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that notes what comes and goes.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) stream: TcpStream,
    pub(super) progress: Arc<Progress>,
}

impl Noted {
    fn said(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.progress.say(match &written {
            Poll::Ready(taken) => Some(*taken.as_ref().unwrap_or(&0)),
            Poll::Pending => None,
        });
        written
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.progress.hear();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.said(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.said(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper comes here only when the kernel has all that it had.
        self.progress.has_said();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::crowd::LONGEST;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn there_is_little_time_for_a_header_and_more_between_requests() {
        let progress = Progress::begin();
        // How long there is from what happened last, a second ago, to the end.
        let second_later = || progress.step().since -= SECOND;
        let time = |is_crowded| progress.ends_at(is_crowded).map(|ends_at| ends_at - progress.step().since);
        second_later();
        let since = progress.step().since;
        progress.hear();
        assert_eq!(
            (time(false), progress.step().since),
            (Some(HEADER), since),
            "from the connection's beginning on"
        );
        let request = progress.carry_out();
        progress.hear();
        progress.say(Some(1));
        progress.has_said();
        assert_eq!(time(true), None);
        drop(request);
        progress.say(None);
        progress.hear();
        assert_eq!(progress.step().at, At::Blocked, "its answer is not taken");
        progress.say(Some(1));
        assert_eq!((time(false), time(true)), (Some(IDLE), Some(REST)));
        second_later();
        let since = progress.step().since;
        progress.say(Some(1));
        assert!(time(false) == Some(IDLE) && progress.step().since > since, "from the last of the answer on");
        second_later();
        progress.hear();
        let since = progress.step().since;
        progress.hear();
        assert_eq!((time(true), progress.step().since), (Some(HEADER), since), "from its first byte on");
    }

    #[test]
    fn what_is_taken_of_an_answer_buys_time_for_the_rest_until_all_is_on_its_way() {
        let progress = Progress::begin();
        let since = || progress.step().saying.as_ref().map(|saying| saying.since);
        let time = |is_crowded| Some(progress.ends_at(is_crowded)? - since()?);
        let request = progress.carry_out();
        assert_eq!(time(false), None, "there is nothing to take yet");
        progress.say(None);
        assert_eq!((time(false), time(true)), (Some(BEHIND), Some(BEHIND_IN_A_CROWD)));
        progress.say(Some(16 * 1024));
        assert_eq!(
            (time(false), time(true)),
            (Some(BEHIND + 16 * SECOND), Some(BEHIND_IN_A_CROWD + 2 * SECOND))
        );
        let first = since();
        drop(request);
        progress.say(None);
        assert_eq!((time(false), since()), (Some(BEHIND + 16 * SECOND), first), "also of its last piece");
        let _next = progress.carry_out();
        assert_eq!(
            (time(false), since()),
            (Some(BEHIND + 16 * SECOND), first),
            "also beside the next request"
        );
        progress.has_said();
        assert_eq!(time(false), None);
    }

    #[tokio::test]
    async fn who_keeps_silent_is_left_when_the_time_is_over_and_no_sooner() {
        let (few, many) = (Crowd::of(2), Crowd::of(2));
        let _two = (many.place().await, many.place().await);
        let began = Instant::now();
        let progress = Progress::begin();
        let mut silent = std::future::pending::<()>();
        assert_eq!(progress.drive(&mut silent, &few).await, None);
        assert!((HEADER..2 * HEADER).contains(&began.elapsed()), "{:?}", began.elapsed());

        let request = progress.carry_out();
        let mut answers = Box::pin(async {
            tokio::time::sleep(HEADER + SECOND).await;
            drop(request);
            std::future::pending::<()>().await;
        });
        let began = Instant::now();
        assert_eq!(progress.drive(&mut answers, &many).await, None);
        let least = HEADER + SECOND + REST;
        assert!((least..2 * least).contains(&began.elapsed()), "{:?}", began.elapsed());

        let mut heard = Box::pin(async {
            tokio::time::sleep(SECOND).await;
            progress.hear();
            std::future::pending::<()>().await;
        });
        let began = Instant::now();
        drop(progress.carry_out());
        let (one, next) = (progress.carry_out(), progress.carry_out());
        drop(one);
        assert_eq!(progress.step().at, At::Request, "of the next one");
        drop(next);
        assert_eq!(progress.drive(&mut heard, &few).await, None);
        assert!((SECOND + HEADER..IDLE).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(progress.drive(&mut std::future::ready(7), &few).await, Some(7));
    }

    #[tokio::test]
    async fn of_many_whose_time_is_over_one_leaves_behind_the_others_and_who_asks_meanwhile_is_served() {
        let crowd = Crowd::of(2);
        let began = Instant::now();
        // Thousands run out of time together with them.
        for _ in 0..10_000 {
            crowd.take_turn(began + HEADER);
        }
        let (dripping, late) = (Progress::begin(), Progress::begin());
        let polls = Cell::new(0);
        let mut drips = Box::pin(async {
            let mut every = tokio::time::interval(SECOND / 5);
            poll_fn(|context| {
                polls.set(polls.get() + 1);
                while every.poll_tick(context).is_ready() {
                    dripping.hear();
                }
                Poll::<()>::Pending
            })
            .await;
        });
        let mut asks = Box::pin(async {
            tokio::time::sleep(HEADER + SECOND / 5).await;
            let request = late.carry_out();
            tokio::time::sleep(SECOND).await;
            drop(request);
            7
        });
        let left = async { (dripping.drive(&mut drips, &crowd).await, began.elapsed()) };
        let (left, served) = tokio::join!(left, late.drive(&mut asks, &crowd));
        assert_eq!((left.0, served), (None, Some(7)));
        assert!((HEADER + LONGEST..2 * HEADER).contains(&left.1), "{left:?}");
        assert!(polls.get() < 100, "{} looks at one who waits for its turn", polls.get());
    }
}
