//! Sending webhooks: claim a batch, post, mark; again on a schedule until the receiver says `SUCCESS`.
//!
//! Always true: an event is sent at least once and with the same bytes each time; a crash loses nothing,
//! because a claim is only a lease; any number of instances may send at once.

use futures_util::StreamExt;
use reqwest::header::CONTENT_TYPE;
use time::Duration;

use super::gateway::{Gateway, GatewayError};
use super::store::deliveries::SetDelivered;
use super::webhooks::DeliveryStatus;
use super::{signature, store};
use crate::ids::PayOrderId;

/// Waits after each failed try; after the last one the event is given up.
const RETRY_AFTER: [Duration; 15] = [
    Duration::seconds(1),
    Duration::seconds(2),
    Duration::seconds(5),
    Duration::seconds(15),
    Duration::seconds(30),
    Duration::minutes(3),
    Duration::minutes(10),
    Duration::minutes(20),
    Duration::minutes(30),
    Duration::minutes(30),
    Duration::minutes(60),
    Duration::hours(3),
    Duration::hours(3),
    Duration::hours(6),
    Duration::hours(6),
];

/// Most events of one batch; all of them are under way at once, so that what is written down of them is gathered.
const BATCH: usize = 64;

/// How long a claim holds: far longer than any receiver lets us wait.
const LEASE: Duration = Duration::seconds(60);

/// Most bytes read of an answer: seven are expected.
const MAX_ANSWER_BYTES: usize = 1024;

/// The one acknowledgement.
const ACKNOWLEDGEMENT: &[u8] = b"SUCCESS";

/// An event in hand.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) id: i64,
    pub(super) event_id: String,
    pub(super) pay_order_id: String,
    pub(super) notify_url: String,
    pub(super) body: String,
    /// How many tries there were, this one included; also proves that the claim is still ours.
    pub(super) attempts: i32,
}

impl Gateway {
    /// Sends one batch of what is due and says how many events that were; call again while there are some.
    ///
    /// # Errors
    /// When the books cannot be reached.
    pub async fn deliver_due(&self) -> Result<usize, GatewayError> {
        let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let batch = store::deliveries::claim_due(&mut self.conn().await?, limit, LEASE, self.now()).await?;
        let claimed = batch.len();
        futures_util::stream::iter(batch)
            .for_each_concurrent(BATCH, |delivery| async move {
                if let Err(error) = self.deliver(&delivery).await {
                    // The lease brings the event back; the receiver may see it twice.
                    tracing::warn!(
                        event.id = delivery.event_id,
                        error = &error as &dyn std::error::Error,
                        "the result of a sandbox webhook could not be written down"
                    );
                }
            })
            .await;
        Ok(claimed)
    }

    /// Sends what a trade has to tell, and waits until all of it was taken in, at most so long. Whoever else
    /// sends may have some of it in hand.
    pub(super) async fn deliver_all_of(
        &self,
        pay_order_id: &PayOrderId,
        patience: std::time::Duration,
    ) -> Result<(), GatewayError> {
        const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);
        let until = tokio::time::Instant::now() + patience;
        loop {
            self.deliver_due().await?;
            let told = store::deliveries::list(&mut self.conn().await?, pay_order_id).await?;
            let is_told = told.iter().all(|delivery| delivery.status != DeliveryStatus::Pending);
            if is_told || tokio::time::Instant::now() >= until {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn deliver(&self, delivery: &Delivery) -> Result<(), GatewayError> {
        let sent = self.send(delivery).await;
        let now = self.now();
        match sent {
            Ok(()) => {
                let Delivery { id, attempts, .. } = *delivery;
                let delivered =
                    SetDelivered { id, attempts, pay_order_id: delivery.pay_order_id.clone(), now };
                if self.db().gather(delivered).await? {
                    self.something_to_deliver();
                }
            }
            Err(failure) => {
                let retry_at = wait_after(delivery.attempts).map(|wait| now + wait);
                tracing::debug!(event.id = delivery.event_id, attempt = delivery.attempts, %failure,
                    "a sandbox webhook about {} was not acknowledged", delivery.pay_order_id);
                store::deliveries::set_failed(&mut self.conn().await?, delivery, &failure, retry_at, now)
                    .await?;
            }
        }
        Ok(())
    }

    /// Posts the event; anything but the one acknowledgement is a failure, told in a few words.
    async fn send(&self, delivery: &Delivery) -> Result<(), String> {
        let signature = self.keys().sign(delivery.body.as_bytes(), self.now());
        let request = self
            .http()
            .post(&delivery.notify_url)
            .header(CONTENT_TYPE, "application/json")
            .header(signature::HEADER, signature)
            .body(delivery.body.clone());
        let response = request.send().await.map_err(|error| in_few_words(&error))?;
        let status = response.status();
        let answer = read_at_most(response, MAX_ANSWER_BYTES).await.map_err(|error| in_few_words(&error))?;

        match answer {
            Some(answer) if status == 200 && answer == ACKNOWLEDGEMENT => Ok(()),
            Some(answer) => {
                let head: String = String::from_utf8_lossy(&answer).chars().take(100).collect();
                // PostgreSQL's text takes every character but this one.
                Err(format!("{}: {}", status.as_u16(), head.replace('\0', " ")))
            }
            None => Err(format!("{}: more than {MAX_ANSWER_BYTES} bytes", status.as_u16())),
        }
    }
}

/// The wait after that many failed tries; none when the schedule is over.
fn wait_after(attempts: i32) -> Option<Duration> {
    let index = usize::try_from(attempts).ok()?.checked_sub(1)?;
    RETRY_AFTER.get(index).copied()
}

/// The innermost cause says what happened ("connection refused"); the outer ones repeat the URL.
fn in_few_words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer before the deadline".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Reads a body that must not be longer than `limit`; a longer one is given up where it gets too long.
pub(super) async fn read_at_most(
    mut response: reqwest::Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_begins_at_once_and_ends() {
        assert_eq!(wait_after(1), Some(Duration::seconds(1)));
        assert_eq!(wait_after(15), Some(Duration::hours(6)));
        assert_eq!(wait_after(16), None);
        assert_eq!(wait_after(0), None);
    }
}
