//! The first right money pays its order.

use time::OffsetDateTime;

use super::Matched;
use crate::channels::Payment;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met, places};
use crate::ledger::Account;
use crate::orders::OrderStatus;
use crate::outbox::Event;

/// Pays an order: the callback, the order, the attempt, its stock, the booking, the history, the event, and a task for
/// every other live attempt, in one statement and so in one commit. `false` when the order is not as it was read.
///
/// It decides alike with a locked read: the order's row is written first and only while it is `PENDING`, of that
/// amount, and without an attempt that was begun since; whoever comes second waits for that row and then meets
/// nothing. Stock rows are locked in the order of their names, as everywhere, and so are the users' balances that
/// top-ups move. No sale waits for the balance of its channel or merchant (`ledger`).
#[derive(Debug)]
pub(in crate::pay::report) struct Pay {
    pub(in crate::pay::report) channel: String,
    pub(in crate::pay::report) matched: Matched,
    pub(in crate::pay::report) payment: Payment,
    /// When the order counts as paid; the attempt keeps what the channel says.
    pub(in crate::pay::report) paid_at: OffsetDateTime,
    /// The accounts that the money moves between.
    pub(in crate::pay::report) debit: Account,
    pub(in crate::pay::report) credit: Account,
    pub(in crate::pay::report) announcement: Event,
    /// The callback that says so, if one does.
    pub(in crate::pay::report) event_id: Option<String>,
    /// Its body, where it is not kept yet.
    pub(in crate::pay::report) body: Option<Vec<u8>>,
    pub(in crate::pay::report) now: OffsetDateTime,
}

impl Command for Pay {
    const NAME: &'static str = "report.pay";
    const RINGS: bool = true;
    // Each takes one process of PostgreSQL: beside so many there is work for another.
    const AT_ONCE: usize = 2;
    const CROWD: usize = 64;
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.matched.key.lock_rank())
    }

    #[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let paid = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 SELECT set_config('lock_timeout', $16, true)
               ), paid AS (
                 UPDATE orders
                 SET status = 'PAID', paid_by = new.pay_order_id, paid_at = new.order_paid_at,
                     version = orders.version + 1, updated_at = new.now
                 FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                              unnest($3::text[]) AS pay_order_id, unnest($4::timestamptz[]) AS paid_at,
                              unnest($5::timestamptz[]) AS now, unnest($6::bigint[]) AS amount,
                              unnest($7::text[]) AS currency, unnest($8::integer[]) AS attempts_seen,
                              unnest($9::text[]) AS transaction_id, unnest($10::text[]) AS event,
                              unnest($11::smallint[]) AS event_version, unnest($12::jsonb[]) AS payload,
                              unnest($13::text[]) AS channel, unnest($14::text[]) AS event_id,
                              unnest($15::bytea[]) AS body, unnest($18::text[]) AS debit,
                              unnest($19::text[]) AS credit, unnest($20::timestamptz[]) AS order_paid_at,
                              unnest($21::bigint[]) AS place) AS new,
                      patient
                 WHERE orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
                   AND orders.status = $17 AND orders.amount = new.amount
                   AND orders.currency = new.currency AND orders.attempts = new.attempts_seen
                 RETURNING new.*, orders.version
               ), attempt AS MATERIALIZED (
                 -- After the order's row: its present state, which a link being made may just have changed.
                 SELECT paid.merchant_id, paid.order_no, paid.pay_order_id, paid.transaction_id, paid.paid_at,
                        paid.now, pay_orders.status, pay_orders.version
                 FROM paid JOIN pay_orders ON pay_orders.pay_order_id = paid.pay_order_id
                 FOR UPDATE OF pay_orders
               ), collected AS (
                 UPDATE pay_orders
                 SET status = 'PAID', transaction_id = attempt.transaction_id, paid_at = attempt.paid_at,
                     version = attempt.version + 1, updated_at = attempt.now
                 FROM attempt WHERE pay_orders.pay_order_id = attempt.pay_order_id
               ), trade AS (
                 -- Its primary key refuses money that somebody else has just written down as stray.
                 INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
                 SELECT channel, transaction_id, pay_order_id, now FROM paid
               ), history AS (
                 INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                            created_at)
                 SELECT merchant_id, order_no, '', version, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED', now FROM paid
                 UNION ALL
                 SELECT merchant_id, order_no, pay_order_id, version + 1, status, 'PAID', 'PAYMENT_CONFIRMED', now
                 FROM attempt
               ), deducted AS (
                 UPDATE stock_reservations AS reservation SET status = 'DEDUCTED', updated_at = paid.now
                 FROM paid
                 WHERE reservation.merchant_id = paid.merchant_id AND reservation.order_no = paid.order_no
                   AND reservation.status = 'LOCKED'
                 RETURNING reservation.merchant_id, reservation.sku, reservation.quantity, paid.now
               ), sold AS MATERIALIZED (
                 SELECT skus.merchant_id, skus.sku, taken.quantity, taken.now
                 FROM (SELECT merchant_id, sku, sum(quantity)::bigint AS quantity, max(now) AS now
                       FROM deducted GROUP BY merchant_id, sku) AS taken
                 JOIN skus ON skus.merchant_id = taken.merchant_id AND skus.sku = taken.sku
                 ORDER BY skus.merchant_id, skus.sku FOR UPDATE OF skus
               ), stock AS (
                 UPDATE skus
                 SET stock = skus.stock - sold.quantity, lock_stock = skus.lock_stock - sold.quantity,
                     updated_at = sold.now
                 FROM sold WHERE skus.merchant_id = sold.merchant_id AND skus.sku = sold.sku
               ), opened AS MATERIALIZED (
                 -- Users' accounts, for top-ups, in the order of their names, as by everybody.
                 SELECT open_accounts(array_agg(credit ORDER BY credit), min(now))
                 FROM (SELECT credit, min(now) AS now FROM paid WHERE credit LIKE 'USER\_%' GROUP BY credit) AS named
                 -- To look is cheaper than an insert that comes to nothing. No join: its plan could walk.
                 WHERE (SELECT account_id FROM accounts WHERE accounts.account_id = named.credit) IS NULL
                 HAVING count(*) > 0
               ), booked AS (
                 -- Its primary key is one more word against paying twice by one attempt.
                 INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts,
                                                  created_at)
                 SELECT 'PAYMENT:' || pay_order_id, 'PAYMENT', merchant_id, order_no, ARRAY[debit, credit],
                        ARRAY[amount, -amount], now
                 FROM paid WHERE (SELECT count(*) FROM opened) >= 0
               ), announced AS (
                 INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
                 SELECT merchant_id, order_no, event, event_version, payload, now FROM paid
               ), kept AS (
                 INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body,
                                            received_at, updated_at)
                 SELECT channel, event_id, pay_order_id, merchant_id, order_no, 'APPLIED', body, now, now
                 FROM paid WHERE body IS NOT NULL
               ), rematched AS (
                 UPDATE webhook_inbox AS inbox
                 SET verdict = 'APPLIED', merchant_id = paid.merchant_id, order_no = paid.order_no,
                     updated_at = paid.now
                 FROM paid
                 WHERE inbox.channel = paid.channel AND inbox.event_id = paid.event_id AND paid.body IS NULL
                   -- Look-ups, also where the planner believes that the table is empty and begins with it.
                   AND inbox.channel = ANY (ARRAY(SELECT channel FROM paid WHERE body IS NULL))
                   AND inbox.event_id = ANY (ARRAY(SELECT event_id FROM paid WHERE body IS NULL))
               ), others AS (
                 -- When one attempt pays, every other live one must be closed at its channel.
                 INSERT INTO compensations
                     (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
                 SELECT 'REDO_BUSINESS', 'CLOSE_PAY_ORDER', other.pay_order_id, paid.merchant_id, paid.order_no,
                        paid.now, paid.now, paid.now
                 FROM paid JOIN pay_orders AS other
                                ON other.merchant_id = paid.merchant_id AND other.order_no = paid.order_no
                 WHERE other.is_live AND other.pay_order_id <> paid.pay_order_id
                   AND paid.attempts_seen > 1
                 ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING
               )
               SELECT place AS "place!" FROM paid"#,
            &column(batch, |new| new.matched.key.merchant_id.as_str()) as &[&str],
            &column(batch, |new| new.matched.key.order_no.as_str()) as &[&str],
            &column(batch, |new| new.matched.pay_order_id.as_str()) as &[&str],
            &column(batch, |new| new.payment.paid_at),
            &column(batch, |new| new.now),
            &column(batch, |new| new.payment.money.amount.minor()),
            &column(batch, |new| new.payment.money.currency.as_str()) as &[&str],
            &column(batch, |new| new.matched.order_attempts),
            &column(batch, |new| new.payment.transaction_id.as_str()) as &[&str],
            &column(batch, |new| new.announcement.name()) as &[&str],
            &column(batch, |new| new.announcement.version()),
            &column(batch, |new| new.announcement.payload()),
            &column(batch, |new| new.channel.as_str()) as &[&str],
            &column(batch, |new| new.event_id.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.body.as_deref()) as &[Option<&[u8]>],
            patience.millis(),
            OrderStatus::Pending.as_str(),
            &column(batch, |new| new.debit.as_str()) as &[&str],
            &column(batch, |new| new.credit.as_str()) as &[&str],
            &column(batch, |new| new.paid_at),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), paid))
    }
}
