//! A compensating charge: usage that was paid with money which never came is charged once more.
//!
//! Money that a top-up brought here and that its channel denies was credited to a user. Where the user has paid for
//! metered work since, in that currency, and each product that charged for it allows it, the user is charged what the
//! top-up gave: as far as it is still there it is taken, the rest is owed and shown to a person. Ours is then as theirs.
//! It is booked once for each difference, under its id, in the transaction in which the difference says so. What was not
//! spent on usage, or on a product that does not allow it, is a person's to see to, and so are a top-up of which anything
//! was refunded and one whose charge was given back before. What a statement has come to list since it was missed is
//! charged for by nobody: a person is shown that the channel says both; and while one that may list it is still to come, or
//! a refund of it that failed may have been made, the charge waits. What was charged for is refunded by nobody: its user would pay twice.

use time::OffsetDateTime;

use super::act::end_in_tx;
use super::carry_out::Done;
use super::model::{Item, ItemAction, ItemEvent};
use super::store::{self, Rest, Spender};
use crate::app::App;
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::DutyError;
use crate::ledger::{self, Account, Posting, PostingKind};
use crate::outbox::{self, Event};
use crate::receivables::Debtor;

/// What follows from a payment that the channel denies: nothing but for a person to see, a charge to decide over, or,
/// where that was decided, the charge.
pub(super) async fn settle_short(app: &App, item: &Item, why: &str) -> Result<Done, DutyError> {
    let mut conn = app.db.conn().await?;
    let spender = store::find_spender(&mut conn, item, &booking_of(item).transaction_id()).await?;
    drop(conn);
    let Some(spender) = spender else { return Ok(Done::GivenUp(why.to_owned())) };
    match spender.is_allowed {
        _ if spender.was_charged => Ok(Done::GivenUp(format!("{why}; its charge was given back before"))),
        None => Ok(Done::GivenUp(format!("{why}; user {} used nothing since", spender.user_id))),
        Some(false) => {
            let user_id = &spender.user_id;
            Ok(Done::GivenUp(format!("{why}; what user {user_id} used does not allow a compensating charge")))
        }
        Some(true) if item.action == ItemAction::Charge => Ok(charge(app, item, &spender, why).await?),
        Some(true) => Ok(Done::Chargeable(format!("{why}; user {} is to be charged", spender.user_id))),
    }
}

/// Charges, and says so of the difference, in one transaction: whoever else has it by now charges nobody.
async fn charge(app: &App, item: &Item, spender: &Spender, why: &str) -> Result<Done, DbError> {
    let charged = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let charged = charge_in_tx(app, &mut tx, item, spender, why).await;
        effect!("reconciliation.charge", tx.finish(charged).await)
    });
    charged.await
}

async fn charge_in_tx(
    app: &App,
    tx: &mut Tx,
    item: &Item,
    spender: &Spender,
    why: &str,
) -> Result<Done, DbError> {
    // The order first, as everywhere: nobody asks for a refund of it meanwhile.
    let of_top_up = format!("{why}; of top-up {}", spender.order_no);
    match store::lock_rest(tx, spender).await? {
        Rest::Whole => {}
        Rest::Unknown => {
            return Ok(Done::Later(format!(
                "{of_top_up} something may have been refunded, which its channel or a person has yet to say"
            )));
        }
        Rest::Less => return Ok(Done::GivenUp(format!("{of_top_up} something was or is being refunded"))),
    }
    // Looked for behind its own lock: a statement that comes to list it from now on finds it charged.
    store::lock_item(tx, &item.item_id).await?;
    if let Some(listing) = store::find_possible_listing(tx, item).await? {
        let (channel, day) = (&item.channel, listing.day);
        if !listing.is_here {
            return Ok(Done::Later(format!(
                "{why}; but the statement of {channel} for {day} is still to come"
            )));
        }
        // One of both is wrong, and another statement may take that one's place: it stays open for a person.
        return Ok(Done::GivenUp(format!("{why}; but the statement of {channel} for {day} lists it")));
    }
    let outcome = format!("{why}; user {} was charged for it", spender.user_id);
    if !end_in_tx(app, tx, item, ItemEvent::Applied, &outcome, app.now()).await? {
        return Ok(Done::Later("somebody else has it".to_owned()));
    }
    book_in_tx(app, tx, item, spender, why).await?;
    Ok(Done::Charged)
}

async fn book_in_tx(
    app: &App,
    tx: &mut Tx,
    item: &Item,
    spender: &Spender,
    why: &str,
) -> Result<(), DbError> {
    let (now, amount, currency) = (app.now(), item.ours.unwrap_or(0), item.currency);
    let Spender { merchant_id, user_id, order_no, .. } = spender;
    let debtor = Debtor { merchant_id, user_id, currency };
    let [has] = ledger::lock_balances_in_tx(tx, [&debtor.available()]).await?;
    let (booking, channel) = (booking_of(item), Account::channel(&item.channel, currency));
    let (posting, owed) = debtor.charge(booking.of(Some(merchant_id), Some(order_no)), &channel, amount, has);
    if owed > 0 {
        show_debt_in_tx(app, tx, item, spender, (owed, why), now).await?;
    }
    let event = Event::CompensatingChargeMade {
        charge_id: item.item_id.clone(),
        user_id: user_id.clone(),
        order_no: order_no.clone(),
        pay_order_id: item.our_id.clone(),
        amount,
        owed,
        currency,
    };
    outbox::append_in_tx(tx, Some(merchant_id), Some(order_no), &event, now).await?;
    ledger::post_in_tx(tx, &[posting], now).await
}

/// What is booked once for each difference.
pub(super) fn booking_of(item: &Item) -> Posting {
    Posting::new(PostingKind::CompensatingCharge, &item.item_id)
}

async fn show_debt_in_tx(
    app: &App,
    tx: &mut Tx,
    item: &Item,
    spender: &Spender,
    (owed, why): (i64, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (user_id, currency) = (&spender.user_id, item.currency);
    let detail = format!(
        "user {user_id} owes {owed} {currency} (minor units): the money of top-up {} was spent on usage and never came, {why}",
        spender.order_no
    );
    let exception = NewException {
        kind: ExceptionKind::UsageShortfall,
        merchant_id: Some(&spender.merchant_id),
        order_no: Some(&spender.order_no),
        subject: &item.our_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}
