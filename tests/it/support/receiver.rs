//! A merchant's endpoint: it keeps what it is told, and misbehaves as a story wants it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What it does with a notification.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Answers with this status, these headers and this body.
    Answer(u16, &'static str, String),
    /// Answers 200 so much later.
    Slow(Duration),
    /// Answers so much later, with this status and these headers.
    Late(Duration, u16, &'static str),
    /// Sends its answer byte by byte, so long apart.
    Drip(Duration),
    /// Takes it in and says nothing, ever.
    Hang,
}

impl Manner {
    pub fn status(status: u16) -> Self {
        Self::Answer(status, "", String::new())
    }
}

/// What it was told.
#[derive(Clone, Debug)]
pub struct Call {
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Call {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    pub fn name(&self) -> String {
        self.json()["type"].as_str().expect("a type").to_owned()
    }

    pub fn order_no(&self) -> String {
        self.json()["data"]["order_no"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether the scheme's own library believes it. What a story's clock dates further off than it allows is compared
    /// with what it would have signed.
    pub fn is_signed_by(&self, secret: &str) -> bool {
        let judge = standardwebhooks::Webhook::new(secret).expect("a secret");
        let mut headers = reqwest::header::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, self.headers[name].parse().expect("a value"));
        }
        let at: i64 = self.headers["webhook-timestamp"].parse().expect("seconds");
        let signed = judge.sign(self.id(), at, self.body.as_bytes()).expect("a signature");
        let is_there = self.headers["webhook-signature"].split(' ').any(|one| one == signed);
        let now = payonce::infra::clock::Clock::system().now().unix_timestamp();
        let is_believed = judge.verify(self.body.as_bytes(), &headers).is_ok();
        assert!((at - now).abs() > 290 || is_believed == is_there, "the library contradicts itself");
        is_there
    }
}

/// The endpoint.
#[derive(Clone)]
pub struct Receiver {
    pub url: String,
    calls: Arc<Mutex<Vec<Call>>>,
    /// For the next calls, one after the other.
    manners: Arc<Mutex<VecDeque<Manner>>>,
    /// For all after them.
    always: Arc<Mutex<Manner>>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let always = Arc::new(Mutex::new(Manner::status(200)));
        let receiver = Self { url, calls: Arc::default(), manners: Arc::default(), always };
        let own = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                // A client that goes away is no failure of the story.
                tokio::spawn(async move { own.serve(stream).await.ok() });
            }
        });
        receiver
    }

    /// How it behaves the next times.
    pub fn behaves(&self, manners: impl IntoIterator<Item = Manner>) {
        self.manners.lock().expect("no panic").extend(manners);
    }

    /// How it behaves from now on.
    pub fn always(&self, manner: Manner) {
        *self.always.lock().expect("no panic") = manner;
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// The names of what it was told of an order, in order of arrival.
    pub fn told_of(&self, order_no: &str) -> Vec<String> {
        self.calls().iter().filter(|call| call.order_no() == order_no).map(Call::name).collect()
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        loop {
            let mut headers = HashMap::new();
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            loop {
                line.clear();
                stream.read_line(&mut line).await?;
                let Some((name, value)) = line.split_once(':') else { break };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let body = String::from_utf8(body).expect("text");
            self.calls.lock().expect("no panic").push(Call { headers, body });
            let next = self.manners.lock().expect("no panic").pop_front();
            let manner = next.unwrap_or_else(|| self.always.lock().expect("no panic").clone());
            self.answer(&mut stream, manner).await?;
        }
    }

    async fn answer(&self, stream: &mut BufReader<TcpStream>, manner: Manner) -> std::io::Result<()> {
        let whole = |status: u16, more: &str, body: &str| {
            format!("HTTP/1.1 {status} So\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
        };
        match manner {
            Manner::Answer(status, more, body) => {
                stream.write_all(whole(status, more, &body).as_bytes()).await
            }
            Manner::Slow(pause) => {
                tokio::time::sleep(pause).await;
                stream.write_all(whole(200, "", "").as_bytes()).await
            }
            Manner::Late(pause, status, more) => {
                tokio::time::sleep(pause).await;
                stream.write_all(whole(status, more, "").as_bytes()).await
            }
            Manner::Drip(pause) => {
                for byte in whole(200, "", "").bytes() {
                    stream.write_all(&[byte]).await?;
                    tokio::time::sleep(pause).await;
                }
                Ok(())
            }
            Manner::Hang => std::future::pending().await,
        }
    }
}
