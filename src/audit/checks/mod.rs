//! The checks, one file for each group of invariants.
//!
//! A check is a query whose every row is one violation, as a sentence for people. [`check!`] wraps it, so that
//! all of them are counted and sampled alike, and the compiler still sees the whole statement. A check may use
//! `$1`, which is now, and `owned (subject)`: the things that a living task drives, or that a person was shown because theirs
//! was given up. Whole tables are joined by hash: no sub-select that runs once per row.

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::model::{CheckKind, MoneyAtRisk};
use crate::exceptions::ExceptionKind;
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;

mod announced;
mod attempts;
mod callbacks;
mod history;
mod ledger;
mod paid;
mod receivables;
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
        receivables::CHECKS,
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
                             SELECT subject FROM exceptions WHERE status = 'OPEN' AND kind = 'DEAD_TASK'
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

/// Money that has not come to rest: stray and not yet back or kept, on its way back from a paid order, on its way out
/// to a user, told to have gone against what we know, or between ours and a channel's books until somebody has seen to it.
/// A stray payment's own refund is the same money, and is counted once, by the stray payment as long as that is unfinished;
/// what is held and went back by one that was made after all is at rest. Each part is found by the small index of what is
/// unfinished, past what is over.
pub(crate) async fn money_at_risk(conn: &mut Conn) -> Result<Vec<MoneyAtRisk>, DbError> {
    let rows = sqlx::query_as!(
        MoneyAtRisk,
        r#"SELECT currency AS "currency!: Currency", sum(amount)::bigint AS "amount!"
           FROM (
               SELECT currency, amount FROM stray_payments AS stray
               WHERE status IN ('HELD', 'REFUNDING')
                 -- The limit makes it a look-up each.
                 AND (status <> 'HELD'
                      OR (SELECT refund_id FROM refunds
                          WHERE refunds.stray_id = stray.stray_id AND made_after_all_at IS NOT NULL LIMIT 1) IS NULL)
               UNION ALL
               SELECT currency, amount FROM refunds
               WHERE stray_id IS NULL AND status IN ('PENDING', 'PROCESSING')
               UNION ALL
               SELECT currency, amount FROM withdrawals WHERE status IN ('PAYING', 'REVERSING')
               UNION ALL
               SELECT coalesce(refund.currency, withdrawal.currency), coalesce(refund.amount, withdrawal.amount)
               FROM (SELECT subject FROM exceptions WHERE kind = $1 AND status = 'OPEN') AS open
               -- The limits make it a look-up each.
               LEFT JOIN LATERAL (SELECT currency, amount FROM refunds
                                  WHERE refund_id = open.subject AND status NOT IN ('PENDING', 'PROCESSING')
                                    AND (stray_id IS NULL
                                         OR (SELECT stray.status IN ('REFUNDED', 'KEPT') FROM stray_payments AS stray
                                             WHERE stray.stray_id = refunds.stray_id LIMIT 1))
                                  LIMIT 1) AS refund ON true
               LEFT JOIN LATERAL (SELECT currency, amount FROM withdrawals
                                  WHERE withdrawal_id = open.subject AND status NOT IN ('PAYING', 'REVERSING')
                                  LIMIT 1) AS withdrawal ON true
               WHERE coalesce(refund.amount, withdrawal.amount) IS NOT NULL
               UNION ALL
               SELECT currency, abs(coalesce(ours, 0) - coalesce(theirs, 0)) FROM reconciliation_items
               WHERE status IN ('PROPOSED', 'WAITING', 'APPLYING')
               UNION ALL
               SELECT item.currency, abs(coalesce(ours, 0) - coalesce(theirs, 0))
               FROM (SELECT DISTINCT subject FROM exceptions WHERE status = 'OPEN') AS open
               -- The limit makes it a look-up each.
               CROSS JOIN LATERAL (SELECT currency, ours, theirs FROM reconciliation_items
                                   WHERE item_id = open.subject AND status IN ('ESCALATED', 'REVERSED')
                                   LIMIT 1) AS item
               UNION ALL
               -- Zero rather than no row once all is well again, so that the gauge falls back: in each currency that a
               -- channel ever took, or in which money was at risk when it was audited last.
               SELECT currency, 0 FROM accounts WHERE account_id >= 'CHANNEL:' AND account_id < 'CHANNEL;'
               UNION ALL
               SELECT jsonb_path_query(report, '$.money_at_risk[*].currency') #>> '{}', 0 FROM last_audit
           ) AS money
           GROUP BY currency ORDER BY currency"#,
        ExceptionKind::Contradiction.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
