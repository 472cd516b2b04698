//! Whoever waits for a change of an order has a connection meanwhile: while there are enough, for as long as they like.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::channels::sandbox::signature;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::service::{Service, Shop};
use crate::support::{SECRET_KEY, seconds};

const CONNECTIONS: usize = 32;
/// Behind a large crowd, with room for what is slow beside other stories.
const SOON: Duration = Duration::from_secs(10);

/// Asks for the order A on a connection of its own, and waits for so long.
async fn wait(service: &Service, secs: u64) -> TcpStream {
    let mut client = TcpStream::connect(service.addr).await.expect("a connection");
    let asked = format!(
        "GET /orders/A?wait={secs} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET_KEY}\r\n\r\n"
    );
    client.write_all(asked.as_bytes()).await.expect("it is open");
    client
}

/// What is answered, after how long, and whether the connection is closed behind it.
async fn answer(client: &mut TcpStream, since: Instant) -> (String, Duration, bool) {
    let mut answer = [0; 8192];
    let read = timeout(seconds(60), client.read(&mut answer)).await.expect("in time").expect("it is open");
    let took = since.elapsed();
    let is_closed = matches!(timeout(Duration::from_millis(500), client.read(&mut [0; 64])).await, Ok(Ok(0)));
    (String::from_utf8_lossy(&answer[..read]).into_owned(), took, is_closed)
}

#[tokio::test]
async fn a_crowd_that_waits_for_orders_keeps_no_callback_out() {
    let shop = Shop::open().await;
    let mut command = shop.command("");
    command.env("HTTP_CONNECTIONS_MAX", CONNECTIONS.to_string());
    let service = shop.start(command).await;
    let order = json!({"order_no": "A", "user_id": "u1", "currency": "CNY", "amount": 1990});
    service.post("/orders", &order).await.expect("alive");

    let since = Instant::now();
    let (said, took, is_closed) = answer(&mut wait(&service, 4).await, since).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("\"PENDING\""), "{said}");
    assert!((seconds(4)..SOON).contains(&took) && !is_closed, "nobody else is there: {took:?} {is_closed}");

    // All places and more, by those who wait, and wait again.
    let since = Instant::now();
    let mut crowd = join_all((0..CONNECTIONS * 2).map(|_| wait(&service, 30))).await;
    let told = serde_json::to_vec(&json!({"event_id": "dispute", "kind": "DISPUTE"})).expect("json");
    // On a connection of its own.
    let callback = reqwest::Client::new()
        .post(format!("{}/webhooks/sandbox", service.url))
        .header(signature::HEADER, shop.app.sign(&told))
        .body(told);
    let heard = async {
        let answer = timeout(seconds(60), callback.send()).await.expect("in time").expect("an answer");
        (answer.status(), since.elapsed())
    };
    let crowd = join_all(crowd.iter_mut().map(|client| answer(client, since)));
    let (answers, (status, took)) = tokio::join!(crowd, heard);
    println!("the callback was taken after {took:?}");
    assert!(status.is_success() && took < SOON, "{status} after {took:?}");
    let early = answers.iter().filter(|(_, took, _)| *took < seconds(30)).count();
    assert!(early >= CONNECTIONS, "{early} made room");
    for (said, took, is_closed) in answers {
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(took >= Duration::from_millis(2_500), "nobody asks again at once: {took:?}");
        assert!(is_closed || took >= seconds(30), "its place is free: {took:?}");
    }
}
