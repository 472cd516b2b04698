//! Signatures that are nearly right: ten thousand over HTTP and a hundred thousand before the verifier itself;
//! `PAYONCE_FULL=1` makes that a hundred thousand and a million.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use payonce::channels::RawCallback;
use payonce::channels::sandbox::signature::HEADER;
use reqwest::header::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha224, Sha256, Sha512, Sha512_256};

use super::{sell, sell_until};
use crate::support::service::{Service, Shop, is_full};
use crate::support::{Chance, SANDBOX_SECRET, TestApp};

/// KiB by which the service may grow while it refuses.
const NOISE: u64 = 16 * 1024;

/// A callback as it is sent: the values of its signature header, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    values: Vec<Vec<u8>>,
    body: Vec<u8>,
}

/// One true callback, and the chance that spoils it.
struct Forger {
    genuine: Message,
    timestamp: String,
    mac: String,
    chance: Chance,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac<D: Mac + KeyInit>(secret: &[u8], message: &[u8]) -> String {
    let mut mac = <D as KeyInit>::new_from_slice(secret).expect("any length");
    Mac::update(&mut mac, message);
    hex(&mac.finalize().into_bytes())
}

impl Forger {
    fn new(body: &[u8], signature: &str) -> Self {
        let (timestamp, mac) = signature.split_once(',').expect("two parts");
        Self {
            genuine: Message { values: vec![signature.as_bytes().to_vec()], body: body.to_vec() },
            timestamp: timestamp.trim_start_matches("t=").to_owned(),
            mac: mac.trim_start_matches("v1=").to_owned(),
            chance: Chance::new(),
        }
    }

    /// A message that differs from the true one, and that a header can carry.
    fn forge(&mut self) -> Message {
        loop {
            let forged = self.spoil();
            let can_be_sent = forged.values.iter().all(|value| HeaderValue::from_bytes(value).is_ok());
            if can_be_sent && forged != self.genuine {
                return forged;
            }
        }
    }

    fn spoil(&mut self) -> Message {
        let Message { values, body } = self.genuine.clone();
        let value = values[0].clone();
        match self.chance.one_of(16) {
            0 => Message { values, body: self.flipped(body) },
            1 => Message { values, body: self.other_body(body) },
            2 => Message { values: self.more_or_none(value), body },
            way => Message { values: vec![self.other_value(way, value)], body },
        }
    }

    fn other_value(&mut self, way: usize, value: Vec<u8>) -> Vec<u8> {
        let text = match way {
            3 => return self.flipped(value),
            4 => return self.swapped(value),
            5 => return self.longer(value),
            6 => return value[..self.chance.one_of(value.len())].to_vec(),
            7 => self.other_moment(),
            8 => self.other_scheme(),
            9 => self.too_many(),
            _ => {
                let mac = self.other_mac(way);
                self.signed(&mac)
            }
        };
        text.into_bytes()
    }

    fn other_mac(&mut self, way: usize) -> String {
        match way {
            10 => self.other_secret(),
            11 => self.other_algorithm(),
            12 => self.other_message(),
            13 => self.other_letters(),
            14 => self.mac.to_uppercase(),
            _ => [self.mac.clone(), self.digits()].concat(),
        }
    }

    fn signed(&self, mac: &str) -> String {
        format!("t={},v1={mac}", self.timestamp)
    }

    fn message(&self) -> Vec<u8> {
        [self.timestamp.as_bytes(), b".", &self.genuine.body].concat()
    }
}

/// The ways to spoil a part.
impl Forger {
    fn place_in(&mut self, bytes: &[u8]) -> usize {
        self.chance.one_of(bytes.len())
    }

    fn flipped(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let at = self.place_in(&bytes);
        bytes[at] ^= 1 << self.chance.one_of(8);
        bytes
    }

    fn swapped(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let (one, other) = (self.place_in(&bytes), self.place_in(&bytes));
        bytes.swap(one, other);
        bytes
    }

    /// With one visible character more; spaces at an end are no part of a header's value.
    fn longer(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let at = self.chance.one_of(bytes.len() + 1);
        let visible = u8::try_from(self.chance.one_of(94)).expect("small") + b'!';
        bytes.insert(at, visible);
        bytes
    }

    fn digits(&mut self) -> String {
        let count = self.chance.one_of(64) + 1;
        (0..count).map(|_| format!("{:x}", self.chance.one_of(16))).collect()
    }

    /// Any other second with the signature of this one, or one that is far away, signed well.
    fn other_moment(&mut self) -> String {
        let now: i64 = self.timestamp.parse().expect("seconds");
        let offset = i64::from(self.chance.number() % 1_000_000) + 1;
        let offset = if self.chance.one_of(2) == 0 { offset } else { -offset };
        let timestamp = (now + offset).to_string();
        if offset.abs() < 1000 || self.chance.one_of(2) == 0 {
            return format!("t={timestamp},v1={}", self.mac);
        }
        let message = [timestamp.as_bytes(), b".", &self.genuine.body].concat();
        format!("t={timestamp},v1={}", hmac::<Hmac<Sha256>>(SANDBOX_SECRET.as_bytes(), &message))
    }

    fn other_scheme(&mut self) -> String {
        const NAMES: [&str; 9] = ["v0", "v2", "V1", "v1 ", " v1", "v11", "sha256", "hmac", ""];
        let name = NAMES[self.chance.one_of(NAMES.len())];
        let (timestamp, mac) = (&self.timestamp, &self.mac);
        match self.chance.one_of(3) {
            0 => format!("t={timestamp},{name}={mac}"),
            1 => format!("T={timestamp},v1={mac}"),
            _ => format!("t={timestamp},v1={},{name}={mac}", "0".repeat(64)),
        }
    }

    /// No secret, a part of it, or one like it.
    fn other_secret(&mut self) -> String {
        let secret = SANDBOX_SECRET;
        let other = match self.chance.one_of(6) {
            0 => String::new(),
            1 => secret[..self.chance.one_of(secret.len())].to_owned(),
            2 => secret.to_uppercase(),
            3 => secret.chars().rev().collect(),
            4 => format!("{secret}{}", self.digits()),
            _ => self.digits(),
        };
        hmac::<Hmac<Sha256>>(other.as_bytes(), &self.message())
    }

    fn other_algorithm(&mut self) -> String {
        let (secret, message) = (SANDBOX_SECRET.as_bytes(), self.message());
        match self.chance.one_of(8) {
            0 => hmac::<Hmac<Sha224>>(secret, &message),
            1 => hmac::<Hmac<Sha512>>(secret, &message),
            2 => hmac::<Hmac<Sha512>>(secret, &message)[..64].to_owned(),
            3 => hmac::<Hmac<Sha512_256>>(secret, &message),
            4 => hex(&Sha256::digest([secret, &message].concat())),
            5 => hex(&Sha256::digest([&message, secret].concat())),
            6 => hex(&Sha256::digest(&message)),
            _ => hmac::<Hmac<Sha256>>(&message, secret),
        }
    }

    /// Signed well, but not over this time and this body.
    fn other_message(&mut self) -> String {
        let (timestamp, body) = (self.timestamp.as_bytes(), self.genuine.body.as_slice());
        let other = match self.chance.one_of(7) {
            0 => body.to_vec(),
            1 => [timestamp, body].concat(),
            2 => [b".", body].concat(),
            3 => [timestamp, b"."].concat(),
            4 => [body, b".", timestamp].concat(),
            5 => [timestamp, b".", body, b"\n"].concat(),
            _ => [timestamp, b".", b"{}"].concat(),
        };
        hmac::<Hmac<Sha256>>(SANDBOX_SECRET.as_bytes(), &other)
    }

    /// The header more than once, or not at all.
    fn more_or_none(&mut self, value: Vec<u8>) -> Vec<Vec<u8>> {
        let forged = self.signed(&"0".repeat(64)).into_bytes();
        match self.chance.one_of(4) {
            0 => vec![value.clone(), value],
            1 => vec![value, forged],
            2 => vec![forged, value],
            _ => Vec::new(),
        }
    }

    /// One digit in another script.
    fn other_letters(&mut self) -> String {
        const LIKE: [&str; 6] = ["０", "٣", "а", "ｅ", "\u{301}", "\u{200b}"];
        let at = self.chance.one_of(self.mac.len());
        let like = LIKE[self.chance.one_of(LIKE.len())];
        format!("{}{like}{}", &self.mac[..at], &self.mac[at + 1..])
    }

    fn other_body(&mut self, mut body: Vec<u8>) -> Vec<u8> {
        match self.chance.one_of(4) {
            0 => body.truncate(self.chance.one_of(self.genuine.body.len())),
            1 => body.extend(self.digits().bytes()),
            2 => body.insert(self.chance.one_of(self.genuine.body.len()), b' '),
            _ => body = String::from_utf8_lossy(&body).replace("1990", "1991").into_bytes(),
        }
        body
    }

    /// More signatures than a rotation needs, the right one among them.
    fn too_many(&mut self) -> String {
        let others = vec![format!("v1={}", self.mac); 9 + self.chance.one_of(30)];
        format!("t={},{}", self.timestamp, others.join(","))
    }
}

impl Message {
    fn headers(&self) -> HeaderMap {
        let values = self.values.iter().map(|value| HeaderValue::from_bytes(value).expect("checked before"));
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, value);
        }
        headers
    }
}

/// A callback of a payment that the sandbox took and keeps to itself.
async fn true_callback(app: &TestApp, pay_order_id: &str) -> (Vec<u8>, String) {
    let taken = app.sandbox_pay(pay_order_id, serde_json::json!({"notify": false})).await.expect(200);
    let callback = app.success("e1", pay_order_id, taken.text_of("transaction_id"), 1990);
    let body = serde_json::to_vec(&callback).expect("json");
    let signature = app.sign(&body);
    (body, signature)
}

async fn send(service: &Service, message: &Message) -> (u16, String) {
    let request = service.http.post(format!("{}/webhooks/sandbox", service.url)).headers(message.headers());
    let answer = request.body(message.body.clone()).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("text"))
}

/// A thousand forged ones, none of which is believed.
async fn flood(service: &Service, forger: &mut Forger) {
    let forged: Vec<Message> = (0..1000).map(|_| forger.forge()).collect();
    let believed: Vec<_> = stream::iter(&forged)
        .map(async |message| (message, send(service, message).await))
        .buffer_unordered(32)
        .filter(|(_, (status, text))| std::future::ready((*status, text.as_str()) != (400, "FAIL")))
        .collect()
        .await;
    assert!(believed.is_empty(), "{believed:?}");
}

#[tokio::test]
async fn ten_thousand_forged_callbacks_are_refused_and_the_true_one_is_taken_after_them() {
    let shop = Shop::open().await;
    let service = shop.serve("").await;
    let id = shop.app.order_to_pay("S1").await;
    let (body, signature) = true_callback(&shop.app, &id).await;
    let mut forger = Forger::new(&body, &signature);
    // The one row that the service writes of itself.
    shop.app.eventually("an audit is made", async || shop.app.count("last_audit").await == 1).await;
    let rows = shop.app.row_counts().await;
    let mut before = service.usage();
    for round in 0..if is_full() { 101 } else { 11 } {
        flood(&service, &mut forger).await;
        // The first thousand are there to warm up.
        if round == 0 {
            before = service.usage();
        }
    }
    let now = service.usage();
    println!("{before:?}, afterwards {now:?}");
    assert!(now.grown_since(&before) < NOISE, "{before:?}, {now:?}");
    assert_eq!(shop.app.row_counts().await, rows, "nothing is left of them");
    assert_eq!(shop.app.status_of("S1").await, "PENDING");
    assert_eq!(send(&service, &forger.genuine).await, (200, "SUCCESS".to_owned()));
    assert_eq!(shop.app.status_of("S1").await, "PAID");
    service.kill().await;
    shop.end().await;
}

#[tokio::test]
async fn while_forged_callbacks_pour_in_customers_are_served() {
    let shop = Shop::open().await;
    let service = shop.serve("").await;
    let id = shop.app.order_to_pay("S1").await;
    let (body, signature) = true_callback(&shop.app, &id).await;
    let mut forger = Forger::new(&body, &signature);
    sell(&shop, &service, "first").await;
    let is_over = Cell::new(false);
    let pouring = async {
        for _ in 0..if is_full() { 30 } else { 5 } {
            flood(&service, &mut forger).await;
        }
        is_over.set(true);
    };
    let ((), (sales, slowest)) = tokio::join!(pouring, sell_until(&shop, &service, "beside", &is_over));
    println!("{sales} sales, {slowest:?} at most");
    assert!(sales > 0 && slowest < Duration::from_secs(10), "{sales} sales, {slowest:?}");
    assert_eq!(shop.app.status_of("S1").await, "PENDING");
    assert_eq!(send(&service, &forger.genuine).await, (200, "SUCCESS".to_owned()));
    shop.settle("after the flood").await;
    service.kill().await;
    shop.end().await;
}

#[tokio::test]
async fn of_all_forged_signatures_none_holds() {
    let count = if is_full() { 1_000_000 } else { 100_000 };
    let app = TestApp::start().await;
    let id = app.order_to_pay("S2").await;
    let (body, signature) = true_callback(&app, &id).await;
    let mut forger = Forger::new(&body, &signature);
    let channel = app.instance.app.channels.get("sandbox").expect("the sandbox").clone();
    let received_at = app.clock.now();
    let holds = |message: &Message| {
        let headers = message.headers();
        channel.verify(&RawCallback { headers: &headers, body: &message.body, received_at }).is_ok()
    };
    let since = Instant::now();
    for _ in 0..count {
        let forged = forger.forge();
        assert!(!holds(&forged), "{forged:?}");
    }
    println!("{count}, {:?} for each", since.elapsed() / u32::try_from(count).expect("small"));
    assert!(holds(&forger.genuine));
    assert!(since.elapsed() < Duration::from_secs(280), "the true one is no longer young enough to tell");
    app.end().await;
}
