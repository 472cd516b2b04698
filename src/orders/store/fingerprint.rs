//! What of an order tells that it changed.

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::orders::{OrderKey, SettleStatus};

/// Differs between any two states of an order and of what is shown with it. Its version alone counts changes of its status: a
/// further part that goes back, and a settlement, are none; nor is an attempt that fails, a refund that is asked for, and
/// stray money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::orders) struct Fingerprint {
    version: i32,
    refunded_amount: i64,
    settle_status: SettleStatus,
    /// Each attempt and each refund counts once, and once more for each change of its state.
    parts: i64,
    stray_states: Option<String>,
}

/// Reads an order's fingerprint. Asked for again and again by all who wait for a change, so it shares round trips.
#[derive(Debug)]
pub(in crate::orders) struct FindFingerprint(pub(in crate::orders) OrderKey);

impl Command for FindFingerprint {
    const NAME: &'static str = "orders.find_fingerprint";
    type Outcome = Option<Fingerprint>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(
        batch: &[Self],
        _: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Option<Fingerprint>>, DbError> {
        let rows = sqlx::query!(
            r#"SELECT asked.place AS "place!", orders.version, orders.refunded_amount,
                      orders.settle_status AS "settle_status: SettleStatus",
                      (SELECT coalesce(sum(version), 0) FROM pay_orders
                       WHERE merchant_id = orders.merchant_id AND order_no = orders.order_no)
                      + (SELECT coalesce(sum(version), 0) FROM refunds
                         WHERE merchant_id = orders.merchant_id AND order_no = orders.order_no) AS "parts!",
                      (SELECT string_agg(status, ',' ORDER BY stray_id) FROM stray_payments
                       WHERE merchant_id = orders.merchant_id AND order_no = orders.order_no) AS stray_states
               FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                            unnest($3::bigint[]) AS place) AS asked
               JOIN orders ON orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no"#,
            &column(batch, |FindFingerprint(key)| key.merchant_id.as_str()) as &[&str],
            &column(batch, |FindFingerprint(key)| key.order_no.as_str()) as &[&str],
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| {
            let (version, refunded_amount, settle_status) =
                (row.version, row.refunded_amount, row.settle_status);
            let (parts, stray_states) = (row.parts, row.stray_states);
            (row.place, Fingerprint { version, refunded_amount, settle_status, parts, stray_states })
        }))
    }
}
