//! What was taken of cycles.

use std::collections::{BTreeMap, BTreeSet};

use crate::infra::db::{Conn, DbError};
use crate::usage::model::{CycleKey, CycleUse};

/// The columns of some keys, each key once and in their order.
struct Columns {
    merchant_ids: Vec<String>,
    user_ids: Vec<String>,
    product_codes: Vec<String>,
    cycles: Vec<String>,
}

impl Columns {
    fn of(keys: &BTreeSet<CycleKey>) -> Self {
        let column = |part: fn(&CycleKey) -> &String| -> Vec<String> {
            keys.iter().map(|key| part(key).clone()).collect()
        };
        Self {
            merchant_ids: column(|key| &key.merchant_id),
            user_ids: column(|key| &key.user_id),
            product_codes: column(|key| &key.product_code),
            cycles: column(|key| &key.cycle),
        }
    }
}

/// Locks what was taken of these cycles, in the order of their keys; one that was never used comes to be. Opened before any
/// is locked: whoever waits for another one to open a cycle holds none that is known, so that nobody waits in a circle.
pub(super) async fn lock(
    conn: &mut Conn,
    keys: BTreeSet<CycleKey>,
) -> Result<BTreeMap<CycleKey, CycleUse>, DbError> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let columns = Columns::of(&keys);
    let locked = lock_if_all_known(conn, &columns).await?;
    if locked.len() == keys.len() {
        return Ok(locked);
    }
    open(conn, &columns).await?;
    let locked = lock_if_all_known(conn, &columns).await?;
    // None is ever taken away.
    if locked.len() == keys.len() { Ok(locked) } else { Err(DbError::UnexpectedRows(locked.len() as u64)) }
}

async fn open(conn: &mut Conn, columns: &Columns) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO usage_cycles (merchant_id, user_id, product_code, cycle)
         SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[])
         ON CONFLICT (merchant_id, user_id, product_code, cycle) DO NOTHING",
        &columns.merchant_ids,
        &columns.user_ids,
        &columns.product_codes,
        &columns.cycles,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Locks all of them, or none where one is missing.
async fn lock_if_all_known(
    conn: &mut Conn,
    columns: &Columns,
) -> Result<BTreeMap<CycleKey, CycleUse>, DbError> {
    let rows = sqlx::query!(
        "SELECT taken.merchant_id, taken.user_id, taken.product_code, taken.cycle, used_units, fee_hold_id
         FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS user_id,
                      unnest($3::text[]) AS product_code, unnest($4::text[]) AS cycle) AS wanted
         JOIN usage_cycles AS taken
           ON taken.merchant_id = wanted.merchant_id AND taken.user_id = wanted.user_id
          AND taken.product_code = wanted.product_code AND taken.cycle = wanted.cycle
         -- Asked once, before any is locked.
         WHERE (SELECT 1 FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS user_id,
                                      unnest($3::text[]) AS product_code, unnest($4::text[]) AS cycle) AS asked
                WHERE (SELECT 1 FROM usage_cycles AS known
                       WHERE known.merchant_id = asked.merchant_id AND known.user_id = asked.user_id
                         AND known.product_code = asked.product_code AND known.cycle = asked.cycle
                       LIMIT 1) IS NULL
                LIMIT 1) IS NULL
         ORDER BY taken.merchant_id, taken.user_id, taken.product_code, taken.cycle FOR UPDATE OF taken",
        &columns.merchant_ids,
        &columns.user_ids,
        &columns.product_codes,
        &columns.cycles,
    )
    .fetch_all(conn)
    .await?;
    let entry = |(merchant_id, user_id, product_code, cycle), used_units, fee_hold_id| {
        (CycleKey { merchant_id, user_id, product_code, cycle }, CycleUse { used_units, fee_hold_id })
    };
    let rows = rows.into_iter().map(|row| {
        let key = (row.merchant_id, row.user_id, row.product_code, row.cycle);
        entry(key, row.used_units, row.fee_hold_id)
    });
    Ok(rows.collect())
}
