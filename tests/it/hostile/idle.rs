//! Connections between two requests: kept for a client's next one, and given up sooner where connections become few.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::support::seconds;
use crate::support::service::{Service, Shop};

const CONNECTIONS: usize = 32;
/// Longer than a header may take, and than an idle connection is kept in a crowd.
const REST: Duration = Duration::from_secs(4);

/// Asks whether the service lives, on a connection that is kept.
async fn ask(client: &mut TcpStream) {
    client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is open");
    let mut answer = [0; 4096];
    let read = timeout(seconds(5), client.read(&mut answer)).await.expect("in time").expect("it is open");
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
}

/// When the other end closes, from now on.
async fn closes_after(client: &mut TcpStream) -> Duration {
    let since = Instant::now();
    let read = timeout(seconds(20), client.read(&mut [0; 64])).await.expect("it closes").unwrap_or(0);
    assert_eq!(read, 0, "it says nothing");
    since.elapsed()
}

async fn connect(service: &Service) -> TcpStream {
    TcpStream::connect(service.addr).await.expect("a connection")
}

#[tokio::test]
async fn an_idle_connection_is_kept_while_there_are_enough_and_a_late_header_never_is() {
    let shop = Shop::open().await;
    let mut command = shop.command("");
    command.env("HTTP_CONNECTIONS_MAX", CONNECTIONS.to_string());
    let service = shop.start(command).await;
    let mut pooled = connect(&service).await;
    ask(&mut pooled).await;
    sleep(REST).await;
    ask(&mut pooled).await;
    pooled.write_all(b"GET /livez HTTP/1.1\r\nho").await.expect("it is open");
    let closed = closes_after(&mut pooled).await;
    assert!((Duration::from_millis(1_500)..seconds(8)).contains(&closed), "half a header: {closed:?}");

    // Half of a crowd has been idle for a while when the other half comes.
    let mut crowd = Vec::new();
    for index in 0..CONNECTIONS * 3 / 4 {
        if index == CONNECTIONS / 4 {
            sleep(REST).await;
        }
        let mut client = connect(&service).await;
        ask(&mut client).await;
        crowd.push(client);
    }
    sleep(seconds(8)).await;
    let is_closed = |client: &TcpStream| matches!(client.try_read(&mut [0]), Ok(0));
    let closed = crowd.iter().filter(|client| is_closed(client)).count();
    println!("{closed} of {} were closed", crowd.len());
    assert!((CONNECTIONS / 4 - 2..crowd.len()).contains(&closed), "{closed}: until there were enough again");
}
