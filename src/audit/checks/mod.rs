//! The checks, one file for each group of invariants.
//!
//! A check is a query whose every row is one violation, as a sentence for people. [`check!`] wraps it, so that
//! all of them are counted and sampled alike, and the compiler still sees the whole statement. A check may use
//! `$1`, which is now, and `owned (subject)`: the things that a living task drives or an open exception shows to
//! a person. Whole tables are joined by hash: no sub-select that runs once per row.

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::model::{CheckKind, MoneyAtRisk};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;

mod announced;
mod attempts;
mod callbacks;
mod history;
mod ledger;
mod paid;
mod reconciliations;
mod refunds;
mod requests;
mod settlements;
mod stock;
mod strays;
mod told;
mod unfinished;
mod usage;
mod withdrawals;

/// Every check, in the order of the invariants.
pub(super) fn all() -> impl Iterator<Item = &'static Definition> {
    [
        ledger::CHECKS,
        refunds::CHECKS,
        paid::CHECKS,
        strays::CHECKS,
        stock::CHECKS,
        attempts::CHECKS,
        callbacks::CHECKS,
        requests::CHECKS,
        history::CHECKS,
        announced::CHECKS,
        settlements::CHECKS,
        unfinished::CHECKS,
        told::CHECKS,
        withdrawals::CHECKS,
        usage::CHECKS,
        reconciliations::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// One check.
pub(super) struct Definition {
    pub(super) id: &'static str,
    pub(super) kind: CheckKind,
    /// What it claims.
    pub(super) title: &'static str,
    pub(super) find: for<'c> fn(&'c mut Conn, OffsetDateTime) -> BoxFuture<'c, Result<Found, DbError>>,
}

/// What breaks a claim.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) violations: i64,
    pub(super) sample: Vec<String>,
}

/// Defines a check: its id, its kind, its claim, and the query whose rows break the claim.
macro_rules! check {
    ($id:literal, $kind:ident, $title:literal, $violations:literal $(,)?) => {
        $crate::audit::checks::Definition {
            id: $id,
            kind: $crate::audit::CheckKind::$kind,
            title: $title,
            find: |conn, now| {
                Box::pin(async move {
                    let rows = sqlx::query_as!(
                        $crate::audit::checks::Found,
                        "WITH clock AS (
                             -- Gives the parameter its type, whether or not the check looks at the time.
                             SELECT $1::timestamptz
                         ), owned (subject) AS (
                             SELECT subject FROM compensations WHERE status IN ('READY', 'RUNNING')
                             UNION ALL
                             SELECT subject FROM exceptions WHERE status = 'OPEN'
                         ), violation (line) AS MATERIALIZED ("
                            + $violations
                            + ")
                         SELECT (SELECT count(*) FROM violation) AS \"violations!\",
                                ARRAY(SELECT line FROM violation ORDER BY line LIMIT 10) AS \"sample!\"",
                        now,
                    )
                    // Not `fetch_one`: with a limit on its rows a statement gets no parallel workers.
                    .fetch_all(conn)
                    .await?;
                    Ok(rows.into_iter().next().unwrap_or_default())
                })
            },
        }
    };
}
use check;

/// Money that has not come to rest: stray and not yet back or kept, on its way back from a paid order, on its way out to
/// a user, or between ours and a channel's books until somebody has seen to it. A stray payment's own refund is the same money, and is counted once.
pub(crate) async fn money_at_risk(conn: &mut Conn) -> Result<Vec<MoneyAtRisk>, DbError> {
    let rows = sqlx::query_as!(
        MoneyAtRisk,
        r#"SELECT currency AS "currency!: Currency",
                  -- Zero rather than no row once all is well again, so that the gauge falls back.
                  coalesce(sum(amount) FILTER (WHERE is_at_risk), 0)::bigint AS "amount!"
           FROM (
               SELECT currency, amount, status IN ('HELD', 'REFUNDING') AS is_at_risk FROM stray_payments
               UNION ALL
               SELECT currency, amount, status IN ('PENDING', 'PROCESSING') FROM refunds WHERE stray_id IS NULL
               UNION ALL
               SELECT currency, amount, status IN ('PAYING', 'REVERSING') FROM withdrawals
               UNION ALL
               SELECT currency, abs(coalesce(ours, 0) - coalesce(theirs, 0)),
                      status IN ('PROPOSED', 'WAITING', 'APPLYING')
                      OR status IN ('ESCALATED', 'REVERSED')
                         AND EXISTS (SELECT 1 FROM exceptions
                                     WHERE subject = item_id AND exceptions.status = 'OPEN')
               FROM reconciliation_items
           ) AS money
           GROUP BY currency ORDER BY currency"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
