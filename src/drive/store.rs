//! What decides over a task, read across the tables of all features.

use crate::compensation::{Action, Task};
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::orders::{OrderKey, OrderStatus};
use crate::pay::PayStatus;
use crate::pay::report::Verdict;
use crate::refunds::RefundStatus;
use crate::withdrawals::WithdrawalStatus;

/// How the thing that a task drives stands; nothing where it is not there, or is of another kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) attempt: Option<PayStatus>,
    pub(super) order: Option<OrderStatus>,
    pub(super) refund: Option<RefundStatus>,
    pub(super) withdrawal: Option<WithdrawalStatus>,
    pub(super) callback: Option<Verdict>,
}

/// Reads the facts of a task: all look-ups are by a unique key.
#[derive(Debug, Default)]
pub(super) struct FindFacts {
    pay_order_id: Option<String>,
    order: Option<OrderKey>,
    refund_id: Option<String>,
    withdrawal_id: Option<String>,
    callback: Option<(String, String)>,
}

impl FindFacts {
    pub(super) fn of(task: &Task) -> Self {
        let subject = task.subject.clone();
        match task.action {
            Action::DrivePayOrder | Action::ClosePayOrder => {
                Self { pay_order_id: Some(subject), ..Self::default() }
            }
            Action::ExpireOrder => Self { order: OrderKey::from_member(&subject), ..Self::default() },
            Action::DriveRefund | Action::QueryRefund => Self { refund_id: Some(subject), ..Self::default() },
            Action::DriveWithdrawal => Self { withdrawal_id: Some(subject), ..Self::default() },
            Action::RematchCallback => {
                let callback = subject.split_once('/');
                let owned = |(channel, event): (&str, &str)| (channel.to_owned(), event.to_owned());
                Self { callback: callback.map(owned), ..Self::default() }
            }
            Action::ApplyUpdate => Self::default(),
        }
    }
}

impl Command for FindFacts {
    const NAME: &'static str = "tasks.find_facts";
    /// With the channel that the thing is at, where it is at one.
    type Outcome = (Facts, Option<String>);

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Self::Outcome>, DbError> {
        let order = |of: fn(&OrderKey) -> &str| column(batch, |asked| asked.order.as_ref().map(of));
        let callback =
            |of: fn(&(String, String)) -> &str| column(batch, |asked| asked.callback.as_ref().map(of));
        let rows = sqlx::query!(
            r#"SELECT asked.place AS "place!",
                      -- Looked up one by one: a plan that joins a small table walks all of it.
                      (SELECT status FROM pay_orders WHERE pay_orders.pay_order_id = asked.pay_order_id)
                          AS "attempt?: PayStatus",
                      (SELECT status FROM orders
                       WHERE orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no)
                          AS "order?: OrderStatus",
                      (SELECT status FROM refunds WHERE refunds.refund_id = asked.refund_id)
                          AS "refund?: RefundStatus",
                      (SELECT status FROM withdrawals WHERE withdrawals.withdrawal_id = asked.withdrawal_id)
                          AS "withdrawal?: WithdrawalStatus",
                      (SELECT verdict FROM webhook_inbox
                       WHERE webhook_inbox.channel = asked.channel AND webhook_inbox.event_id = asked.event_id)
                          AS "callback?: Verdict",
                      CASE
                          WHEN asked.pay_order_id IS NOT NULL
                          THEN (SELECT pay_orders.channel FROM pay_orders
                                WHERE pay_orders.pay_order_id = asked.pay_order_id)
                          WHEN asked.order_no IS NOT NULL
                          THEN (SELECT pay_orders.channel FROM pay_orders
                                WHERE pay_orders.merchant_id = asked.merchant_id
                                  AND pay_orders.order_no = asked.order_no AND pay_orders.is_live LIMIT 1)
                          WHEN asked.refund_id IS NOT NULL
                          THEN (SELECT coalesce(
                                    (SELECT pay_orders.channel FROM pay_orders
                                     WHERE pay_orders.pay_order_id = refunds.pay_order_id),
                                    (SELECT stray_payments.channel FROM stray_payments
                                     WHERE stray_payments.stray_id = refunds.stray_id))
                                FROM refunds WHERE refunds.refund_id = asked.refund_id)
                          WHEN asked.withdrawal_id IS NOT NULL
                          THEN (SELECT withdrawals.channel FROM withdrawals
                                WHERE withdrawals.withdrawal_id = asked.withdrawal_id)
                      END AS of_channel
               FROM (SELECT unnest($1::text[]) AS pay_order_id, unnest($2::text[]) AS merchant_id,
                            unnest($3::text[]) AS order_no, unnest($4::text[]) AS refund_id,
                            unnest($5::text[]) AS withdrawal_id, unnest($6::text[]) AS channel,
                            unnest($7::text[]) AS event_id, unnest($8::bigint[]) AS place) AS asked"#,
            &column(batch, |asked| asked.pay_order_id.as_deref()) as &[Option<&str>],
            &order(|key| key.merchant_id.as_str()) as &[Option<&str>],
            &order(|key| key.order_no.as_str()) as &[Option<&str>],
            &column(batch, |asked| asked.refund_id.as_deref()) as &[Option<&str>],
            &column(batch, |asked| asked.withdrawal_id.as_deref()) as &[Option<&str>],
            &callback(|(channel, _)| channel.as_str()) as &[Option<&str>],
            &callback(|(_, event)| event.as_str()) as &[Option<&str>],
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        let facts = in_places(batch.len(), rows, |row| {
            let (attempt, order, refund) = (row.attempt, row.order, row.refund);
            let (withdrawal, callback) = (row.withdrawal, row.callback);
            (row.place, (Facts { attempt, order, refund, withdrawal, callback }, row.of_channel))
        });
        // Each command has its one row.
        Ok(facts.into_iter().flatten().collect())
    }
}
