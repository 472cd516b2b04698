//! Events: how many a second reach an endpoint, how soon a new one does, and what a dead endpoint beside it costs.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::load::{self, Client};
use crate::service::ADMIN_TOKEN;
use crate::stage::Stage;
use crate::table::{Sample, Standing, Target};
use crate::{Failure, seed};

/// Clients of the other side.
const OTHER: (&str, usize) = ("floor_update1", 8);
/// Longest wait for the last event.
const TOLD_WITHIN: Duration = Duration::from_secs(120);
/// New events on an idle machine, so long apart.
const LIGHT: (i32, Duration) = (200, Duration::from_millis(25));

/// An endpoint that costs next to nothing: of a call it reads as far as the length, and answers the same each time.
#[derive(Clone, Debug)]
struct Sink {
    addr: SocketAddr,
    calls: Arc<std::sync::atomic::AtomicUsize>,
    /// When each order number was first heard of, where that is wanted.
    heard: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Sink {
    async fn open() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let sink = Self { addr: listener.local_addr()?, calls: Arc::default(), heard: Arc::default() };
        let own = sink.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve(stream).await.ok() });
            }
        });
        Ok(sink)
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut buffer, mut filled) = (vec![0; 16 * 1024], 0);
        loop {
            let count = stream.read(&mut buffer[filled..]).await?;
            if count == 0 {
                return Ok(());
            }
            filled += count;
            let Some(length) = whole(&buffer[..filled]).filter(|length| *length <= filled) else { continue };
            self.note(&buffer[..length]);
            filled = 0;
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        }
    }

    fn count(&self) -> usize {
        self.calls.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn note(&self, call: &[u8]) {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = String::from_utf8_lossy(call);
        let late = text.split("\"order_no\": \"fresh_").nth(1).and_then(|rest| rest.split('"').next());
        if let (Some(number), Ok(mut heard)) = (late, self.heard.lock()) {
            heard.entry(number.to_owned()).or_insert_with(Instant::now);
        }
    }
}

/// Bytes of a whole call, once its head is there.
fn whole(call: &[u8]) -> Option<usize> {
    let head = call.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&call[..head]).ok()?.to_ascii_lowercase();
    let length = text.split("content-length: ").nth(1)?.split("\r\n").next()?;
    Some(head + length.parse::<usize>().ok()?)
}

async fn tell_at(stage: &Stage, merchant: &str, url: Option<&str>) -> Result<(), Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    let authorization = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    let url = url.map_or("null".to_owned(), |url| format!("\"{url}\""));
    let body = format!(r#"{{"notify_url":{url},"reason":"a figure"}}"#);
    let path = format!("/admin/merchants/{merchant}/notify-url");
    match client.call(&load::post(&path, &authorization, &body)).await? {
        200 => Ok(()),
        status => Err(format!("events: {path} answered {status}").into()),
    }
}

async fn append(stage: &Stage, merchant: &str, prefix: &str, count: i32) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    sqlx::query(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT $1, $2 || g, 'bench.told', 1,
                jsonb_build_object('order_no', $2 || g, 'user_id', 'u' || g, 'amount', 1990, 'currency', 'CNY',
                                   'pay_order_id', 'po_' || lpad(g::text, 26, '0'), 'channel', 'sandbox'), now()
         FROM generate_series(1, $3) AS g",
    )
    .bind(merchant)
    .bind(prefix)
    .bind(count)
    .execute(&mut connection)
    .await?;
    Ok(connection.close().await?)
}

/// How long it takes until everything of that merchant is told.
async fn told_after(stage: &Stage, merchant: &str, began: Instant) -> Result<Duration, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let is_waiting = "SELECT EXISTS (SELECT FROM outbox_queue WHERE NOT is_again)
                              OR EXISTS (SELECT FROM deliveries WHERE coalesce(status, 'age') = 'PENDING' AND merchant_id = $1)";
        let is_waiting: bool =
            sqlx::query_scalar(is_waiting).bind(merchant).fetch_one(&mut connection).await?;
        if !is_waiting {
            connection.close().await?;
            return Ok(began.elapsed());
        }
        if began.elapsed() > TOLD_WITHIN {
            return Err("events: not all were told in time".into());
        }
    }
}

/// Events to an endpoint on this machine, alone and then beside one that is dead.
pub async fn throughput(stage: &mut Stage) -> Result<(), Failure> {
    let (sink, count) = (Sink::open().await?, 3 * stage.settings.timeouts);
    let url = format!("http://{}/hook", sink.addr);
    tell_at(stage, seed::MERCHANT, Some(&url)).await?;
    for (name, is_beside) in [("events to an endpoint", false), ("events beside a dead endpoint", true)] {
        if is_beside {
            beside_a_dead_one(stage, count).await?;
        }
        let (ours, other) = rounds(stage, &sink, &format!("told{}_", u8::from(is_beside))).await?;
        stage.table.ratio(name, OTHER.1, &ours, &other, Target::Least(0.40));
    }
    let told = sink.count();
    eprintln!("{told} calls for {} events", 2 * stage.settings.rounds * usize::try_from(count)?);
    tell_at(stage, seed::MERCHANT, None).await
}

/// Our rates and those of the other side, in turns.
async fn rounds(stage: &mut Stage, sink: &Sink, prefix: &str) -> Result<(Vec<Sample>, Vec<Sample>), Failure> {
    let count = 3 * stage.settings.timeouts;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let expected = sink.count() + usize::try_from(count)?;
        seed::settle(&stage.database_url).await?;
        let began = Instant::now();
        append(stage, seed::MERCHANT, &format!("{prefix}{round}_"), count).await?;
        while sink.count() < expected && began.elapsed() < TOLD_WITHIN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = told_after(stage, seed::MERCHANT, began).await?;
        ours.push(Sample::new(f64::from(count) / took.as_secs_f64(), &[]));
        other.push(stage.pgbench.run(OTHER.0, OTHER.1, stage.settings.window).await?);
    }
    Ok((ours, other))
}

/// How the relay stands beside its equivalent.
pub async fn rate(stage: &mut Stage, prefix: &str) -> Result<Standing, Failure> {
    let sink = Sink::open().await?;
    tell_at(stage, seed::MERCHANT, Some(&format!("http://{}/hook", sink.addr))).await?;
    let (ours, other) = rounds(stage, &sink, prefix).await?;
    tell_at(stage, seed::MERCHANT, None).await?;
    Ok(Standing::of(&ours, &other))
}

/// A merchant whose endpoint refuses connections, with as many events.
async fn beside_a_dead_one(stage: &Stage, count: i32) -> Result<(), Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    let authorization = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    let body = r#"{"merchant_id":"dead","name":"Dead"}"#;
    client.call(&load::post("/admin/merchants", &authorization, body)).await?;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    tell_at(stage, "dead", Some(&format!("http://{closed}/"))).await?;
    append(stage, "dead", "dead_", count).await
}

/// New events on an idle machine: from the answer to the request that made them to their arrival.
pub async fn freshness(stage: &mut Stage) -> Result<(), Failure> {
    let sink = Sink::open().await?;
    tell_at(stage, seed::MERCHANT, Some(&format!("http://{}/hook", sink.addr))).await?;
    let mut client = Client::connect(stage.service.addr).await?;
    let mut made = Vec::new();
    for number in 1..=LIGHT.0 {
        let body = format!(r#"{{"order_no":"fresh_{number}","user_id":"u","currency":"CNY","amount":1990}}"#);
        client.call(&load::post("/orders", &stage.authorization, &body)).await?;
        let close = load::post(&format!("/orders/fresh_{number}/close"), &stage.authorization, "{}");
        let status = client.call(&close).await?;
        if status != 200 {
            return Err(format!("freshness: closing was answered with {status}").into());
        }
        made.push((number.to_string(), Instant::now()));
        tokio::time::sleep(LIGHT.1).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let heard = sink.heard.lock().map_err(|_| "freshness: the endpoint panicked")?.clone();
    let mut late: Vec<f64> = made
        .iter()
        .filter_map(|(number, at)| {
            Some(heard.get(number)?.saturating_duration_since(*at).as_secs_f64() * 1000.0)
        })
        .collect();
    if late.len() != made.len() {
        return Err(format!("freshness: {} of {} events were heard of", late.len(), made.len()).into());
    }
    late.sort_unstable_by(f64::total_cmp);
    let p99 = late[late.len() * 99 / 100];
    stage.table.value("a new event on an idle machine, p50", late[late.len() / 2], "ms", Target::Information);
    stage.table.value("a new event on an idle machine, p99", p99, "ms", Target::Most(50.0));
    tell_at(stage, seed::MERCHANT, None).await
}
