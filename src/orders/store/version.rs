//! The version of an order.

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places};
use crate::orders::OrderKey;

/// Reads an order's version. Asked for again and again by all who wait for a change, so it shares round trips.
#[derive(Debug)]
pub(in crate::orders) struct FindVersion(pub(in crate::orders) OrderKey);

impl Command for FindVersion {
    const NAME: &'static str = "orders.find_version";
    type Outcome = Option<i32>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Option<i32>>, DbError> {
        let rows = sqlx::query!(
            r#"SELECT asked.place AS "place!", orders.version
               FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (merchant_id, order_no, place)
               JOIN orders ON orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no"#,
            &column(batch, |FindVersion(key)| key.merchant_id.as_str()) as &[&str],
            &column(batch, |FindVersion(key)| key.order_no.as_str()) as &[&str],
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| (row.place, row.version)))
    }
}
