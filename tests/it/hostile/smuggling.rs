//! Requests that two readers may understand differently. Behind each stands a whole request, which would make an
//! order: where the first is refused, nobody may ever read it as one.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};

use crate::support::raw::{Closed, say, say_and_leave};
use crate::support::{SECRET_KEY, TestApp};

/// What becomes of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Refused, and the connection is closed.
    Refused,
    /// It has one meaning by RFC 9112, and the connection is closed after its answer.
    TakenAlone,
    /// It has one meaning; what stands behind it is the next request.
    Taken,
}

use Fate::{Refused, Taken, TakenAlone};

fn body(order_no: &str) -> String {
    format!(r#"{{"order_no":"{order_no}","user_id":"u1","currency":"CNY","amount":1990}}"#)
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

const LINE: &str = "POST /orders HTTP/1.1\r\n";

/// A request that would make an order, with its first line, these header lines, and this as its body.
fn order(line: &str, headers: &str, body: &str) -> String {
    format!(
        "{line}{headers}authorization: Bearer {SECRET_KEY}\r\ncontent-type: application/json\r\n\r\n{body}"
    )
}

type Form = (String, String, Fate);

/// Two lengths, and lengths that are no numbers.
fn lengths(body: &str) -> Vec<Form> {
    let size = body.len();
    let all = [
        (format!("content-length: {size}\r\ncontent-length: 0\r\n"), Refused),
        (format!("content-length: 0\r\ncontent-length: {size}\r\n"), Refused),
        (format!("content-length: {size}, {size}\r\n"), Refused),
        (format!("content-length: {size}, 0\r\n"), Refused),
        (format!("content-length: +{size}\r\n"), Refused),
        (format!("content-length: -{size}\r\n"), Refused),
        (format!("content-length: 0x{size:x}\r\n"), Refused),
        (format!("content-length: {size}.0\r\n"), Refused),
        (format!("content-length: {size}e0\r\n"), Refused),
        (format!("content-length: {size} 0\r\n"), Refused),
        (format!("content-length: {size};\r\n"), Refused),
        (format!("content-length: \"{size}\"\r\n"), Refused),
        (format!("content-length: {}\r\n", (1_u128 << 64) + size as u128), Refused),
        ("content-length: \r\n".to_owned(), Refused),
        (format!("content-length : {size}\r\n"), Refused),
        (format!("content-length\t: {size}\r\n"), Refused),
        (format!("x: y\r\n content-length: {size}\r\n"), Refused),
        (format!(" content-length: {size}\r\n"), Refused),
        (format!("content-length:\r\n {size}\r\n"), Refused),
        // Both are one number, so every reader finds the same end.
        (format!("content-length: {size}\r\ncontent-length: {size}\r\n"), Taken),
        (format!("content-length:  \t{size}\t \r\n"), Taken),
        (format!("content-length: 00{size}\r\n"), Taken),
        (format!("CONTENT-LENGTH:{size}\r\n"), Taken),
    ];
    let form = |(headers, fate): (String, Fate)| {
        (headers.clone(), order(LINE, &format!("host: x\r\n{headers}"), body), fate)
    };
    all.map(form).into()
}

/// Codings that are not just `chunked`, alone and beside a length.
fn codings(body: &str) -> Vec<Form> {
    let all = [
        ("transfer-encoding: chunked, identity\r\n", Refused),
        ("transfer-encoding: identity, chunked\r\n", Refused),
        ("transfer-encoding: gzip, chunked\r\n", Refused),
        ("transfer-encoding: chunked, chunked\r\n", Refused),
        ("transfer-encoding: , chunked\r\n", Refused),
        ("transfer-encoding: chunked,\r\n", Refused),
        ("transfer-encoding: xchunked\r\n", Refused),
        ("transfer-encoding: chunkedx\r\n", Refused),
        ("transfer-encoding: chunked;q=1\r\n", Refused),
        ("transfer-encoding: \"chunked\"\r\n", Refused),
        ("transfer-encoding: chunked\u{b}\r\n", Refused),
        ("transfer-encoding: \u{b}chunked\r\n", Refused),
        ("transfer-encoding: chunked\0\r\n", Refused),
        ("transfer-encoding: identity\r\n", Refused),
        ("transfer-encoding: \r\n", Refused),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", Refused),
        ("transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n", Refused),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", Refused),
        ("transfer-encoding : chunked\r\n", Refused),
        ("transfer-encoding\t: chunked\r\n", Refused),
        ("transfer-encoding\0: chunked\r\n", Refused),
        (" transfer-encoding: chunked\r\n", Refused),
        ("x: y\r\n transfer-encoding: chunked\r\n", Refused),
        ("x: y\rtransfer-encoding: chunked\r\n", Refused),
        ("x: y\0z\r\ntransfer-encoding: chunked\r\n", Refused),
        ("transfer-encoding:\r\n chunked\r\n", Refused),
        ("transfer-encoding chunked\r\n", Refused),
        // Section 6.1: the coding counts, and nothing after this request.
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n", TakenAlone),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", TakenAlone),
        ("transfer-encoding: chunked\r\ncontent-length: +5\r\n", TakenAlone),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n", TakenAlone),
        ("content-length: 0\r\ntransfer-encoding: xchunked\r\n", Refused),
        ("transfer-encoding: xchunked\r\ncontent-length: 0\r\n", Refused),
        ("Transfer-Encoding:\t CHUNKED \t\r\n", Taken),
        ("transfer-encoding: chunked\r\ntransfer_encoding: identity\r\n", Taken),
        // Section 2.2: a line may end in LF alone, and does so here for everybody.
        ("x: y\ntransfer-encoding: chunked\n", Taken),
    ];
    let form = |(headers, fate): (&str, Fate)| {
        let request = order(LINE, &format!("host: x\r\n{headers}"), &chunked(body));
        (headers.to_owned(), request, fate)
    };
    let mut forms: Vec<_> = all.map(form).into();
    let old = order("POST /orders HTTP/1.0\r\n", "transfer-encoding: chunked\r\n", &chunked(body));
    forms.push(("a coding in HTTP/1.0".to_owned(), old, Refused));
    forms
}

/// Chunks that another reader may cut elsewhere.
fn chunks(body: &str) -> Vec<Form> {
    let size = body.len();
    let all = [
        (format!("-{size:x}\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("+{size:x}\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("0x{size:x}\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{}_{}\r\n{body}\r\n0\r\n\r\n", size / 16, size % 16), Refused),
        (format!(" {size:x}\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("1{size:016x}\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x} 0\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x}\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x}\r{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x};a\nb\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x}\r\n{body}0\r\n\r\n"), Refused),
        (format!("{size:x}\r\n{body}\n0\r\n\r\n"), Refused),
        (format!("{size:x}\r\n{body}xx\r\n0\r\n\r\n"), Refused),
        (format!("\r\n{body}\r\n0\r\n\r\n"), Refused),
        (format!("{size:x}\r\n{body}\r\n\r\n"), Refused),
        (format!("{size:x}\r\n{body}\r\n;\r\n\r\n"), Refused),
        (format!("{size:X}\r\n{body}\r\n0\r\n\r\n"), Taken),
        (format!("000{size:x};name=\"value\"\r\n{body}\r\n000\r\n\r\n"), Taken),
        (format!("{size:x}\r\n{body}\r\n0\r\ncontent-length: 5\r\nhost: y\r\n\r\n"), Taken),
    ];
    let headers = "host: x\r\ntransfer-encoding: chunked\r\n";
    let form = |(chunks, fate): (String, Fate)| (chunks.clone(), order(LINE, headers, &chunks), fate);
    all.map(form).into()
}

/// First lines and hosts.
fn heads(body: &str) -> Vec<Form> {
    let old = "POST /orders HTTP/1.0\r\nconnection: keep-alive\r\n";
    let all = [
        (LINE, "", Refused),
        (LINE, "host: x\r\nhost: x\r\n", Refused),
        (LINE, "host: x\r\nhost: y\r\n", Refused),
        (LINE, "host: x y\r\n", Refused),
        (LINE, "host: x/orders\r\n", Refused),
        (LINE, "host: user@x\r\n", Refused),
        (LINE, "host: x:port\r\n", Refused),
        (LINE, "host : x\r\n", Refused),
        (LINE, "host: x\0\r\n", Refused),
        ("POST http://x/orders HTTP/1.1\r\n", "", Refused),
        ("POST orders HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST x:80 HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("CONNECT x:80 HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST  /orders HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST\t/orders HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST /orders  HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST /orders HTTP/1.1 \r\n", "host: x\r\n", Refused),
        ("POST /orders x HTTP/1.1\r\n", "host: x\r\n", Refused),
        (" POST /orders HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST /orders http/1.1\r\n", "host: x\r\n", Refused),
        ("POST /orders HTTP/1.2\r\n", "host: x\r\n", Refused),
        ("POST /orders HTTP/01.1\r\n", "host: x\r\n", Refused),
        ("POST /orders HTTP/2.0\r\n", "host: x\r\n", Refused),
        ("POST /orders\r\n", "host: x\r\n", Refused),
        ("PO\0ST /orders HTTP/1.1\r\n", "host: x\r\n", Refused),
        ("POST /or\0ders HTTP/1.1\r\n", "host: x\r\n", Refused),
        // Section 3.2.2: a whole URL counts instead of the host. Nothing here goes by either.
        ("POST http://evil.example/orders HTTP/1.1\r\n", "host: x\r\n", Taken),
        ("\r\nPOST /orders HTTP/1.1\r\n", "host: x\r\n", Taken),
        (LINE, "host: [::1]:8080\r\n", Taken),
        (LINE, "host:\r\n", Taken),
        (old, "", Taken),
        (old, "host: x\r\n", Taken),
        (old, "host: x\r\nhost: y\r\n", Refused),
    ];
    let form = |(line, headers, fate): (&str, &str, Fate)| {
        let length = format!("content-length: {}\r\n", body.len());
        (format!("{line}{headers}"), order(line, &format!("{headers}{length}"), body), fate)
    };
    all.map(form).into()
}

fn answers(closed: &Closed) -> Vec<&str> {
    let heads = closed.text.split("HTTP/1.").skip(1);
    heads.filter_map(|answer| answer.split(' ').nth(1)).collect()
}

/// Says the form with a whole request behind it, in one breath; what is wrong with what comes of it.
async fn fault_of(app: &TestApp, index: usize, (what, request, fate): Form) -> Option<String> {
    let (first, second) = (format!("F{index}"), format!("S{index}"));
    let behind = body(&second);
    let last = format!("host: x\r\nconnection: close\r\ncontent-length: {}\r\n", behind.len());
    let bytes = format!("{request}{}", order(LINE, &last, &behind));
    let closed = say(app.instance.addr, bytes.as_bytes()).await;
    let made = [&first, &second].map(|order_no| format!("order_no = '{order_no}'"));
    let is_first_made = app.count_where("orders", &made[0]).await == 1;
    let is_second_made = app.count_where("orders", &made[1]).await == 1;

    let told = answers(&closed);
    let is_right = match fate {
        // At once, and not by the deadline of a header.
        Refused => {
            let is_refusal = matches!(told[..], ["400" | "501" | "505"]);
            is_refusal && !is_first_made && !is_second_made && closed.after < Duration::from_millis(1500)
        }
        TakenAlone => told == ["201"] && is_first_made && !is_second_made,
        Taken => told == ["201", "201"] && is_first_made && is_second_made,
    };
    let seen = format!("{what:?} {fate:?}: {told:?} {is_first_made} {is_second_made} {closed:?}");
    (!is_right).then_some(seen)
}

async fn assert_fates(forms: impl Fn(&str) -> Vec<Form>) {
    let app = TestApp::start().await;
    // Each form has an order of its own; all their numbers are of one length.
    let count = forms(&body("F100")).len();
    let faults: Vec<_> = stream::iter(100..100 + count)
        .map(|index| fault_of(&app, index, forms(&body(&format!("F{index}"))).swap_remove(index - 100)))
        .buffer_unordered(16)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    app.end().await;
}

#[tokio::test]
async fn a_body_has_one_length_or_none() {
    assert_fates(lengths).await;
}

#[tokio::test]
async fn a_body_has_one_coding_or_none() {
    assert_fates(codings).await;
}

#[tokio::test]
async fn chunks_are_cut_in_one_way() {
    assert_fates(chunks).await;
}

#[tokio::test]
async fn a_request_has_one_first_line_and_one_host() {
    assert_fates(heads).await;
}

/// A body that nobody asked for is passed over whole, or the connection is closed: it is never read as a request.
#[tokio::test]
async fn a_request_in_the_body_of_another_is_never_carried_out() {
    let app = TestApp::start().await;
    let hidden = order(LINE, &format!("host: x\r\ncontent-length: {}\r\n", body("H").len()), &body("H"));
    let length = hidden.len();
    let padded = format!("{}{hidden}", "x".repeat(200_000));
    let cases = [
        format!("GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("GET /orders/NONE HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("HEAD /livez HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("POST /orders HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("POST /webhooks/sandbox HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("GET /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{}", chunked(&hidden)),
        format!("GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{padded}", padded.len()),
        format!("POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{padded}", padded.len()),
        format!("POST /orders HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{}", chunked(&padded)),
        // Nobody waits for a leave that is not needed, and nothing is switched to.
        format!(
            "GET /livez HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n{hidden}"
        ),
        format!(
            "POST /nothing HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\n\
             http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\ncontent-length: {length}\r\n\r\n{hidden}"
        ),
    ];
    let said = cases.iter().map(|case| say_and_leave(app.instance.addr, case.as_bytes()));
    for (case, closed) in cases.iter().zip(join_all(said).await) {
        let (head, _) = case.split_once("\r\n\r\n").expect("a head");
        assert_eq!(answers(&closed).len(), 1, "{head}: {closed:?}");
    }
    assert_eq!(app.count("orders").await, 0);
    app.end().await;
}
