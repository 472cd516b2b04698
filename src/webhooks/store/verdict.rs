//! What was said of a callback when it came before.

use std::sync::Arc;

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::pay::report::Verdict;

/// Looks up the verdict of a callback that came before, under its name and to the letter.
#[derive(Debug)]
pub(in crate::webhooks) struct FindVerdict {
    pub(in crate::webhooks) channel: &'static str,
    pub(in crate::webhooks) event_id: String,
    pub(in crate::webhooks) body: Arc<[u8]>,
}

impl Command for FindVerdict {
    const NAME: &'static str = "webhooks.find_verdict";
    type Outcome = Option<Verdict>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(
        batch: &[Self],
        _: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Option<Verdict>>, DbError> {
        let rows = sqlx::query!(
            r#"SELECT came.place AS "place!", kept.verdict AS "verdict!: Verdict"
               FROM (SELECT unnest($1::text[]) AS channel, unnest($2::text[]) AS event_id,
                            unnest($3::bytea[]) AS body, unnest($4::bigint[]) AS place) AS came
               -- The limit makes it a look-up each.
               CROSS JOIN LATERAL (SELECT verdict FROM webhook_inbox AS inbox
                                   WHERE inbox.channel = came.channel AND inbox.event_id = came.event_id
                                     AND inbox.body = came.body
                                   LIMIT 1) AS kept"#,
            &column(batch, |came| came.channel) as &[&str],
            &column(batch, |came| came.event_id.as_str()) as &[&str],
            &column(batch, |came| &*came.body) as &[&[u8]],
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| (row.place, row.verdict)))
    }
}
