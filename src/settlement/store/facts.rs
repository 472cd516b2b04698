//! What decides over a settlement.

use crate::ids::{MerchantId, OrderNo, UserId};
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::money::Currency;
use crate::orders::{OrderKey, OrderKind, OrderStatus};
use crate::settlement::model::{Settlement, SettlementStatus};
use crate::settlement::rates::{Line, Quote};
use crate::settlement::terms::{Factor, Rate};

/// An order as far as its settlement goes, with what the tables say of its rates.
#[derive(Clone, Debug)]
pub(in crate::settlement) struct Facts {
    pub(in crate::settlement) key: OrderKey,
    pub(in crate::settlement) kind: OrderKind,
    pub(in crate::settlement) status: OrderStatus,
    /// Who earns a commission.
    pub(in crate::settlement) earner: UserId,
    pub(in crate::settlement) amount: i64,
    pub(in crate::settlement) refunded_amount: i64,
    pub(in crate::settlement) currency: Currency,
    /// The order's own rate, which goes before any other.
    pub(in crate::settlement) own_rate: Option<Rate>,
    /// At least one.
    pub(in crate::settlement) lines: Vec<Line>,
    /// What the tables say.
    pub(in crate::settlement) listed: Quote,
    /// Whether a refund that did not succeed here was made after all, or may have been.
    pub(in crate::settlement) may_be_gone: bool,
    pub(in crate::settlement) settlement: Option<Settlement>,
}

/// Reads what decides over an order's settlement.
#[derive(Debug)]
pub(in crate::settlement) struct FindFacts(pub(in crate::settlement) OrderKey);

impl Command for FindFacts {
    const NAME: &'static str = "settlement.find_facts";
    type Outcome = Option<Facts>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Option<Facts>>, DbError> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT asked.place AS "place!", orders.merchant_id AS "merchant_id: MerchantId",
                      orders.order_no AS "order_no: OrderNo", orders.kind AS "kind: OrderKind",
                      orders.status AS "status: OrderStatus",
                      coalesce(orders.rebate_user_id, orders.user_id) AS "earner!: UserId", orders.amount,
                      orders.refunded_amount, orders.currency AS "currency: Currency",
                      orders.rebate_rate AS "own_rate: Rate", line.skus, line.amounts,
                      line.rates AS "rates: Vec<Option<Rate>>", general.rate AS "general_rate?: Rate",
                      level.factor AS "factor?: Factor", settled.user_id AS "settled_user?: UserId",
                      settled.base_amount AS "base_amount?", settled.rate AS "rate?: Rate",
                      settled.factor AS "settled_factor?: Factor", settled.commission AS "commission?",
                      settled.clawed_back AS "clawed_back?", settled.status AS "settled_status?: SettlementStatus",
                      settled.created_at AS "settled_at?",
                      (SELECT refund_id FROM refunds
                       WHERE refunds.merchant_id = asked.merchant_id AND refunds.order_no = asked.order_no
                         AND refunds.stray_id IS NULL AND refunds.status IN ('AWAITING_APPROVAL', 'FAILED')
                         AND may_have_gone(refunds.refund_id, refunds.made_after_all_at)
                       LIMIT 1) IS NOT NULL AS "may_be_gone!"
               FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                            unnest($3::bigint[]) AS place) AS asked
               JOIN orders ON orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no
               LEFT JOIN settlements AS settled
                      ON settled.merchant_id = asked.merchant_id AND settled.order_no = asked.order_no
               -- All of its key from one row: it is looked up by the whole of it, or not at all.
               LEFT JOIN user_levels AS level
                      ON level.merchant_id = orders.merchant_id
                     AND level.user_id = coalesce(orders.rebate_user_id, orders.user_id)
               LEFT JOIN rebate_rules AS general
                      ON general.merchant_id = asked.merchant_id AND general.sku IS NULL
               LEFT JOIN LATERAL (
                   -- In the order of the lines, by which a claw-back pairs them with their rates: a sorted subquery is not pulled up.
                   -- Sorted once, and not by each of the three, which costs an order without items too.
                   SELECT array_agg(sku) AS skus, array_agg(amount) AS amounts, array_agg(rate) AS rates
                   FROM (SELECT item.sku, quantity * unit_price AS amount, rule.rate
                         FROM order_items AS item
                         LEFT JOIN rebate_rules AS rule
                                ON rule.merchant_id = item.merchant_id AND rule.sku = item.sku
                         WHERE item.merchant_id = asked.merchant_id AND item.order_no = asked.order_no
                         ORDER BY line_no) AS item
               ) AS line ON true"#,
            &column(batch, |FindFacts(key)| key.merchant_id.as_str()) as &[&str],
            &column(batch, |FindFacts(key)| key.order_no.as_str()) as &[&str],
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| (row.place, row.into())))
    }
}

/// A row of [`FindFacts`].
struct Row {
    place: i64,
    merchant_id: MerchantId,
    order_no: OrderNo,
    kind: OrderKind,
    status: OrderStatus,
    earner: UserId,
    amount: i64,
    refunded_amount: i64,
    currency: Currency,
    own_rate: Option<Rate>,
    skus: Option<Vec<String>>,
    amounts: Option<Vec<i64>>,
    rates: Option<Vec<Option<Rate>>>,
    general_rate: Option<Rate>,
    factor: Option<Factor>,
    settled_user: Option<UserId>,
    base_amount: Option<i64>,
    rate: Option<Rate>,
    settled_factor: Option<Factor>,
    commission: Option<i64>,
    clawed_back: Option<i64>,
    settled_status: Option<SettlementStatus>,
    settled_at: Option<time::OffsetDateTime>,
    may_be_gone: bool,
}

impl From<Row> for Facts {
    fn from(mut row: Row) -> Self {
        let settlement = row.settlement();
        let general = row.general_rate.unwrap_or_default();
        let (lines, rates) = match (row.skus.take(), row.amounts.take(), row.rates.take()) {
            (Some(skus), Some(amounts), Some(rates)) => {
                let line = |(sku, amount)| Line { sku: Some(sku), amount };
                let rates = rates.into_iter().map(|rate| rate.unwrap_or(general)).collect();
                (skus.into_iter().zip(amounts).map(line).collect(), rates)
            }
            _ => (vec![Line { sku: None, amount: row.amount }], vec![general]),
        };
        Self {
            key: OrderKey { merchant_id: row.merchant_id, order_no: row.order_no },
            kind: row.kind,
            status: row.status,
            earner: row.earner,
            amount: row.amount,
            refunded_amount: row.refunded_amount,
            currency: row.currency,
            own_rate: row.own_rate,
            lines,
            listed: Quote { rates, factor: row.factor.unwrap_or(Factor::ONE) },
            may_be_gone: row.may_be_gone,
            settlement,
        }
    }
}

impl Row {
    fn settlement(&self) -> Option<Settlement> {
        Some(Settlement {
            merchant_id: self.merchant_id.clone(),
            order_no: self.order_no.clone(),
            user_id: self.settled_user.clone()?,
            base_amount: self.base_amount?,
            rate: self.rate?,
            factor: self.settled_factor?,
            commission: self.commission?,
            clawed_back: self.clawed_back?,
            currency: self.currency,
            status: self.settled_status?,
            created_at: self.settled_at?,
        })
    }
}

/// The settlement of an order, if it has one.
pub(in crate::settlement) async fn find(
    conn: &mut Conn,
    key: &OrderKey,
) -> Result<Option<Settlement>, DbError> {
    let settlement = sqlx::query_as!(
        Settlement,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo",
                  user_id AS "user_id: UserId", base_amount, rate AS "rate: Rate", factor AS "factor: Factor",
                  commission, clawed_back, currency AS "currency: Currency", status AS "status: SettlementStatus",
                  created_at
           FROM settlements WHERE merchant_id = $1 AND order_no = $2"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(settlement)
}
