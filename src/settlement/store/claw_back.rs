//! What is claimed back of a settlement.

use time::OffsetDateTime;

use crate::ids::{MerchantId, OrderNo, UserId};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::money::Currency;
use crate::orders::OrderKey;
use crate::settlement::model::SettlementStatus;
use crate::settlement::terms::{Factor, Rate, Terms};

/// A settlement in hand, with what it was computed from.
#[derive(Debug)]
pub(in crate::settlement) struct Locked {
    pub(in crate::settlement) merchant_id: MerchantId,
    pub(in crate::settlement) order_no: OrderNo,
    pub(in crate::settlement) user_id: UserId,
    pub(in crate::settlement) commission: i64,
    pub(in crate::settlement) clawed_back: i64,
    pub(in crate::settlement) currency: Currency,
    pub(in crate::settlement) status: SettlementStatus,
    pub(in crate::settlement) terms: Terms,
    version: i32,
}

/// Locks the settlement of an order, if it has one.
pub(in crate::settlement) async fn lock(tx: &mut Tx, key: &OrderKey) -> Result<Option<Locked>, DbError> {
    let conn: &mut Conn = tx;
    let row = sqlx::query!(
        r#"SELECT settled.user_id AS "user_id: UserId", commission, clawed_back,
                  settled.currency AS "currency: Currency", settled.status AS "status: SettlementStatus",
                  line_rates AS "line_rates: Vec<Rate>", factor AS "factor: Factor", settled.version, orders.amount,
                  -- Nothing for an order without items: it is one line.
                  ARRAY(SELECT quantity * unit_price FROM order_items AS item
                        WHERE item.merchant_id = settled.merchant_id AND item.order_no = settled.order_no
                        ORDER BY line_no) AS "lines!"
           FROM settlements AS settled
           JOIN orders ON orders.merchant_id = settled.merchant_id AND orders.order_no = settled.order_no
           WHERE settled.merchant_id = $1 AND settled.order_no = $2
           FOR UPDATE OF settled"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let lines = if row.lines.is_empty() { vec![row.amount] } else { row.lines };
        Locked {
            merchant_id: key.merchant_id.clone(),
            order_no: key.order_no.clone(),
            user_id: row.user_id,
            commission: row.commission,
            clawed_back: row.clawed_back,
            currency: row.currency,
            status: row.status,
            terms: Terms::new(row.amount, lines.into_iter().zip(row.line_rates), row.factor),
            version: row.version,
        }
    }))
}

/// Notes what is claimed back by now.
pub(in crate::settlement) async fn set_clawed_back(
    tx: &mut Tx,
    settlement: &Locked,
    clawed_back: i64,
    status: SettlementStatus,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE settlements SET clawed_back = $3, status = $4, updated_at = $5, version = version + 1
             WHERE merchant_id = $1 AND order_no = $2 AND status = $6 AND version = $7",
            settlement.merchant_id.as_str(),
            settlement.order_no.as_str(),
            clawed_back,
            status.as_str(),
            now,
            settlement.status.as_str(),
            settlement.version,
        )
        .execute(conn)
        .await?,
    )
}
