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

/// What was taken of a cycle.
struct Row {
    merchant_id: String,
    user_id: String,
    product_code: String,
    cycle: String,
    used_units: i64,
    fee_hold_id: Option<String>,
}

impl Row {
    fn into_entry(self) -> (CycleKey, CycleUse) {
        let Self { merchant_id, user_id, product_code, cycle, used_units, fee_hold_id } = self;
        (CycleKey { merchant_id, user_id, product_code, cycle }, CycleUse { used_units, fee_hold_id })
    }
}

/// Locks what was taken of these cycles, in the order of their keys; one that was never used comes to be. Where one is missing
/// those that are known are locked as the others are opened, each in its turn: nobody waits in a circle.
pub(super) async fn lock(
    conn: &mut Conn,
    keys: BTreeSet<CycleKey>,
) -> Result<BTreeMap<CycleKey, CycleUse>, DbError> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let columns = Columns::of(&keys);
    let locked = lock_if_all_known(conn, &columns).await?;
    if locked.len() == keys.len() { Ok(locked) } else { lock_or_open(conn, &columns).await }
}

/// Locks all of them, and opens those that are missing.
async fn lock_or_open(conn: &mut Conn, columns: &Columns) -> Result<BTreeMap<CycleKey, CycleUse>, DbError> {
    let rows = sqlx::query_as!(
        Row,
        "INSERT INTO usage_cycles AS taken (merchant_id, user_id, product_code, cycle)
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
         ON CONFLICT (merchant_id, user_id, product_code, cycle) DO UPDATE SET used_units = taken.used_units
         RETURNING merchant_id, user_id, product_code, cycle, used_units, fee_hold_id",
        &columns.merchant_ids,
        &columns.user_ids,
        &columns.product_codes,
        &columns.cycles,
    );
    Ok(rows.fetch_all(conn).await?.into_iter().map(Row::into_entry).collect())
}

/// Locks all of them, or none where one is missing.
async fn lock_if_all_known(
    conn: &mut Conn,
    columns: &Columns,
) -> Result<BTreeMap<CycleKey, CycleUse>, DbError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT taken.merchant_id, taken.user_id, taken.product_code, taken.cycle, used_units, fee_hold_id
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
              AS wanted (merchant_id, user_id, product_code, cycle)
         JOIN usage_cycles AS taken
           ON taken.merchant_id = wanted.merchant_id AND taken.user_id = wanted.user_id
          AND taken.product_code = wanted.product_code AND taken.cycle = wanted.cycle
         -- Asked once, before any is locked.
         WHERE (SELECT 1 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                              AS asked (merchant_id, user_id, product_code, cycle)
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
    );
    Ok(rows.fetch_all(conn).await?.into_iter().map(Row::into_entry).collect())
}
