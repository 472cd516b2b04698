//! An order's commission is given.

use crate::idempotency::Kept;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, Unheard, array_text, column, met, places};
use crate::ledger::Account;
use crate::orders::{OrderKey, OrderStatus, SettleStatus};
use crate::outbox::Event;
use crate::settlement::model::Settlement;
use crate::settlement::terms::{Factor, Rate};

/// Settles an order: its mark, the settlement, the booking with the user's balance, the event, and the kept answer, in
/// one statement and so in one commit. `false` when the order is not as it was read.
///
/// It decides alike with a locked read: the order's row is written first, and only while it is paid, unsettled, and no
/// more of it has gone back than was read; whoever comes second waits for that row and then meets nothing. Users'
/// balances are locked in the order of their names, by the trigger on bookings.
#[derive(Debug)]
pub(in crate::settlement) struct Settle {
    /// As it will stand.
    pub(in crate::settlement) settlement: Settlement,
    pub(in crate::settlement) line_rates: Vec<Rate>,
    /// What had gone back when the rest was computed.
    pub(in crate::settlement) refunded_seen: i64,
    /// Whether a source outside was asked for its rates: whatever may have gone meanwhile is looked for once more.
    pub(in crate::settlement) is_asked_for: bool,
    pub(in crate::settlement) kept: Option<Kept>,
    pub(in crate::settlement) unheard: Unheard,
}

impl Settle {
    /// Which order.
    pub(in crate::settlement) fn key(&self) -> OrderKey {
        let Settlement { merchant_id, order_no, .. } = &self.settlement;
        OrderKey { merchant_id: merchant_id.clone(), order_no: order_no.clone() }
    }

    fn announcement(&self) -> Event {
        let settlement = &self.settlement;
        Event::OrderSettled {
            order_no: settlement.order_no.to_string(),
            user_id: settlement.user_id.to_string(),
            base_amount: settlement.base_amount,
            commission: settlement.commission,
            currency: settlement.currency,
        }
    }

    fn expense(&self) -> Account {
        Account::commission_expense(self.settlement.merchant_id.as_str(), self.settlement.currency)
    }

    fn earnings(&self) -> Account {
        let Settlement { merchant_id, user_id, currency, .. } = &self.settlement;
        Account::user_available(merchant_id.as_str(), user_id.as_str(), *currency)
    }
}

/// What an order must be: paid, and not wholly refunded.
const SETTLEABLE: [OrderStatus; 2] = [OrderStatus::Paid, OrderStatus::PartiallyRefunded];

impl Command for Settle {
    const NAME: &'static str = "settlement.settle";
    const RINGS: bool = true;
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.key().lock_rank())
    }

    fn went_unheard(&self) {
        self.unheard.note();
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let settled = sqlx::query_file_scalar!(
            "src/settlement/store/settle.sql",
            &column(batch, |new| new.settlement.merchant_id.as_str()) as &[&str],
            &column(batch, |new| new.settlement.order_no.as_str()) as &[&str],
            &column(batch, |new| new.settlement.user_id.as_str()) as &[&str],
            &column(batch, |new| new.settlement.base_amount),
            &column(batch, |new| new.settlement.rate) as &[Rate],
            &column(batch, |new| array_text(&new.line_rates)),
            &column(batch, |new| new.settlement.factor) as &[Factor],
            &column(batch, |new| new.settlement.commission),
            &column(batch, |new| new.settlement.currency.as_str()) as &[&str],
            &column(batch, |new| new.settlement.created_at),
            &column(batch, |new| new.refunded_seen),
            &column(batch, |new| new.announcement().payload()),
            &column(batch, |new| new.expense().to_string()),
            &column(batch, |new| new.earnings().to_string()),
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.key.as_str()))
                as &[Option<&str>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.request.request_hash.as_slice()))
                as &[Option<&[u8]>],
            &column(batch, |new| new.kept.as_ref().map(Kept::status)) as &[Option<i16>],
            &column(batch, |new| new.kept.as_ref().map(|kept| kept.answer.body.as_slice()))
                as &[Option<&[u8]>],
            patience.millis(),
            &SETTLEABLE.map(OrderStatus::as_str) as &[&str],
            SettleStatus::Unsettled.as_str(),
            "order.settled",
            1_i16,
            batch.iter().any(|new| new.is_asked_for),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), settled))
    }
}
