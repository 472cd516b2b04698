//! Callbacks that pay nothing are kept.

use std::collections::HashMap;
use std::sync::Arc;

use time::OffsetDateTime;

use crate::ids::Ids;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience, column};
use crate::orders::OrderKey;
use crate::pay::report::{self, Verdict};

/// Keeps a callback; a repeat changes nothing. One about a refund is found by the refund's order; one for another
/// account at the channel is shown to a person, in the same transaction.
#[derive(Debug)]
pub(in crate::webhooks) struct Keep {
    pub(in crate::webhooks) channel: &'static str,
    pub(in crate::webhooks) event_id: String,
    pub(in crate::webhooks) subject: String,
    pub(in crate::webhooks) verdict: Verdict,
    pub(in crate::webhooks) body: Arc<[u8]>,
    pub(in crate::webhooks) now: OffsetDateTime,
    pub(in crate::webhooks) ids: Ids,
}

impl Command for Keep {
    const NAME: &'static str = "webhooks.keep";
    type Outcome = ();

    /// Two of one name never share a batch.
    fn order(&self) -> Option<String> {
        Some(format!("{}/{}", self.channel, self.event_id))
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<()>, DbError> {
        if batch.iter().all(|keep| keep.verdict != Verdict::WrongAccount) {
            insert(conn, batch, patience).await?;
        } else {
            let mut tx = conn.begin_batch(patience).await?;
            let kept = insert_and_show(&mut tx, batch, patience).await;
            tx.finish_into(conn, kept).await?;
        }
        Ok(column(batch, |_| ()))
    }
}

async fn insert_and_show(tx: &mut Tx, batch: &[Keep], patience: Patience) -> Result<(), DbError> {
    let new = insert(tx, batch, patience).await?;
    let mut wrong: Vec<&Keep> = batch.iter().filter(|keep| keep.verdict == Verdict::WrongAccount).collect();
    // What is open about them stays locked: of two batches one comes after the other.
    wrong.sort_by(|one, other| one.subject.cmp(&other.subject));
    for keep in wrong {
        let Some(order) = new.get(&(keep.channel.to_owned(), keep.event_id.clone())) else { continue };
        let about = (keep.event_id.as_str(), keep.subject.as_str());
        report::open_wrong_account_in_tx(&keep.ids, tx, about, order.as_ref(), keep.now).await?;
    }
    Ok(())
}

/// Gives the names of those that are new, with the orders of those about refunds.
async fn insert(
    conn: &mut Conn,
    batch: &[Keep],
    patience: Patience,
) -> Result<HashMap<(String, String), Option<OrderKey>>, DbError> {
    let rows = sqlx::query!(
        "WITH patient AS MATERIALIZED (SELECT set_config('lock_timeout', $7, true))
         INSERT INTO webhook_inbox
             (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at)
         SELECT channel, event_id, subject, refund.merchant_id, refund.order_no, verdict, body, now, now
         FROM (SELECT unnest($1::text[]) AS channel, unnest($2::text[]) AS event_id, unnest($3::text[]) AS subject,
                      unnest($4::text[]) AS verdict, unnest($5::bytea[]) AS body, unnest($6::timestamptz[]) AS now) AS new
         -- One that somebody else is keeping under the same name is waited for.
         CROSS JOIN patient
         -- The limit makes it a look-up each.
         LEFT JOIN LATERAL (SELECT merchant_id, order_no FROM refunds
                            WHERE refunds.refund_id = new.subject LIMIT 1) AS refund ON true
         ON CONFLICT (channel, event_id) DO NOTHING
         RETURNING channel, event_id, merchant_id, order_no",
        &column(batch, |keep| keep.channel) as &[&str],
        &column(batch, |keep| keep.event_id.as_str()) as &[&str],
        &column(batch, |keep| keep.subject.as_str()) as &[&str],
        &column(batch, |keep| keep.verdict.as_str()) as &[&str],
        &column(batch, |keep| &*keep.body) as &[&[u8]],
        &column(batch, |keep| keep.now),
        patience.millis(),
    )
    .fetch_all(conn)
    .await?;
    let order = |merchant_id: Option<String>, order_no: Option<String>| {
        OrderKey::from_columns(merchant_id.as_deref(), order_no.as_deref())
    };
    let kept = rows.into_iter();
    Ok(kept.map(|row| ((row.channel, row.event_id), order(row.merchant_id, row.order_no))).collect())
}
