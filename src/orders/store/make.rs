//! Orders are made.

use time::OffsetDateTime;

use crate::idempotency::Kept;
use crate::ids::UserId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, Unheard, column, met};
use crate::orders::metadata::Metadata;
use crate::orders::model::{Order, OrderItem};

/// Writes a new order with its lines, reservations and first line of history, holds its stock, and keeps its answer.
/// `false` when the number is taken, when something is not on sale, or when less of it is left than is wanted: then
/// nothing was written for it. Orders of one batch are served in their order: one may also be refused because what
/// is left would not do for it and for all before it, of which one may be refused for want of something else; asked
/// again, it meets those that were made only.
///
/// The CHECK on `skus` is the last word against overselling. A number that is taken in this very moment meets the
/// primary key, an idempotency key that was answered that of `idempotency_keys`; either refusal leaves nothing behind.
#[derive(Debug)]
pub(in crate::orders) struct Make {
    pub(in crate::orders) order: Order,
    pub(in crate::orders) items: Vec<OrderItem>,
    pub(in crate::orders) notify_url: Option<String>,
    /// Its answer, where that is to be kept.
    pub(in crate::orders) kept: Option<Kept>,
    pub(in crate::orders) unheard: Unheard,
}

/// A line, and where its order stands in the batch: places count from 1.
struct Line<'a> {
    place: i64,
    order: &'a Order,
    line_no: i16,
    item: &'a OrderItem,
}

impl Make {
    fn lines(batch: &[Self]) -> Vec<Line<'_>> {
        let with_places = (1..).zip(batch);
        with_places
            .flat_map(|(place, make)| {
                let numbered = (1..).zip(&make.items);
                numbered.map(move |(line_no, item)| Line { place, order: &make.order, line_no, item })
            })
            .collect()
    }

    fn created_at(&self) -> OffsetDateTime {
        self.order.created_at
    }
}

impl Command for Make {
    const NAME: &'static str = "orders.make";
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.order.key().lock_rank())
    }

    fn went_unheard(&self) {
        self.unheard.note();
    }

    #[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let lines = Self::lines(batch);
        let made = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 SELECT set_config('lock_timeout', $26, true)
               ), new AS MATERIALIZED (
                 SELECT new.*
                 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
                             $8::numeric[], $9::text[], $10::text[], $11::jsonb[], $12::timestamptz[],
                             $13::timestamptz[], $14::text[], $15::bytea[], $16::smallint[], $17::bytea[])
                      WITH ORDINALITY
                      AS new (merchant_id, order_no, user_id, kind, amount, currency, rebate_user_id, rebate_rate,
                              subject, notify_url, metadata, expires_at, now, key, request_hash, answer_status,
                              answer_body, place),
                      patient
               ), repeated AS MATERIALIZED (
                 SELECT new.place
                 FROM new JOIN orders
                          ON orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
               ), line AS MATERIALIZED (
                 SELECT * FROM unnest($18::bigint[], $19::text[], $20::text[], $21::timestamptz[], $22::smallint[],
                                      $23::text[], $24::bigint[], $25::bigint[])
                               AS line (place, merchant_id, order_no, now, line_no, sku, quantity, unit_price)
                 WHERE place NOT IN (SELECT place FROM repeated)
               ), wanted AS MATERIALIZED (
                 SELECT place, merchant_id, sku, sum(quantity)::bigint AS quantity, max(now) AS now
                 FROM line GROUP BY place, merchant_id, sku
               ), held AS MATERIALIZED (
                 -- Locked in the order of their names, as everywhere; what is free is then as it stays.
                 SELECT skus.merchant_id, skus.sku, skus.stock - skus.lock_stock AS free
                 FROM (SELECT DISTINCT merchant_id, sku FROM wanted) AS thing
                 JOIN skus ON skus.merchant_id = thing.merchant_id AND skus.sku = thing.sku
                 ORDER BY skus.merchant_id, skus.sku FOR UPDATE OF skus
               ), met AS MATERIALIZED (
                 -- What is wanted beside what is free of it, by sorting both: no index has either, and a join would compare
                 -- each with each.
                 SELECT place, merchant_id, sku, quantity, max(free) OVER (PARTITION BY merchant_id, sku) AS free
                 FROM (SELECT place, merchant_id COLLATE "C" AS merchant_id, sku COLLATE "C" AS sku, quantity,
                              NULL::bigint AS free
                       FROM wanted
                       UNION ALL SELECT NULL, merchant_id, sku, NULL, free FROM held) AS side
               ), hopeless AS MATERIALIZED (
                 SELECT place FROM met WHERE place IS NOT NULL AND (free IS NULL OR quantity > free)
               ), queued AS MATERIALIZED (
                 SELECT place, free, sum(quantity) OVER (PARTITION BY merchant_id, sku ORDER BY place) AS so_far
                 FROM met WHERE place IS NOT NULL AND place NOT IN (SELECT place FROM hopeless)
               ), refused AS MATERIALIZED (
                 SELECT place FROM repeated
                 UNION ALL SELECT place FROM hopeless
                 UNION ALL SELECT place FROM queued WHERE so_far > free
               ), made AS MATERIALIZED (
                 SELECT * FROM new WHERE place NOT IN (SELECT place FROM refused)
               ), sold AS MATERIALIZED (
                 SELECT * FROM line WHERE place NOT IN (SELECT place FROM refused)
               ), taken AS (
                 UPDATE skus SET lock_stock = skus.lock_stock + thing.quantity, updated_at = thing.now
                 FROM (SELECT merchant_id, sku, sum(quantity)::bigint AS quantity, max(now) AS now
                       FROM sold GROUP BY merchant_id, sku) AS thing
                 WHERE skus.merchant_id = thing.merchant_id AND skus.sku = thing.sku
               ), items AS (
                 INSERT INTO order_items (merchant_id, order_no, line_no, sku, quantity, unit_price)
                 SELECT merchant_id, order_no, line_no, sku, quantity, unit_price FROM sold
               ), reserved AS (
                 INSERT INTO stock_reservations
                     (merchant_id, order_no, line_no, sku, quantity, created_at, updated_at)
                 SELECT merchant_id, order_no, line_no, sku, quantity, now, now FROM sold
               ), history AS (
                 INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
                 SELECT merchant_id, order_no, 1, 'PENDING', 'CREATED', now FROM made
               ), kept AS (
                 INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
                 SELECT merchant_id, key, request_hash, order_no, answer_status, answer_body, now
                 FROM made WHERE key IS NOT NULL
               ), inserted AS (
                 INSERT INTO orders (merchant_id, order_no, user_id, kind, amount, currency, rebate_user_id,
                                     rebate_rate, subject, notify_url, metadata, expires_at, created_at, updated_at)
                 SELECT merchant_id, order_no, user_id, kind, amount, currency, rebate_user_id, rebate_rate, subject,
                        notify_url, metadata, expires_at, now, now
                 FROM made
               )
               SELECT place AS "place!" FROM made"#,
            &column(batch, |new| new.order.merchant_id.as_str()) as &[&str],
            &column(batch, |new| new.order.order_no.as_str()) as &[&str],
            &column(batch, |new| new.order.user_id.as_str()) as &[&str],
            &column(batch, |new| new.order.kind.as_str()) as &[&str],
            &column(batch, |new| new.order.amount),
            &column(batch, |new| new.order.currency.as_str()) as &[&str],
            &column(batch, |new| new.order.rebate_user_id.as_ref().map(UserId::as_str)) as &[Option<&str>],
            &column(batch, |new| new.order.rebate_rate) as &[Option<rust_decimal::Decimal>],
            &column(batch, |new| new.order.subject.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.notify_url.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.order.metadata.as_ref()) as &[Option<&Metadata>],
            &column(batch, |new| new.order.expires_at),
            &column(batch, Self::created_at),
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.key.as_str())) as &[Option<&str>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.request_hash.as_slice()))
                as &[Option<&[u8]>],
            &column(batch, |new| new.kept.as_ref().map(Kept::status)) as &[Option<i16>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.answer.body.as_slice()))
                as &[Option<&[u8]>],
            &column(&lines, |line| line.place),
            &column(&lines, |line| line.order.merchant_id.as_str()) as &[&str],
            &column(&lines, |line| line.order.order_no.as_str()) as &[&str],
            &column(&lines, |line| line.order.created_at),
            &column(&lines, |line| line.line_no),
            &column(&lines, |line| line.item.sku.as_str()) as &[&str],
            &column(&lines, |line| line.item.quantity),
            &column(&lines, |line| line.item.unit_price),
            patience.millis(),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), made))
    }
}
