//! Refunds of orders are asked for.

use std::collections::HashMap;

use time::OffsetDateTime;

use super::asked::find_refunds;
use crate::admin_log::{self, Entry};
use crate::compensation::{Action, Hold, Lane, Task};
use crate::idempotency::Kept;
use crate::ids::{MerchantId, OrderNo};
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience, column};
use crate::ledger;
use crate::money::Currency;
use crate::orders::{OrderKey, OrderKind, OrderStatus};
use crate::refunds::create::{AskedBy, Created};
use crate::refunds::desk::{Ask, Desk, Terms};
use crate::refunds::error::RefundError;
use crate::refunds::model::{Refund, RefundStatus};

/// Makes refunds, or gives those of their numbers: with their tasks, what top-ups set aside, and the kept answers.
///
/// The orders are locked before anything is counted, so commands of one batch are served in their order, and batches
/// of different instances one after the other: what goes back was there, and nothing is refused that is there. A
/// number that is taken in this very moment, for another order by another instance, meets
/// `refunds_merchant_refund_no_key`.
impl Command for Ask {
    const NAME: &'static str = "refunds.ask";
    const AT_ONCE: usize = 2;
    type Outcome = Result<Created, RefundError>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(
        batch: &[Self],
        patience: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Self::Outcome>, DbError> {
        let mut tx = conn.begin_batch(patience).await?;
        let outcomes = ask_in_tx(&mut tx, batch).await;
        tx.finish_into(conn, outcomes).await
    }
}

async fn ask_in_tx(tx: &mut Tx, batch: &[Ask]) -> Result<Vec<Result<Created, RefundError>>, DbError> {
    let Some(now) = batch.iter().map(|ask| ask.now).max() else { return Ok(Vec::new()) };
    let mut desk = Desk { orders: lock_orders(tx, batch).await?, ..Desk::default() };
    desk.known = count_asked(tx, batch, &mut desk.orders).await?;
    note_charged(tx, &mut desk.orders).await?;
    let top_ups = desk.orders.iter().filter(|(_, terms)| terms.kind == OrderKind::TopUp);
    let wallets: Vec<_> = top_ups.map(|(key, terms)| terms.wallet(&key.merchant_id)).collect();
    desk.available = ledger::lock_available_in_tx(tx, &wallets, now).await?;

    let mut outcomes: Vec<_> = batch.iter().map(|ask| desk.ask(ask)).collect();
    let leased_until = batch.iter().filter_map(|ask| ask.leased_until).max();
    let taken = write(tx, &desk.made, &kept(batch, &outcomes), now, leased_until).await?;
    hand_out(&mut outcomes, &taken, now);
    log(tx, batch, &desk, now).await?;
    ledger::post_in_tx(tx, &desk.postings, now).await?;
    Ok(outcomes)
}

/// Gives those whose refunds have begun their tasks, which are taken, by the rows that were written.
fn hand_out(
    outcomes: &mut [Result<Created, RefundError>],
    taken: &HashMap<String, i64>,
    now: OffsetDateTime,
) {
    for created in outcomes.iter_mut().flatten().filter(|created| created.is_new) {
        let refund = &created.refund;
        created.task = taken.get(&refund.refund_id).map(|id| Task {
            hold: Hold { id: *id, claim: 1 },
            action: Action::DriveRefund,
            subject: refund.refund_id.clone(),
            merchant_id: refund.merchant_id.clone(),
            order_no: refund.order_no.clone(),
            attempts: 1,
            created_at: now,
            touched_at: now,
            payload: None,
            is_fresh: true,
        });
    }
}

/// The answers that are to be kept, each with its order.
fn kept<'a>(batch: &'a [Ask], outcomes: &[Result<Created, RefundError>]) -> Vec<(Kept, &'a OrderNo)> {
    let rows = batch.iter().zip(outcomes).filter_map(|(ask, outcome)| match &ask.asked_by {
        AskedBy::Merchant(keep) => {
            Some((keep.as_ref()?.row(outcome.as_ref().ok()?.clone()), &ask.new.order_no))
        }
        AskedBy::Operator(_) => None,
    });
    rows.collect()
}

/// What operators asked for stands in the log.
async fn log(tx: &mut Tx, batch: &[Ask], desk: &Desk, now: OffsetDateTime) -> Result<(), DbError> {
    for ask in batch {
        let is_made = || desk.made.iter().any(|made| made.refund_id == ask.refund_id.as_str());
        if let AskedBy::Operator(entry) = &ask.asked_by
            && is_made()
        {
            let entry = Entry { order: Some(ask.order_key()), ..entry.clone() };
            admin_log::append_in_tx(tx, &entry, now).await?;
        }
    }
    Ok(())
}

/// Locks the orders, in the order of their names as everywhere; a repeat locks none.
async fn lock_orders(tx: &mut Tx, batch: &[Ask]) -> Result<HashMap<OrderKey, Terms>, DbError> {
    let conn: &mut Conn = tx;
    let rows = sqlx::query!(
        r#"SELECT orders.merchant_id AS "merchant_id: MerchantId", orders.order_no AS "order_no: OrderNo",
                  orders.kind AS "kind: OrderKind", orders.status AS "status: OrderStatus", orders.user_id,
                  orders.amount, orders.currency AS "currency: Currency", orders.paid_by,
                  (SELECT refund_approval_above FROM merchants
                   WHERE merchants.merchant_id = orders.merchant_id) AS approval_above
           FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                        unnest($3::text[]) AS refund_no) AS new
           JOIN orders ON orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
           -- No join: its plan could walk.
           WHERE (SELECT refund_id FROM refunds
                  WHERE refunds.merchant_id = new.merchant_id AND refunds.refund_no = new.refund_no) IS NULL
           ORDER BY orders.merchant_id, orders.order_no
           FOR UPDATE OF orders"#,
        &column(batch, |ask| ask.merchant_id.as_str()) as &[&str],
        &column(batch, |ask| ask.new.order_no.as_str()) as &[&str],
        &column(batch, |ask| ask.new.refund_no.as_str()) as &[&str],
    )
    .fetch_all(conn)
    .await?;
    let locked = rows.into_iter().map(|row| {
        let terms = Terms {
            kind: row.kind,
            status: row.status,
            user_id: row.user_id,
            amount: row.amount,
            currency: row.currency,
            paid_by: row.paid_by,
            asked: 0,
            gone: 0,
            is_charged: false,
            approval_above: row.approval_above,
            may_begin: false,
        };
        (OrderKey { merchant_id: row.merchant_id, order_no: row.order_no }, terms)
    });
    Ok(locked.collect())
}

/// Counts what was asked of the locked orders before, looks whether their tasks may be taken at once, and gives the refunds of
/// the numbers that are taken. A statement of its own: its snapshot has all that was there before the locks were ours.
async fn count_asked(
    tx: &mut Tx,
    batch: &[Ask],
    orders: &mut HashMap<OrderKey, Terms>,
) -> Result<HashMap<(String, String), Refund>, DbError> {
    let conn: &mut Conn = tx;
    let rows = sqlx::query!(
        r#"SELECT asked.merchant_id AS "merchant_id!: MerchantId", asked.order_no AS "order_no!: OrderNo",
                  (SELECT refund_id FROM refunds
                   WHERE refunds.merchant_id = asked.merchant_id AND refunds.refund_no = asked.refund_no) AS known,
                  sums.asked AS "asked!", sums.gone AS "gone!",
                  NOT EXISTS (SELECT 1 FROM compensation_lanes
                              WHERE lane = $4 AND paused_at IS NOT NULL) AS "may_begin!"
           FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                        unnest($3::text[]) AS refund_no) AS asked
           CROSS JOIN LATERAL (
               -- Refunds are looked up by their order: there is no index over attempts.
               SELECT coalesce(sum(refunds.amount), 0)::bigint AS asked,
                      coalesce(sum(refunds.amount) FILTER (WHERE refunds.status = 'FAILED'), 0)::bigint AS gone
               FROM refunds
               WHERE refunds.merchant_id = asked.merchant_id AND refunds.order_no = asked.order_no
                 AND refunds.stray_id IS NULL
                 AND (refunds.status <> 'FAILED'
                      OR may_have_gone(refunds.refund_id, refunds.made_after_all_at))) AS sums"#,
        &column(batch, |ask| ask.merchant_id.as_str()) as &[&str],
        &column(batch, |ask| ask.new.order_no.as_str()) as &[&str],
        &column(batch, |ask| ask.new.refund_no.as_str()) as &[&str],
        Lane::Realtime.as_str(),
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut known = Vec::new();
    for row in rows {
        known.extend(row.known);
        if let Some(terms) =
            orders.get_mut(&OrderKey { merchant_id: row.merchant_id, order_no: row.order_no })
        {
            (terms.asked, terms.gone) = (row.asked, row.gone);
            terms.may_begin = row.may_begin;
        }
    }
    let known = if known.is_empty() { Vec::new() } else { find_refunds(conn, &known).await? };
    let by_number = known.into_iter().map(|refund| {
        let merchant_id = refund.merchant_id.clone().unwrap_or_default();
        ((merchant_id, refund.refund_no.clone()), refund)
    });
    Ok(by_number.collect())
}

/// Notes of the top-ups, which are locked, whose users stand charged for them. Read behind the locks, as whoever charges
/// holds the order until it is booked.
async fn note_charged(tx: &mut Tx, orders: &mut HashMap<OrderKey, Terms>) -> Result<(), DbError> {
    let top_ups = orders.iter_mut().filter(|(_, terms)| terms.kind == OrderKind::TopUp);
    let (keys, terms): (Vec<_>, Vec<_>) = top_ups.unzip();
    let names = column(&keys, |key| (key.merchant_id.as_str(), key.order_no.as_str()));
    let are_charged = ledger::are_charged_in_tx(tx, &names).await?;
    terms.into_iter().zip(are_charged).for_each(|(terms, is_charged)| terms.is_charged = is_charged);
    Ok(())
}

/// Gives the tasks of those refunds that have begun.
async fn write(
    tx: &mut Tx,
    made: &[Refund],
    kept: &[(Kept, &OrderNo)],
    now: OffsetDateTime,
    leased_until: Option<OffsetDateTime>,
) -> Result<HashMap<String, i64>, DbError> {
    if made.is_empty() && kept.is_empty() {
        return Ok(HashMap::new());
    }
    let conn: &mut Conn = tx;
    let taken = sqlx::query_file!(
        "src/refunds/store/ask.sql",
        &column(made, |refund| refund.refund_id.as_str()) as &[&str],
        &column(made, |refund| refund.merchant_id.as_deref()) as &[Option<&str>],
        &column(made, |refund| refund.refund_no.as_str()) as &[&str],
        &column(made, |refund| refund.order_no.as_deref()) as &[Option<&str>],
        &column(made, |refund| refund.pay_order_id.as_deref()) as &[Option<&str>],
        &column(made, |refund| refund.amount),
        &column(made, |refund| refund.currency.as_str()) as &[&str],
        &column(made, |refund| refund.status.as_str()) as &[&str],
        &column(made, |refund| refund.reason.as_str()) as &[&str],
        &column(made, |refund| refund.return_stock),
        &column(made, |refund| refund.asked_by.as_deref()) as &[Option<&str>],
        &column(kept, |(kept, _)| kept.request.merchant_id.as_str()) as &[&str],
        &column(kept, |(kept, _)| kept.request.key.as_str()) as &[&str],
        &column(kept, |(kept, _)| kept.request.request_hash.as_slice()) as &[&[u8]],
        &column(kept, |(_, order_no)| order_no.as_str()) as &[&str],
        &column(kept, |(kept, _)| kept.status()),
        &column(kept, |(kept, _)| kept.answer.body.as_slice()) as &[&[u8]],
        now,
        leased_until,
        RefundStatus::Processing.as_str(),
        RefundStatus::AwaitingApproval.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(taken.into_iter().map(|task| (task.subject, task.id)).collect())
}
