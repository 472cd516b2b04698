//! Everything that is due is done, by duties that a story drives by hand or by those that run by themselves.

use std::time::{Duration, Instant};

use payonce::infra::duty::Batch;
use payonce::workers;
use sqlx::{Connection, PgConnection};

use super::app::{PATIENCE, TestApp};
use super::unfinished;

/// So often a duty may fail with nothing else to do, each time after a longer pause: about half a second in all.
const FAILING_LAPS: u64 = 10;

/// What one turn of all duties came to.
struct Lap {
    /// Whether nothing was left to do, but for what failed.
    is_idle: bool,
    /// Each with its error.
    failed: Vec<String>,
}

impl TestApp {
    /// Runs every duty, and delivers the sandbox's webhooks, until nothing that is due is left. One that fails runs again, as it
    /// would by itself; the story fails with what still does so when there is nothing else to do.
    pub async fn run_until_idle(&self) {
        let mut in_vain = 0;
        for _ in 0..2000 {
            let lap = self.run_a_lap().await;
            match (lap.is_idle, lap.failed.is_empty()) {
                (true, true) => return,
                (true, false) => in_vain += 1,
                (false, _) => in_vain = 0,
            }
            assert!(in_vain < FAILING_LAPS, "duties fail at every turn: {:#?}", lap.failed);
            tokio::time::sleep(Duration::from_millis(10 * in_vain)).await;
        }
        panic!("there is always something left to do: {}", self.what_is_left().await);
    }

    /// The same where the story has broken what duties need: those that fail are left at that. None may panic all the same.
    pub async fn run_until_idle_or_broken(&self) {
        for _ in 0..2000 {
            if self.run_a_lap().await.is_idle {
                return;
            }
        }
        panic!("there is always something left to do: {}", self.what_is_left().await);
    }

    async fn run_a_lap(&self) -> Lap {
        let mut lap =
            Lap { is_idle: self.gateway.deliver_due().await.expect("deliver") == 0, failed: vec![] };
        for duty in workers::duties(&self.instance.app) {
            if duty.name() == "audit.run" {
                continue;
            }
            match duty.run_once().await {
                Ok(batch) => lap.is_idle &= matches!(batch, Batch::Done | Batch::Empty),
                Err(error) => {
                    assert_ne!(error.to_string(), "the duty panicked", "{}", duty.name());
                    lap.failed.push(format!("{}: {error:?}", duty.name()));
                }
            }
        }
        lap.is_idle &= self.due_tasks().await == 0;
        if self.deliveries_under_way().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lap.is_idle = false;
        }
        if self.webhooks_under_way().await > 0 {
            // The sandbox's own sender has them; what they bring about is still to come.
            tokio::time::sleep(Duration::from_millis(10)).await;
            lap.is_idle = false;
        }
        lap
    }

    /// Waits for workers that run by themselves, looking again until `is_so` or the time is over.
    pub async fn eventually<F: Future<Output = bool>>(&self, what: &str, mut is_so: impl FnMut() -> F) {
        let since = Instant::now();
        while !is_so().await {
            if since.elapsed() > PATIENCE {
                panic!("never came true: {what}; left is {}", self.what_is_left().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What is in the middle, in words, for a story that waited in vain.
    async fn what_is_left(&self) -> String {
        match PgConnection::connect(&self.database_url).await {
            Ok(mut conn) => format!("{:#?}", unfinished::all(&mut conn, self.clock.now()).await),
            Err(error) => format!("known to nobody: {error}"),
        }
    }

    /// The sandbox delivers by itself too, so an event may be in its hands while nothing is due. A claim is a
    /// lease of a minute, which is no step of the retry schedule.
    async fn webhooks_under_way(&self) -> i64 {
        let in_hand = "status = 'PENDING' AND attempts > 0 AND due_at = updated_at + interval '60 seconds'";
        self.count_where("sandbox.deliveries", in_hand).await
    }

    /// Notifications and messages that are being sent, or are about to be.
    async fn deliveries_under_way(&self) -> i64 {
        // Messages wait for an instance that has a broker.
        let has_broker = self.instance.app.config.broker.url.is_some();
        let rests = "lane IN (SELECT lane FROM resting_lanes WHERE rests_until > $1)";
        let due = format!(
            "leased_until > $1 OR due_at <= $1 AND (kind <> 'RESEND_EVENT' OR {has_broker}) AND NOT {rests}"
        );
        self.count_where("deliveries", &format!("status = 'PENDING' AND ({due})")).await
            + self.count("outbox_queue").await
    }

    /// Tells the outside everything that is due, as a worker does. What an endpoint that hangs keeps is left with it; a relay that
    /// fails at every turn is no end of a story.
    pub(super) async fn relay_until_idle(&self) {
        let mut failure = None;
        for _ in 0..400 {
            failure = self.instance.app.relay.run_once().await.err();
            if failure.is_none() && self.deliveries_under_way().await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(failure.is_none(), "the relay fails: {failure:?}");
    }

    /// Those that found no room come back in a moment.
    async fn due_tasks(&self) -> i64 {
        let due = "status IN ('READY', 'RUNNING') AND (due_at <= $1 OR last_error = 'it waits for room')";
        self.count_where("compensations", due).await
    }
}
