//! What every scene stands on: the stores, the service, the merchant, and pgbench beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use payonce::channels::sandbox::signature::Keys;
use payonce::infra::clock::Clock;
use payonce::local::{LocalStores, Options};
use sqlx::{Connection, PgConnection};

use super::load::{self, Order, Run};
use super::pgbench::Pgbench;
use super::seed;
use super::service::{Program, SANDBOX_SECRET, Service};
use super::table::{Table, Target, median};
use super::{Failure, Settings};

/// Starts of the service that are timed.
const STARTS: usize = 5;

/// The stage.
#[derive(Debug)]
pub struct Stage {
    /// How much is measured.
    pub settings: Settings,
    /// What was measured so far.
    pub table: Table,
    /// The service under test.
    pub service: Service,
    /// The database that it writes to.
    pub database_url: String,
    /// The Redis that it uses.
    pub redis_url: String,
    /// The merchant's key, as a header line.
    pub authorization: String,
    /// Signs webhooks as the sandbox does.
    pub keys: Keys,
    /// The time.
    pub clock: Clock,
    /// The other side.
    pub pgbench: Pgbench,
    program: Program,
    stores: LocalStores,
}

fn directory() -> PathBuf {
    // …/target/<profile>/deps/figures-<hash>
    let target = std::env::current_exe().ok().and_then(|exe| exe.ancestors().nth(3).map(Path::to_owned));
    target.unwrap_or_else(|| "target".into()).join("bench")
}

/// The same server, another database.
fn sibling(url: &str, database: &str) -> String {
    url.replacen("/figures?", &format!("/{database}?"), 1)
}

async fn fresh_databases(url: &str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(&sibling(url, "postgres")).await?;
    for statement in [
        "DROP DATABASE IF EXISTS figures WITH (FORCE)",
        "DROP DATABASE IF EXISTS limits WITH (FORCE)",
        "CREATE DATABASE figures",
        "CREATE DATABASE limits",
    ] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

impl Stage {
    /// Starts everything.
    pub async fn set(settings: Settings) -> Result<Self, Failure> {
        let dir = directory();
        let options = Options {
            durable: true,
            shared_buffers: "256MB".to_owned(),
            max_connections: 400,
            database: "figures".to_owned(),
            ..Options::default()
        };
        let stores = LocalStores::start(&dir, &options).await?;
        // Both sides go through unix sockets, as `payonce dev` does.
        let (database_url, redis_url) = (stores.postgres.socket_url(), stores.redis.socket_url());
        fresh_databases(&database_url).await?;

        eprintln!("making the minimal schema …");
        let tool = |name| stores.postgres.program(name);
        let limits = sibling(&database_url, "limits");
        let logs = dir.join("pgbench");
        let pgbench = Pgbench::prepare(&tool("psql"), tool("pgbench"), limits, logs, &settings).await?;

        let (log, mut table) = (dir.join("service.log"), Table::default());
        let _ = std::fs::remove_file(&log);
        let program = Program { database_url: database_url.clone(), redis_url: redis_url.clone(), log };
        program.run(&["migrate"]).await?;
        let secrets = program.run(&["merchant", "create", seed::MERCHANT, "-o", "json"]).await?;
        let secrets: serde_json::Value = serde_json::from_str(&secrets)?;
        let key = secrets["secret_key"].as_str().ok_or("no key for the merchant")?;
        let authorization = format!("Authorization: Bearer {key}\r\n");
        seed::stock(&database_url).await?;

        let service = timed_starts(&program, &mut table).await?;
        let (keys, clock) = (Keys::new(&[SANDBOX_SECRET.into()])?, Clock::system());
        Ok(Self {
            settings,
            table,
            service,
            database_url,
            redis_url,
            authorization,
            keys,
            clock,
            pgbench,
            program,
            stores,
        })
    }

    /// Another instance of the service.
    pub async fn another_instance(&self) -> Result<Service, Failure> {
        Ok(self.program.start().await?.0)
    }

    /// An instance for which Redis is away: it goes on without locks.
    pub async fn instance_without_redis(&self) -> Result<Service, Failure> {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let program = Program { redis_url: format!("redis://{closed}"), ..self.program.clone() };
        Ok(program.start().await?.0)
    }

    /// Sends requests at the service, for one window.
    pub async fn fire(
        &self,
        requests: &Arc<Vec<Vec<u8>>>,
        clients: usize,
        order: Order,
    ) -> Result<Run, Failure> {
        self.fire_at(&[&self.service], requests, clients, order).await
    }

    /// Sends requests at these instances, for one window.
    pub async fn fire_at(
        &self,
        instances: &[&Service],
        requests: &Arc<Vec<Vec<u8>>>,
        clients: usize,
        order: Order,
    ) -> Result<Run, Failure> {
        let addrs: Vec<_> = instances.iter().map(|instance| instance.addr).collect();
        load::fire(&addrs, requests, clients, self.settings.window, order).await
    }

    /// Stops everything, and lets the audit judge what was written; gives the table.
    pub async fn strike(self, outcome: Result<(), Failure>) -> Result<Table, Failure> {
        self.service.stop().await?;
        let began = Instant::now();
        let judged = match outcome {
            Ok(()) => self.program.run(&["audit"]).await.map(drop),
            failed => failed,
        };
        let took = began.elapsed().as_secs();
        self.stores.stop().await?;
        if judged.is_err() {
            println!("\n{}", self.table.text());
        }
        judged?;
        println!("payonce audit: every invariant holds, as it found in {took} s");
        Ok(self.table)
    }

    /// The processes of PostgreSQL's parent and of Redis.
    pub fn server_pids(&self) -> (u32, u32) {
        (self.stores.postgres.pid(), self.stores.redis.pid())
    }

    /// Notes the memory that the service holds now, and at its peak.
    pub fn note_memory(&mut self) -> Result<(), Failure> {
        let (now, peak) = (self.service.memory_mib("VmRSS")?, self.service.memory_mib("VmHWM")?);
        self.table.value("memory after full load", now, "MiB", Target::Most(200.0));
        self.table.value("memory at its peak", peak, "MiB", Target::Most(200.0));
        Ok(())
    }
}

/// Starts the service a few times on a migrated database; the last one stays.
async fn timed_starts(program: &Program, table: &mut Table) -> Result<Service, Failure> {
    let mut times = Vec::new();
    let service = loop {
        let (service, took) = program.start().await?;
        times.push(took.as_secs_f64() * 1000.0);
        if times.len() == STARTS {
            break service;
        }
        service.stop().await?;
    };
    table.value("start to ready", median(times), "ms", Target::Most(300.0));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    table.value("memory idle", service.memory_mib("VmRSS")?, "MiB", Target::Most(60.0));
    Ok(service)
}
