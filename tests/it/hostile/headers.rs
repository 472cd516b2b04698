//! Headers without end, and words that are made up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::sell;
use crate::support::raw::say;
use crate::support::service::{Service, Shop, is_full};
use crate::support::stores;

/// KiB by which the service may grow while it refuses.
const NOISE: u64 = 16 * 1024;

/// Starts the service with its log in a file.
pub(super) async fn serve_with_log(shop: &Shop, directives: &str) -> (Service, PathBuf) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", stores::fresh_name()));
    let mut command = shop.command("");
    command.env("RUST_LOG", directives).stderr(File::create(&path).expect("a file"));
    (shop.start(command).await, path)
}

/// One request on a connection that goes on; gives the answer's status line.
async fn ask_on(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("still open");
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\nok") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).await.expect("still open");
        assert!(count > 0, "closed after {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&heard).lines().next().unwrap_or_default().to_owned()
}

/// (what, a request that is too much)
fn endless() -> Vec<(&'static str, String)> {
    let with = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    let many = |count: usize| (0..count).map(|index| format!("x-{index}: y\r\n")).collect::<String>();
    let mib = "y".repeat(1 << 20);
    vec![
        ("10,000 headers", with("/livez", &many(10_000))),
        ("10,000 equal headers", with("/livez", &"x: y\r\n".repeat(10_000))),
        ("one header too many", with("/livez", &many(64))),
        ("a value of 1 MiB", with("/livez", &format!("x: {mib}\r\n"))),
        ("a name of 1 MiB", with("/livez", &format!("{mib}: x\r\n"))),
        ("a URL of 1 MiB", with(&format!("/{mib}"), "")),
        ("a query of 1 MiB", with(&format!("/livez?{mib}"), "")),
        ("1 MiB without a line's end", mib),
    ]
}

#[tokio::test]
async fn headers_without_end_are_refused_at_once_and_leave_nothing_behind() {
    let shop = Shop::open().await;
    let (service, log) = serve_with_log(&shop, "error").await;
    sell(&shop, &service, "first").await;
    let mut neighbour = TcpStream::connect(service.addr).await.expect("a connection");
    let mut before = service.usage();
    for round in 0..if is_full() { 100 } else { 8 } {
        let refused = stream::iter(endless())
            .map(async |(what, request)| (what, say(service.addr, request.as_bytes()).await))
            .buffer_unordered(4)
            .collect::<Vec<_>>();
        for (what, closed) in refused.await {
            let is_right =
                matches!(closed.status(), 431 | 400) && closed.text.matches("HTTP/1.1").count() == 1;
            assert!(is_right && closed.is_in_peace, "{what}: {closed:?}");
            assert!(closed.after < Duration::from_millis(1500), "{what}: {:?}", closed.after);
        }
        assert_eq!(ask_on(&mut neighbour).await, "HTTP/1.1 200 OK", "the neighbour's own connection");
        if round == 0 {
            before = service.usage();
        }
    }
    let now = service.usage();
    println!("{before:?}, afterwards {now:?}");
    assert!(now.grown_since(&before) < NOISE, "{before:?}, {now:?}");
    sell(&shop, &service, "second").await;
    let logged = std::fs::read_to_string(&log).expect("its log");
    assert_eq!(logged, "", "nobody has to get up for that");
    std::fs::remove_file(log).expect("removed");
    service.kill().await;
    shop.end().await;
}

/// Requests of which no two are alike: methods, paths, keys and ids that nobody has.
fn made_up(from: usize, count: usize) -> String {
    let request = |index: usize| {
        format!(
            "M{index} /orders/made-up-{index} HTTP/1.1\r\nhost: x\r\n\r\n\
             GET /made-up-{index} HTTP/1.1\r\nhost: x\r\nx-request-id: made-up-{index}\r\n\r\n\
             GET /orders/A-1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk_made_up_{index}\r\n\r\n"
        )
    };
    let last = "GET /made-up HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    (from..from + count).map(request).collect::<String>() + last
}

/// How many series of requests the service keeps.
async fn series(service: &Service) -> usize {
    let answer = service.http.get(format!("{}/metrics", service.url)).send().await.expect("an answer");
    let text = answer.text().await.expect("text");
    text.lines().filter(|line| line.starts_with("payonce_http_requests_total{")).count()
}

#[tokio::test]
async fn words_that_are_made_up_leave_nothing_behind() {
    const AT_ONCE: usize = 50;
    let shop = Shop::open().await;
    let service = shop.serve("").await;
    sell(&shop, &service, "first").await;
    say(service.addr, made_up(0, AT_ONCE).as_bytes()).await;
    // What asks for the figures is counted in them too, from its second time on.
    series(&service).await;
    let (kept, before) = (series(&service).await, service.usage());
    let calls = if is_full() { 2_000 } else { 40 };
    let answers: Vec<usize> = stream::iter(1..=calls)
        .map(async |call| {
            let closed = say(service.addr, made_up(call * AT_ONCE, AT_ONCE).as_bytes()).await;
            closed.text.matches("HTTP/1.1 4").count()
        })
        .buffer_unordered(8)
        .collect()
        .await;
    assert!(answers.iter().all(|count| *count == 3 * AT_ONCE + 1), "{answers:?}");
    let now = service.usage();
    println!("{kept} series, {before:?}, afterwards {now:?}");
    assert_eq!(series(&service).await, kept, "a series for each of them");
    assert!(now.grown_since(&before) < NOISE, "{before:?}, {now:?}");
    service.kill().await;
    shop.end().await;
}
