//! Pages of holds.

use super::find::holds;
use crate::ids::{Cycle, HoldId, MerchantId, ProductCode, RequestId, UsageKey, UserId};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;
use crate::usage::find::{Which, Whose};
use crate::usage::model::{Hold, HoldStatus, Pricing};
use crate::usage::price::Price;

/// Behind the id of every hold.
const BEHIND_ALL: &str = "~";

/// A page of holds, newest first. Ids grow with time, so they are the order and the key of the page.
///
/// Each state gives a page of its own, which is a range of an index, and the page is the newest of these; of everybody
/// each merchant gives one, and merchants are few, so that holds need no index for that. What makes the
/// range is said twice, once as a range of unknown ends, which the planner takes for a narrow one: whatever it believes
/// of the table, it goes by the index that has all of it, and not by another one on which it would leave out what is
/// not asked for. That would be all of somebody else's holds, or years of charged ones on its way to those that are held.
/// And these indexes are of holds whose id is not empty, as each is: that is said here and nowhere else.
pub(in crate::usage) async fn list(conn: &mut Conn, which: &Which, limit: i64) -> Result<Vec<Hold>, DbError> {
    let states: Vec<&str> = match which.status {
        Some(status) => vec![status.as_str()],
        None => HoldStatus::ALL.iter().map(|status| status.as_str()).collect(),
    };
    let before = which.before.as_deref().unwrap_or(BEHIND_ALL);
    let page = match &which.whose {
        Whose::Everybody => {
            holds!(
                "FROM (SELECT merchant_id AS shop FROM merchants) AS of_each
                 CROSS JOIN unnest($1::text[]) AS state
                 CROSS JOIN LATERAL (
                     SELECT *, xmin FROM usage_holds
                     WHERE merchant_id = shop AND status = state AND hold_id < $2 AND hold_id <> ''
                       AND merchant_id BETWEEN shop AND shop AND status BETWEEN state AND state
                     ORDER BY hold_id DESC LIMIT $3) AS hold
                 ORDER BY hold_id DESC LIMIT $3",
                &states as &[&str],
                before,
                limit,
            )
            .fetch_all(conn)
            .await?
        }
        Whose::Merchant(merchant_id) => {
            holds!(
                "FROM unnest($1::text[]) AS state
                 CROSS JOIN LATERAL (
                     SELECT *, xmin FROM usage_holds
                     WHERE merchant_id = $4 AND status = state AND hold_id < $2 AND hold_id <> ''
                       AND merchant_id BETWEEN $4 AND $4 AND status BETWEEN state AND state
                     ORDER BY hold_id DESC LIMIT $3) AS hold
                 ORDER BY hold_id DESC LIMIT $3",
                &states as &[&str],
                before,
                limit,
                merchant_id.as_str(),
            )
            .fetch_all(conn)
            .await?
        }
        Whose::User(merchant_id, user_id) => {
            holds!(
                "FROM unnest($1::text[]) AS state
                 CROSS JOIN LATERAL (
                     SELECT *, xmin FROM usage_holds
                     WHERE merchant_id = $4 AND user_id = $5 AND status = state AND hold_id < $2 AND hold_id <> ''
                       AND user_id BETWEEN $5 AND $5 AND status BETWEEN state AND state
                     ORDER BY hold_id DESC LIMIT $3) AS hold
                 ORDER BY hold_id DESC LIMIT $3",
                &states as &[&str],
                before,
                limit,
                merchant_id.as_str(),
                user_id.as_str(),
            )
            .fetch_all(conn)
            .await?
        }
    };
    Ok(page)
}
