//! Connections that are held open and never come to the point.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::infra::descriptors;
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{sell, sell_until};
use crate::support::raw::{self, Closed};
use crate::support::service::{Service, Shop, is_full};
use crate::support::usage::Usage;
use crate::support::{SECRET_KEY, seconds};

const CROWD: usize = 5_000;
/// Connections that are begun without a pause.
const AT_ONCE: usize = 50;
/// KiB that one of the crowd may cost while it is there: its buffer, its timers, what its request has begun.
const COST: u64 = 48;
/// KiB of that which the allocator may keep for the next one.
const KEPT: u64 = 24;
/// KiB by which the service may be larger in one wave than in the first.
const NOISE: u64 = 32 * 1024;
/// Descriptors that the service may open meanwhile for its own work.
const OWN_FILES: usize = 40;

/// How a connection is kept busy with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Silent,
    HalfHeader,
    Dripping,
    HalfBody,
}

impl Manner {
    const ALL: [Self; 4] = [Self::Silent, Self::HalfHeader, Self::Dripping, Self::HalfBody];

    async fn hold(self, addr: SocketAddr) -> Closed {
        match self {
            Self::Silent => raw::say(addr, b"").await,
            Self::HalfHeader => raw::say(addr, b"POST /orders HTTP/1.1\r\nhost: x\r\nx-ha").await,
            Self::Dripping => {
                let pause = Duration::from_millis(250);
                raw::say_slowly(addr, b"GET /livez HTTP/1.1\r\n", &[b'x'; 100], pause).await
            }
            Self::HalfBody => {
                let head = format!(
                    "POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET_KEY}\r\n\
                     content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{\"order_no\":"
                );
                raw::say(addr, head.as_bytes()).await
            }
        }
    }

    /// When it is closed: two seconds for a header, five for a body, and as much again for a busy machine.
    fn end(self) -> Range<Duration> {
        match self {
            Self::HalfBody => seconds(4)..seconds(14),
            _ => Duration::from_millis(1500)..seconds(8),
        }
    }
}

/// What a wave of strangers brought about.
struct Wave {
    ended: Vec<(Manner, Closed)>,
    /// The most that the service used meanwhile.
    peak: Usage,
    /// Customers who were served meanwhile, and the longest that one of them took.
    sales: usize,
    slowest: Duration,
}

/// Holds connections, one manner after the other, and sells all the while.
async fn wave(shop: &Shop, service: &Service, name: &str, manners: &[Manner], size: usize) -> Wave {
    let is_over = Cell::new(false);
    let holding = async {
        let mut crowd = JoinSet::new();
        for (index, manner) in (0..size).zip(manners.iter().copied().cycle()) {
            let addr = service.addr;
            crowd.spawn(async move { (manner, manner.hold(addr).await) });
            // Of more than the kernel queues for a listener, some would be half open at one end only.
            if index % AT_ONCE == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
        let ended = crowd.join_all().await;
        is_over.set(true);
        ended
    };
    let watching = async {
        let mut peak = service.usage();
        while !is_over.get() {
            let now = service.usage();
            peak = Usage { memory: peak.memory.max(now.memory), files: peak.files.max(now.files), ..now };
            sleep(Duration::from_millis(50)).await;
        }
        peak
    };
    let selling = sell_until(shop, service, name, &is_over);
    let (ended, peak, (sales, slowest)) = tokio::join!(holding, watching, selling);
    Wave { ended, peak, sales, slowest }
}

/// Waits until no more descriptors are open than before, but for the service's own.
async fn files_are_back(service: &Service, before: &Usage) {
    let is_back = async || service.usage().files <= before.files + OWN_FILES;
    service.until("the descriptors are back", is_back).await.expect("alive");
}

#[tokio::test]
async fn five_thousand_half_open_connections_are_closed_and_customers_are_served_meanwhile() {
    let shop = Shop::open().await;
    // As most systems start a service: with 1,024 descriptors. It raises that by itself, as far as it may.
    let service = shop.start(shop.command("ulimit -S -n 1024")).await;
    sell(&shop, &service, "first").await;
    let before = service.usage();
    assert!(!before.has_huge_pages, "each of a crowd would wait for the kernel to clear 2 MiB at a time");
    let size = descriptors::room_for(CROWD);
    let crowd = u64::try_from(size).expect("small");
    let mut first: Option<Usage> = None;
    for round in 0..if is_full() { 8 } else { 2 } {
        // Every other wave is over sooner: bodies have longer than headers.
        let manners = if round % 2 == 0 { &Manner::ALL[..] } else { &Manner::ALL[..3] };
        let wave = wave(&shop, &service, &format!("wave-{round}"), manners, size).await;
        files_are_back(&service, &before).await;
        let now = service.usage();
        println!(
            "{size} connections: {before:?}, at most {:?}, afterwards {now:?}; {} sales, {:?} at most",
            wave.peak, wave.sales, wave.slowest
        );
        for (manner, closed) in &wave.ended {
            assert!(manner.end().contains(&closed.after), "{manner:?}: {closed:?}");
            let expected = if *manner == Manner::HalfBody { 408 } else { 0 };
            assert_eq!(closed.status(), expected, "{manner:?}: {closed:?}");
        }
        assert!(wave.peak.files > before.files + size * 4 / 5, "they were not all held at once");
        assert!(wave.sales > 0 && wave.slowest < seconds(5), "{} sales, {:?}", wave.sales, wave.slowest);
        assert!(wave.peak.grown_since(&before) < COST * crowd, "{before:?}, {:?}", wave.peak);
        assert!(wave.peak.grown_since(first.get_or_insert(wave.peak)) < NOISE, "{first:?}, {:?}", wave.peak);
        // The allocator gives back what it no longer needs while it is at work.
        let later = Cell::new(0);
        let is_given_back = async || {
            later.update(|count| count + 1);
            sell(&shop, &service, &format!("after-{round}-{}", later.get())).await;
            service.usage().grown_since(&before) < KEPT * crowd
        };
        service.until("the memory is given back", is_given_back).await.expect("alive");
        println!("after {} sales more: {:?}", later.get(), service.usage());
    }
    shop.settle("after the waves").await;
    service.kill().await;
    shop.end().await;
}

#[tokio::test]
async fn beyond_the_most_connections_strangers_and_customers_wait_and_nothing_is_lost() {
    const MOST: usize = 64;
    let shop = Shop::open().await;
    let mut command = shop.command("");
    command.env("HTTP_CONNECTIONS_MAX", MOST.to_string());
    let service = shop.start(command).await;
    sell(&shop, &service, "first").await;
    let before = service.usage();
    let manners = [Manner::Silent, Manner::HalfHeader];
    // Twice as many as there are places: half of them wait until the others have been sent away.
    let latecomer = async {
        sleep(Duration::from_millis(500)).await;
        raw::say(service.addr, b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await
    };
    let wave = wave(&shop, &service, "wave", &manners, 2 * MOST);
    let (wave, late) = tokio::join!(wave, latecomer);
    assert!(late.status() == 200 && late.after > seconds(1), "who comes last is served last: {late:?}");
    println!("{:?}, at most {:?}; {} sales, {:?} at most", before, wave.peak, wave.sales, wave.slowest);
    assert!(wave.peak.files <= before.files + MOST + OWN_FILES, "{before:?}, {:?}", wave.peak);
    let at_once = wave.ended.iter().filter(|(_, closed)| closed.after < Duration::from_millis(3500)).count();
    assert!(at_once <= MOST, "{at_once} were closed in the first round");
    assert!(wave.ended.iter().all(|(_, closed)| closed.after < seconds(16)));
    files_are_back(&service, &before).await;
    shop.settle("after the wave").await;
    service.kill().await;
    shop.end().await;
}

/// Asks for much, with room for so many bytes of it at once.
async fn asks_for_much(addr: SocketAddr, room: u32, more: &str, times: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(room).expect("a small buffer");
    let mut stream = socket.connect(addr).await.expect("a connection");
    let request = format!("GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n{more}\r\n").repeat(times);
    stream.write_all(request.as_bytes()).await.expect("asked");
    stream
}

/// Asks for much over and over, with room for a few kilobytes of it, and reads nothing.
async fn reads_nothing(addr: SocketAddr) -> TcpStream {
    asks_for_much(addr, 4096, "", 20).await
}

#[tokio::test]
async fn who_does_not_take_the_answers_is_let_go() {
    const COUNT: usize = 60;
    let shop = Shop::open().await;
    let service = shop.serve("").await;
    sell(&shop, &service, "first").await;
    let before = service.usage();
    let mut held = Vec::new();
    for _ in 0..COUNT {
        held.push(reads_nothing(service.addr).await);
    }
    let are_served = async || service.usage().files >= before.files + COUNT;
    service.until("all of them are served", are_served).await.expect("alive");
    let since = Instant::now();
    sell(&shop, &service, "second").await;
    files_are_back(&service, &before).await;
    println!("let go after {:?}: {before:?}, {:?}", since.elapsed(), service.usage());
    assert!(since.elapsed() > seconds(3), "a pause of the reader is not the end");
    drop(held);
    service.kill().await;
    shop.end().await;
}

/// Takes an answer in crumbs for so long; gives whether it was let go.
async fn takes_crumbs(addr: SocketAddr, for_so_long: Duration) -> bool {
    /// More than can be on its way to somebody who was let go.
    const MUCH: u64 = 256 * 1024;
    let since = Instant::now();
    let mut stream = asks_for_much(addr, 4096, "connection: close\r\n", 1).await;
    let mut crumb = [0; 300];
    while since.elapsed() < for_so_long && matches!(stream.read(&mut crumb).await, Ok(1..)) {
        sleep(Duration::from_millis(500)).await;
    }
    let mut rest = Vec::new();
    // It may be cut off instead of ended.
    let _ = stream.take(MUCH).read_to_end(&mut rest).await;
    u64::try_from(rest.len()).expect("small") < MUCH
}

/// Takes an answer piece by piece, with a pause behind each.
async fn takes_slowly(addr: SocketAddr) -> Vec<u8> {
    const PIECE: u32 = 64 * 1024;
    let mut stream = asks_for_much(addr, PIECE, "connection: close\r\n", 1).await;
    let mut heard = Vec::new();
    while (&mut stream).take(PIECE.into()).read_to_end(&mut heard).await.expect("not cut off") > 0 {
        sleep(Duration::from_millis(400)).await;
    }
    heard
}

#[tokio::test]
async fn who_takes_an_answer_in_crumbs_is_let_go_and_who_takes_it_slowly_has_all_of_it() {
    const MOST: usize = 16;
    const CRUMBS: usize = 12;
    let shop = Shop::open().await;
    let mut command = shop.command("");
    command.env("HTTP_CONNECTIONS_MAX", MOST.to_string());
    let service = shop.start(command).await;
    sell(&shop, &service, "first").await;
    let addr = service.addr;
    let (since, slowly) = (Instant::now(), takes_slowly(addr));
    let crumbs = join_all((0..CRUMBS).map(|_| takes_crumbs(addr, seconds(20))));
    let ((heard, took), let_go) = tokio::join!(async { (slowly.await, since.elapsed()) }, crumbs);
    let let_go = let_go.iter().filter(|is_let_go| **is_let_go).count();
    println!("{let_go} of {CRUMBS} let go; {} bytes taken in {took:?}", heard.len());
    // Those who are left make no crowd, in which there is less time.
    assert!(let_go >= CRUMBS - MOST / 2, "{let_go}");
    assert!(took > seconds(5), "it was no slow one: {took:?}");
    let whole = service.ask_once(Method::GET, "/docs/swagger-ui-bundle.js", "", None).await.expect("alive");
    let whole = whole.expect(200);
    assert!(heard.ends_with(whole.text.as_bytes()), "{} of {} bytes", heard.len(), whole.text.len());
    sell(&shop, &service, "second").await;
    service.kill().await;
    shop.end().await;
}
