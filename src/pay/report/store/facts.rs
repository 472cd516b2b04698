//! What decides over a report.

use time::OffsetDateTime;

use crate::ids::{MerchantId, OrderNo};
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::money::Currency;
use crate::orders::{OrderKey, OrderKind, OrderStatus};
use crate::pay::model::PayStatus;
use crate::pay::report::Verdict;
use crate::refunds::{StrayPolicy, StrayReason};

/// What is known about what a report speaks of.
#[derive(Clone, Debug)]
pub(in crate::pay::report) struct Facts {
    /// The verdict of the same callback, when it came before: of its own money, where that came under another's id.
    pub(in crate::pay::report) earlier: Option<Verdict>,
    /// Why the same money was held, when it was, and of the same pay order.
    pub(in crate::pay::report) known_stray: Option<StrayReason>,
    /// Whether the same money was reported before, whatever became of it.
    pub(in crate::pay::report) is_trade_known: bool,
    /// Whether it was asked what came before. Where it was not, nothing of it is known.
    pub(in crate::pay::report) is_whole: bool,
    /// The attempt and its order.
    pub(in crate::pay::report) matched: Option<Matched>,
}

impl Facts {
    /// The order that it is about, where it is known.
    pub(in crate::pay::report) fn order_key(&self) -> Option<&OrderKey> {
        self.matched.as_ref().map(|matched| &matched.key)
    }
}

/// An attempt of ours and its order, as read.
#[derive(Clone, Debug)]
pub(in crate::pay::report) struct Matched {
    pub(in crate::pay::report) key: OrderKey,
    pub(in crate::pay::report) pay_order_id: String,
    pub(in crate::pay::report) user_id: String,
    pub(in crate::pay::report) order_kind: OrderKind,
    pub(in crate::pay::report) order_status: OrderStatus,
    pub(in crate::pay::report) order_money: (i64, Currency),
    pub(in crate::pay::report) order_attempts: i32,
    pub(in crate::pay::report) order_made_at: OffsetDateTime,
    pub(in crate::pay::report) attempt_status: PayStatus,
    pub(in crate::pay::report) attempt_version: i32,
    pub(in crate::pay::report) attempt_money: (i64, Currency),
    pub(in crate::pay::report) stray_money: StrayPolicy,
}

/// Reads everything that decides over a report: all look-ups are by a unique key.
#[derive(Debug)]
pub(in crate::pay::report) struct FindFacts {
    pub(in crate::pay::report) channel: String,
    pub(in crate::pay::report) pay_order_id: String,
    pub(in crate::pay::report) transaction_id: Option<String>,
    pub(in crate::pay::report) event_id: Option<String>,
    /// Under which id its money is kept where that id was another event's.
    pub(in crate::pay::report) own_event_id: Option<String>,
    /// Whether it is asked what came before, also where the order waits for its first money: who pays it is told by the keys of
    /// what is written then.
    pub(in crate::pay::report) asks_all: bool,
}

impl Command for FindFacts {
    const NAME: &'static str = "report.find_facts";
    type Outcome = Facts;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Facts>, DbError> {
        let rows = sqlx::query!(
            r#"SELECT report.place AS "place!", report.pay_order_id AS "pay_order_id!",
                      coalesce(own.verdict, inbox.verdict) AS "earlier?: Verdict",
                      stray.reason AS "stray_reason?: StrayReason",
                      trade.transaction_id IS NOT NULL AS "is_trade_known!", asked.is_whole AS "is_whole!",
                      attempt.merchant_id AS "merchant_id?: MerchantId", attempt.order_no AS "order_no?: OrderNo",
                      attempt.status AS "attempt_status?: PayStatus", attempt.version AS "attempt_version?",
                      attempt.amount AS "attempt_amount?", attempt.currency AS "attempt_currency?: Currency",
                      orders.user_id AS "user_id?", orders.kind AS "order_kind?: OrderKind",
                      orders.status AS "order_status?: OrderStatus", orders.amount AS "order_amount?",
                      orders.currency AS "order_currency?: Currency", orders.attempts AS "order_attempts?",
                      orders.created_at AS "order_made_at?", merchants.stray_money AS "stray_money?: StrayPolicy"
               FROM (SELECT unnest($1::text[]) AS channel, unnest($2::text[]) AS pay_order_id, unnest($3::text[]) AS transaction_id,
                            unnest($4::text[]) AS event_id, unnest($5::text[]) AS own_event_id,
                            unnest($6::boolean[]) AS asks_all, unnest($8::bigint[]) AS place) AS report
               LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = report.pay_order_id AND attempt.channel = report.channel
               LEFT JOIN orders ON orders.merchant_id = attempt.merchant_id AND orders.order_no = attempt.order_no
               LEFT JOIN merchants ON merchants.merchant_id = attempt.merchant_id
               CROSS JOIN LATERAL (SELECT report.asks_all OR orders.status IS DISTINCT FROM $7 AS is_whole) AS asked
               -- The limits make look-ups of the joins: on a shop's first days a plan would walk these.
               LEFT JOIN LATERAL (SELECT verdict FROM webhook_inbox AS kept
                                  WHERE asked.is_whole
                                    AND kept.channel = report.channel AND kept.event_id = report.event_id
                                  LIMIT 1) AS inbox ON true
               -- Only a repeat looks here.
               LEFT JOIN LATERAL (SELECT verdict FROM webhook_inbox AS kept
                                  WHERE inbox.verdict IS NOT NULL
                                    AND kept.channel = report.channel AND kept.event_id = report.own_event_id
                                  LIMIT 1) AS own ON true
               LEFT JOIN LATERAL (SELECT transaction_id, stray_id FROM trades
                                  WHERE asked.is_whole AND trades.channel = report.channel
                                    AND trades.transaction_id = report.transaction_id LIMIT 1) AS trade ON true
               LEFT JOIN LATERAL (SELECT reason FROM stray_payments AS held
                                  WHERE held.stray_id = trade.stray_id AND held.out_trade_no = report.pay_order_id
                                  LIMIT 1) AS stray ON true"#,
            &column(batch, |asked| asked.channel.as_str()) as &[&str],
            &column(batch, |asked| asked.pay_order_id.as_str()) as &[&str],
            &column(batch, |asked| asked.transaction_id.as_deref()) as &[Option<&str>],
            &column(batch, |asked| asked.event_id.as_deref()) as &[Option<&str>],
            &column(batch, |asked| asked.own_event_id.as_deref()) as &[Option<&str>],
            &column(batch, |asked| asked.asks_all),
            OrderStatus::Pending.as_str(),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        let facts = in_places(batch.len(), rows, |row| {
            let matched = (|| {
                Some(Matched {
                    key: OrderKey { merchant_id: row.merchant_id?, order_no: row.order_no? },
                    pay_order_id: row.pay_order_id,
                    user_id: row.user_id?,
                    order_kind: row.order_kind?,
                    order_status: row.order_status?,
                    order_money: (row.order_amount?, row.order_currency?),
                    order_attempts: row.order_attempts?,
                    order_made_at: row.order_made_at?,
                    attempt_status: row.attempt_status?,
                    attempt_version: row.attempt_version?,
                    attempt_money: (row.attempt_amount?, row.attempt_currency?),
                    stray_money: row.stray_money?,
                })
            })();
            let (earlier, known_stray, is_trade_known) = (row.earlier, row.stray_reason, row.is_trade_known);
            (row.place, Facts { earlier, known_stray, is_trade_known, is_whole: row.is_whole, matched })
        });
        // Outer joins by unique keys: each command has its one row.
        Ok(facts.into_iter().flatten().collect())
    }
}
