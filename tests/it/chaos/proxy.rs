//! A TCP proxy between the service and a store, or whoever asks the service and the service: late, silent, cut, torn from
//! what is behind it, or losing the answer to what was done.

use std::iter::Sum;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::commits::Exchanges;
use crate::support::Chance;

mod commits;
pub mod tests;

/// Shortest trouble that lasts. The longest is longer than the service waits for an answer.
const SHORTEST: Duration = Duration::from_millis(500);
const BEYOND_THE_SHORTEST_MICROS: u64 = 4_500_000;

/// What of a conversation does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    Both,
    Asking,
    Answering,
}

/// What there was to meet on the wire, and was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Answers that came and were not handed on.
    pub lost: usize,
    /// Pieces that a silence held.
    pub held: usize,
    /// Connections that were cut.
    pub cut: usize,
    /// Clients whose store was gone without a word.
    pub torn: usize,
    /// Pieces that were handed on late.
    pub late: usize,
}

impl Met {
    /// Whether there was all of it.
    pub fn is_all(&self) -> bool {
        ![self.lost, self.held, self.cut, self.torn, self.late].contains(&0)
    }
}

impl Sum for Met {
    fn sum<I: Iterator<Item = Self>>(wires: I) -> Self {
        wires.fold(Self::default(), |all, one| Self {
            lost: all.lost + one.lost,
            held: all.held + one.held,
            cut: all.cut + one.cut,
            torn: all.torn + one.torn,
            late: all.late + one.late,
        })
    }
}

/// How the wire behaves now.
#[derive(Clone, Copy, Default)]
struct State {
    /// Every connection ends at the next one.
    cuts: u32,
    /// Every connection loses its store at the next one, and its client hears nothing of it.
    tears: u32,
    /// Such a client hears of it at the next one.
    releases: u32,
    silence: Option<Silence>,
    delay: Duration,
}

impl State {
    fn holds(&self, one: Silence) -> bool {
        self.silence.is_some_and(|silence| silence == one || silence == Silence::Both)
    }
}

struct Wire {
    upstream: SocketAddr,
    /// PostgreSQL loses only the answers to commits.
    is_postgres: bool,
    state: watch::Sender<State>,
    answers_to_lose: AtomicU32,
    met: Mutex<Met>,
}

/// The proxy, until it is dropped.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Stands before that port of this machine.
    pub async fn before(upstream: u16) -> Self {
        Self::before_service(local(upstream)).await
    }

    /// Stands before whoever answers there.
    pub async fn before_service(upstream: SocketAddr) -> Self {
        Self::start(upstream, false).await
    }

    /// Stands before a PostgreSQL, and understands what is said to it.
    pub async fn before_postgres(upstream: u16) -> Self {
        Self::start(local(upstream), true).await
    }

    async fn start(upstream: SocketAddr, is_postgres: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let wire = Arc::new(Wire {
            upstream,
            is_postgres,
            state: watch::Sender::default(),
            answers_to_lose: AtomicU32::new(0),
            met: Mutex::default(),
        });
        let serving = wire.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().carry(client));
            }
        });
        Self { port, wire, accepting }
    }

    /// Where HTTP is spoken through it.
    pub fn url(&self) -> String {
        format!("http://{}", local(self.port))
    }

    /// A URL of what is behind it, through it.
    pub fn before_url(&self, url: &str, upstream: u16) -> String {
        url.replace(&format!(":{upstream}/"), &format!(":{}/", self.port))
    }

    /// Every connection ends, and what a silence held never arrives.
    pub fn cut(&self) {
        self.wire.state.send_modify(|state| state.cuts += 1);
    }

    /// Whoever connects is let in, and from here on what one side says or both say is held.
    pub fn silence(&self, silence: Silence) {
        self.wire.state.send_modify(|state| state.silence = Some(silence));
    }

    /// Every connection loses its store, and until the wire is healed its client hears neither that nor anything else.
    /// Whoever connects anew is served.
    pub fn tear(&self) {
        self.wire.state.send_modify(|state| state.tears += 1);
    }

    /// What passes takes so much longer.
    pub fn delay(&self, by: Duration) {
        self.wire.state.send_modify(|state| state.delay = by);
    }

    /// The next so many answers come and are not handed on, but the connection ends: what was asked is done, and whoever
    /// asked does not know. Of PostgreSQL only those that tell of a commit are lost.
    pub fn lose_answers(&self, count: u32) {
        self.wire.answers_to_lose.store(count, Ordering::Relaxed);
    }

    /// As a wire should be: what a silence held arrives.
    pub fn heal(&self) {
        self.wire.state.send_modify(|state| {
            *state = State { silence: None, delay: Duration::ZERO, releases: state.releases + 1, ..*state };
        });
        self.lose_answers(0);
    }

    /// A silence, at whose end what was held arrives late, or never.
    pub async fn be_silent(&self, silence: Silence, chance: &mut Chance) {
        self.silence(silence);
        sleep(for_a_while(chance)).await;
        if chance.one_of(2) == 0 {
            self.cut();
        }
        self.heal();
    }

    /// A silence of one side.
    pub async fn be_silent_one_way(&self, chance: &mut Chance) {
        let silence = [Silence::Asking, Silence::Answering][chance.one_of(2)];
        self.be_silent(silence, chance).await;
    }

    /// Connections whose other end is gone, which is found out some time.
    pub async fn be_torn(&self, chance: &mut Chance) {
        self.tear();
        sleep(for_a_while(chance)).await;
        self.heal();
    }

    /// A time in which everything takes so much longer.
    pub async fn be_far_away(&self, by: Duration, chance: &mut Chance) {
        self.delay(by);
        sleep(for_a_while(chance)).await;
        self.heal();
    }

    pub fn met(&self) -> Met {
        *self.wire.met.lock().expect("no panic")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn for_a_while(chance: &mut Chance) -> Duration {
    SHORTEST + chance.pause(BEYOND_THE_SHORTEST_MICROS)
}

/// What one side has said and the other has not heard yet.
#[derive(Default)]
struct Said {
    bytes: Vec<u8>,
    /// Nothing more will come.
    is_all: bool,
}

impl Said {
    async fn hear(&mut self, from: &mut TcpStream) {
        self.is_all = !from.read_buf(&mut self.bytes).await.is_ok_and(|size| size > 0);
    }

    /// Gives whether somebody heard it.
    async fn tell(&mut self, to: &mut TcpStream, delay: Duration) -> bool {
        if self.bytes.is_empty() {
            return true;
        }
        // A timer rounds up, even none at all.
        if delay > Duration::ZERO {
            sleep(delay).await;
        }
        let told = to.write_all(&self.bytes).await;
        self.bytes.clear();
        told.is_ok()
    }
}

impl Wire {
    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        let mut state = self.state.subscribe();
        let first = *state.borrow();
        let Ok(mut store) = TcpStream::connect(self.upstream).await else { return };
        client.set_nodelay(true).ok();
        store.set_nodelay(true).ok();
        let last = tokio::select! {
            biased;
            last = until(&mut state, |now| now.cuts != first.cuts || now.tears != first.tears) => last,
            () = self.pass(&mut client, &mut store) => return,
        };
        drop(store);
        if last.cuts != first.cuts {
            return self.note(|met| met.cut += 1);
        }
        self.note(|met| met.torn += 1);
        tokio::select! {
            _ = until(&mut state, |now| now.cuts != last.cuts || now.releases != last.releases) => {}
            () = until_it_leaves(&mut client) => {}
        }
    }

    /// Hands on what both sides say, until one of them ends it and the other may hear of that.
    async fn pass(&self, client: &mut TcpStream, store: &mut TcpStream) {
        let mut state = self.state.subscribe();
        let mut exchanges = self.is_postgres.then(Exchanges::default);
        let (mut asked, mut answered) = (Said::default(), Said::default());
        loop {
            let now = *state.borrow_and_update();
            let (asking_is_held, answering_is_held) =
                (now.holds(Silence::Asking), now.holds(Silence::Answering));
            if now.delay > Duration::ZERO {
                let pieces = [&asked, &answered].into_iter().filter(|said| !said.bytes.is_empty());
                self.note(|met| met.late += pieces.count());
            }
            if !asking_is_held {
                let is_heard = asked.tell(store, now.delay).await;
                answered.is_all |= !is_heard;
            }
            let is_kept_back =
                exchanges.as_ref().is_some_and(Exchanges::is_about_to_commit) && self.is_to_lose();
            if !answering_is_held && (!is_kept_back || answered.is_all) {
                let is_heard = answered.tell(client, now.delay).await;
                asked.is_all |= !is_heard;
            }
            if asked.is_all && !asking_is_held || answered.is_all && !answering_is_held {
                return;
            }
            let (asked_before, answered_before) = (asked.bytes.len(), answered.bytes.len());
            tokio::select! {
                _ = state.changed() => {}
                () = asked.hear(client), if !asked.is_all => {
                    let piece = &asked.bytes[asked_before..];
                    exchanges.iter_mut().for_each(|exchanges| exchanges.hear_question(piece));
                    self.note(|met| met.held += usize::from(asking_is_held));
                }
                () = answered.hear(store), if !answered.is_all => {
                    let piece = &answered.bytes[answered_before..];
                    let counts = exchanges.as_mut().is_none_or(|exchanges| exchanges.hear_answer(piece));
                    if counts && !answered.is_all && self.loses_this_answer() {
                        return self.note(|met| met.lost += 1);
                    }
                    self.note(|met| met.held += usize::from(answering_is_held));
                }
            }
        }
    }

    fn note(&self, note: impl FnOnce(&mut Met)) {
        note(&mut self.met.lock().expect("no panic"));
    }

    fn is_to_lose(&self) -> bool {
        self.answers_to_lose.load(Ordering::Relaxed) > 0
    }

    fn loses_this_answer(&self) -> bool {
        self.answers_to_lose
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

/// The state that is so at last. A wire outlives its connections.
async fn until(state: &mut watch::Receiver<State>, is_so: impl FnMut(&State) -> bool) -> State {
    *state.wait_for(is_so).await.expect("a wire")
}

/// Whatever it says is heard by nobody.
async fn until_it_leaves(client: &mut TcpStream) {
    let mut said = Said::default();
    while !said.is_all {
        said.hear(client).await;
        said.bytes.clear();
    }
}
