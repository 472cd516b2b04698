//! Servers in groups: Redis behind sentinels, Redis nodes of a quorum, a RabbitMQ with names of the story's own.

use std::time::{Duration, Instant};

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use payonce::local::{RabbitServer, RedisOptions, RedisServer, SentinelServer};
use tokio::sync::OnceCell;

use super::TestApp;
use super::stores::{directory, fresh_name, fresh_redis, tell_redis, try_to_tell_redis};

/// A master, its replica, and three sentinels that replace the one by the other.
pub struct Watched {
    pub master: RedisServer,
    pub replica: RedisServer,
    sentinels: Vec<SentinelServer>,
}

impl Watched {
    pub async fn start() -> Self {
        let dir = directory().join("watched").join(fresh_name());
        let master = RedisServer::start(&dir.join("master")).await.expect("a master");
        let options = RedisOptions {
            password: Some(master.password().to_owned()),
            config: vec![format!("replicaof 127.0.0.1 {}", master.port())],
            ..RedisOptions::default()
        };
        let replica = RedisServer::start_with(&dir.join("replica"), &options).await.expect("a replica");
        // After split votes they rest for twice as long; a promotion is noticed after a second.
        let patience = ["sentinel failover-timeout shop 1500".to_owned()];
        let target = (master.port(), master.password());
        let mut sentinels = Vec::new();
        for name in ["s1", "s2", "s3"] {
            let dir = dir.join(name);
            let sentinel = SentinelServer::start(&dir, "shop", target, 2, &patience).await;
            sentinels.push(sentinel.expect("a sentinel"));
        }
        let watched = Self { master, replica, sentinels };
        watched.until_all_know_each_other().await;
        watched
    }

    /// The value for `REDIS_URL`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(SentinelServer::address).collect();
        format!("redis+sentinel://:{}@{}/shop", self.master.password(), hosts.join(","))
    }

    /// The server that the sentinels name, which is called the master from here on.
    pub async fn present_master(&mut self) -> &RedisServer {
        let url = format!("redis://{}/", self.sentinels[0].address());
        let (_, port): (String, u16) =
            tell_redis(&url, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop"]).await;
        if port == self.replica.port() {
            std::mem::swap(&mut self.master, &mut self.replica);
        }
        &self.master
    }

    /// The master dies, the replica takes its place, and the old master comes back, to be told by the sentinels whom to
    /// follow.
    pub async fn fail_over(&mut self) {
        self.master.kill().await.expect("killed");
        let dead = self.master.port();
        eventually("the replica takes over", async || self.present_master().await.port() != dead).await;
        self.replica.restart().await.expect("restarted");
    }

    /// Waits until one server is the master and the other knows all that it knows.
    pub async fn until_the_replica_follows(&mut self) {
        // Whom it follows is changed by the sentinels, which cuts its clients off.
        let follows = async || self.replica_follows().await.unwrap_or(false);
        eventually("the replica follows the master", follows).await;
    }

    async fn replica_follows(&mut self) -> redis::RedisResult<bool> {
        self.present_master().await;
        // It may have been cut off.
        let words = ["CONFIG", "SET", "masterauth", self.master.password()];
        let _: () = try_to_tell_redis(&self.replica.url(), &words).await?;
        let told: String = try_to_tell_redis(&self.replica.url(), &["INFO", "replication"]).await?;
        Ok(told.contains("role:slave")
            && told.contains(&format!("master_port:{}\r", self.master.port()))
            && told.contains("master_link_status:up"))
    }

    /// Nobody of them is left.
    pub async fn end_all(&mut self) {
        for sentinel in &mut self.sentinels {
            sentinel.stop().await.expect("stopped");
        }
        for server in [&mut self.master, &mut self.replica] {
            server.kill().await.expect("killed");
        }
    }

    /// Without the replica and each other known, the sentinels would replace nobody.
    async fn until_all_know_each_other(&self) {
        for sentinel in &self.sentinels {
            let url = format!("redis://{}/", sentinel.address());
            loop {
                let words = ["SENTINEL", "MASTER", "shop"];
                let state: std::collections::HashMap<String, String> = tell_redis(&url, &words).await;
                let knows = |what: &str, count: &str| state.get(what).is_some_and(|known| known == count);
                if knows("num-slaves", "1") && knows("num-other-sentinels", "2") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// From here on the replica hears nothing of what the master is told, and yet can take over.
    pub async fn cut_the_replica_off(&self) {
        let _: () = tell_redis(&self.replica.url(), &["CONFIG", "SET", "masterauth", "wrong"]).await;
        let _: i64 = tell_redis(&self.master.url(), &["CLIENT", "KILL", "TYPE", "replica"]).await;
    }
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < Duration::from_secs(60), "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Independent nodes, and the value for `REDIS_URL`.
pub async fn quorum_of(count: usize) -> (Vec<RedisServer>, String) {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(fresh_redis().await);
    }
    let urls: Vec<String> = nodes.iter().map(RedisServer::url).collect();
    (nodes, urls.join(","))
}

/// The RabbitMQ that the stories of this process share, when none listens on the machine.
static PRIVATE: OnceCell<RabbitServer> = OnceCell::const_new();

/// Where the machine's own would be, with the user that it is delivered with.
const OF_THE_MACHINE: &str = "amqp://guest:guest@127.0.0.1:5672/%2f";

/// A RabbitMQ and names of the story's own on it: nothing else there is touched.
pub struct Broker {
    pub url: String,
    pub prefix: String,
}

impl Broker {
    /// On the RabbitMQ of the machine if there is one, otherwise on a private one.
    pub async fn fresh() -> Self {
        if Connection::connect(OF_THE_MACHINE, ConnectionProperties::default()).await.is_ok() {
            return Self::on(OF_THE_MACHINE);
        }
        let private = PRIVATE.get_or_init(private_rabbitmq).await;
        Self::on(&private.url())
    }

    pub fn on(url: &str) -> Self {
        Self { url: url.to_owned(), prefix: format!("payonce-test-{}", fresh_name()) }
    }

    /// The variables that put an instance's timers there.
    pub fn vars(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DELAY_QUEUE", "rabbitmq".to_owned()),
            ("AMQP_URL", self.url.clone()),
            ("AMQP_PREFIX", self.prefix.clone()),
        ]
    }

    pub async fn channel(&self) -> Channel {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await;
        connection.expect("a connection").create_channel().await.expect("a channel")
    }

    pub fn queue(&self, name: &str) -> String {
        format!("{}.order_timeout.{name}", self.prefix)
    }

    /// How many messages are ready in a queue: none in one that is not there yet, and those in a worker's hands do not
    /// count.
    pub async fn ready(&self, name: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = self.channel().await;
        let queue = channel.queue_declare(self.queue(name).into(), passive, FieldTable::default()).await;
        queue.map_or(0, |queue| queue.message_count())
    }

    /// Ends the story, then takes its names off the broker.
    pub async fn end(self, app: TestApp) {
        app.end().await;
        self.clear().await;
    }

    pub async fn clear(self) {
        let channel = self.channel().await;
        let steps = (0..20).map(|step| format!("wait.{}s", 1_u32 << step));
        for name in steps.chain(["due".to_owned(), "parked".to_owned()]) {
            let deleted = channel.queue_delete(self.queue(&name).into(), QueueDeleteOptions::default()).await;
            deleted.expect("deleted");
        }
        for name in ["usage.report", "usage.report.dead"] {
            let queue = format!("{}.{name}", self.prefix);
            channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
        }
        for exchange in ["order_timeout", "events"] {
            let exchange = format!("{}.{exchange}", self.prefix);
            let deleted = channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await;
            deleted.expect("deleted");
        }
    }
}

/// Sends a message to a queue as soon as somebody has made it, and waits until the broker has it.
pub async fn send_letter(url: &str, queue: &str, body: &[u8]) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("a connection");
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    for _ in 0..200 {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = BasicProperties::default().with_delivery_mode(2);
        let sent = channel.basic_publish("".into(), queue.into(), options, body, properties).await;
        let confirm = sent.expect("sent").await.expect("confirmed");
        if confirm.is_ack() && confirm.take_message().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{queue} is not there");
}

/// A RabbitMQ that the story may kill.
pub async fn private_rabbitmq() -> RabbitServer {
    let dir = directory().join("rabbitmq").join(fresh_name());
    RabbitServer::start(&dir).await.expect("a private RabbitMQ")
}
