//! Orders are made.

use time::OffsetDateTime;

use crate::idempotency::Kept;
use crate::ids::UserId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, Unheard, column, met, places};
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
                 FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                              unnest($3::text[]) AS user_id, unnest($4::text[]) AS kind,
                              unnest($5::bigint[]) AS amount, unnest($6::text[]) AS currency,
                              unnest($7::text[]) AS rebate_user_id, unnest($8::numeric[]) AS rebate_rate,
                              unnest($9::text[]) AS subject, unnest($10::text[]) AS notify_url,
                              unnest($11::jsonb[]) AS metadata, unnest($12::timestamptz[]) AS expires_at,
                              unnest($13::timestamptz[]) AS now, unnest($14::text[]) AS key,
                              unnest($15::bytea[]) AS request_hash, unnest($16::smallint[]) AS answer_status,
                              unnest($17::bytea[]) AS answer_body, unnest($27::bigint[]) AS place) AS new,
                      patient
               ), repeated AS MATERIALIZED (
                 SELECT new.place
                 FROM new JOIN orders
                          ON orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
               ), line AS MATERIALIZED (
                 SELECT * FROM (SELECT unnest($18::bigint[]) AS place, unnest($19::text[]) AS merchant_id,
                                       unnest($20::text[]) AS order_no, unnest($21::timestamptz[]) AS now,
                                       unnest($22::smallint[]) AS line_no, unnest($23::text[]) AS sku,
                                       unnest($24::bigint[]) AS quantity, unnest($25::bigint[]) AS unit_price) AS line
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
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), made))
    }
}
