//! What becomes of holds: reports, charges, ends.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::write;
use super::{cycles, find};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::idempotency::{Keep, Kept};
use crate::ids::{HoldId, Ids, MerchantId, MessageId};
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience};
use crate::ledger::{self, Wallet};
use crate::usage::Done;
use crate::usage::desk::Desk;
use crate::usage::error::Refusal;
use crate::usage::model::{CycleKey, Hold, HoldStatus, Report, Units};

/// What is asked of a hold.
#[derive(Clone, Debug)]
pub(in crate::usage) enum Deed {
    /// To hear of usage.
    Report(Report),
    /// To charge what was used.
    Confirm {
        /// The name of the final report, where it has one.
        message_id: Option<MessageId>,
        /// What was used; the largest that was reported, where nothing is said.
        units: Option<Units>,
    },
    /// To free all of it.
    Release,
}

impl Deed {
    fn message_id(&self) -> Option<&MessageId> {
        match self {
            Self::Report(report) => Some(&report.message_id),
            Self::Confirm { message_id, .. } => message_id.as_ref(),
            Self::Release => None,
        }
    }

    fn units(&self) -> Option<i64> {
        match self {
            Self::Report(report) => Some(report.cumulative_units.count()),
            Self::Confirm { units, .. } => units.map(Units::count),
            Self::Release => None,
        }
    }
}

/// Does something with a hold, and keeps the answer. Any number of commands of one batch may speak of the same hold:
/// they are done in their order, and its row is written once.
#[derive(Debug)]
pub(in crate::usage) struct Act {
    pub(in crate::usage) merchant_id: MerchantId,
    pub(in crate::usage) hold_id: HoldId,
    pub(in crate::usage) deed: Deed,
    pub(in crate::usage) now: OffsetDateTime,
    pub(in crate::usage) ids: Ids,
    pub(in crate::usage) keep: Option<Keep<Done>>,
}

impl Command for Act {
    const NAME: &'static str = "usage.act";
    const AT_ONCE: usize = 2;
    type Outcome = Result<Done, Refusal>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(
        batch: &[Self],
        patience: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Self::Outcome>, DbError> {
        // Who waits alone wants a row that somebody has in hand: it would not be as it was read.
        if patience.is_in_lane()
            && let Some(outcomes) = act_as_read(conn, batch, patience).await?
        {
            return Ok(outcomes);
        }
        let mut tx = conn.begin_batch(patience).await?;
        let outcomes = act_in_tx(&mut tx, batch, patience).await;
        tx.finish_into(conn, outcomes).await
    }
}

/// Holds of a batch, as they were found and as they stand.
type Holds = BTreeMap<String, (Hold, Hold)>;

fn by_id(holds: Vec<Hold>) -> Holds {
    holds.into_iter().map(|hold| (hold.hold_id.to_string(), (hold.clone(), hold))).collect()
}

fn moved(holds: &Holds) -> Vec<&Hold> {
    holds.values().filter(|(found, hold)| found != hold).map(|(_, hold)| hold).collect()
}

fn named(batch: &[Act]) -> BTreeSet<(&HoldId, &MerchantId)> {
    batch.iter().map(|act| (&act.hold_id, &act.merchant_id)).collect()
}

/// Decides on what was read, and locks nothing before it writes, which does nothing unless every hold is as it was read.
/// `None`, with nothing written, where that is not enough: cycles and balances must be looked at under their locks, a hold
/// that many speak of changes hands too often, and messages are read behind their holds, so that one may be known of which
/// the hold, as it was read, is not.
async fn act_as_read(
    conn: &mut Conn,
    batch: &[Act],
    patience: Patience,
) -> Result<Option<Vec<Result<Done, Refusal>>>, DbError> {
    let named = named(batch);
    if named.len() < batch.len() {
        return Ok(None);
    }
    let holds = by_id(find::find_named(conn, &named).await?);
    if !wallets_of(&holds, batch).is_empty() || !cycles_of(&holds, batch, false).is_empty() {
        return Ok(None);
    }
    let mut acting = Acting::of(batch, holds);
    acting.desk.heard = find_heard(conn, batch).await?;
    let outcomes = acting.act();
    // What is said of a hold that it leaves as it is would be written whatever became of it meanwhile.
    let guarded: BTreeSet<&HoldId> = moved(&acting.holds).into_iter().map(|hold| &hold.hold_id).collect();
    let is_unguarded = acting.desk.notes.marks.iter().any(|mark| !guarded.contains(&mark.hold_id));
    if is_unguarded || outcomes.iter().any(|outcome| matches!(outcome, Err(Refusal::MessageReused { .. }))) {
        return Ok(None);
    }
    match acting.write(conn, &kept(batch, &outcomes), patience).await {
        Ok(()) if !acting.desk.notes.events.is_empty() => conn.ring(),
        Ok(()) => {}
        // A message alone leaves its hold as it is.
        Err(error) if error.is_outdated() || error.constraint() == Some("usage_messages_pkey") => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    Ok(Some(outcomes))
}

/// Decides under the locks of the holds, and of the cycles and balances that it takes from.
async fn act_in_tx(
    tx: &mut Tx,
    batch: &[Act],
    patience: Patience,
) -> Result<Vec<Result<Done, Refusal>>, DbError> {
    let Some(Act { ids, .. }) = batch.first() else { return Ok(Vec::new()) };
    let mut acting = Acting::of(batch, by_id(find::lock_all(tx, &named(batch)).await?));
    acting.desk.heard = find_heard(tx, batch).await?;
    let spending = wallets_of(&acting.holds, batch);
    acting.desk.cycles = cycles::lock(tx, cycles_of(&acting.holds, batch, !spending.is_empty())).await?;
    acting.desk.available = ledger::lock_available_in_tx(tx, &spending, acting.now).await?;

    let outcomes = acting.act();
    acting.write_in_tx(tx, ids, &kept(batch, &outcomes), patience).await?;
    Ok(outcomes)
}

fn kept(batch: &[Act], outcomes: &[Result<Done, Refusal>]) -> Vec<Kept> {
    let rows = batch.iter().zip(outcomes);
    rows.filter_map(|(act, outcome)| Some(act.keep.as_ref()?.row(outcome.as_ref().ok()?.clone()))).collect()
}

/// What becomes of some holds.
struct Acting<'a> {
    batch: &'a [Act],
    now: OffsetDateTime,
    holds: Holds,
    desk: Desk,
}

impl<'a> Acting<'a> {
    fn of(batch: &'a [Act], holds: Holds) -> Self {
        let now = batch.iter().map(|act| act.now).max().unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Self { batch, now, holds, desk: Desk::new(now) }
    }

    /// Does all that is asked, in its order.
    fn act(&mut self) -> Vec<Result<Done, Refusal>> {
        let Self { batch, holds, desk, .. } = self;
        let outcomes = batch.iter().map(|act| {
            // Somebody else's may be here too, where its merchant speaks of it in the same batch.
            let hold = holds.get_mut(act.hold_id.as_str()).map(|(_, hold)| hold);
            let hold = hold.filter(|hold| act.names(hold)).ok_or(Refusal::NotFound)?;
            act.on(desk, hold)?;
            Ok(Done { hold: hold.clone(), is_new: false })
        });
        outcomes.collect()
    }

    async fn write(&self, conn: &mut Conn, kept: &[Kept], patience: Patience) -> Result<(), DbError> {
        write::move_all(conn, &moved(&self.holds), &self.desk.notes, kept, patience, self.now).await
    }

    /// Writes also what must be locked for it.
    async fn write_in_tx(
        &self,
        tx: &mut Tx,
        ids: &Ids,
        kept: &[Kept],
        patience: Patience,
    ) -> Result<(), DbError> {
        write::write_cycles(tx, &self.desk).await?;
        for hold in &self.desk.notes.shortfalls {
            open_shortfall_in_tx(tx, ids, hold, self.now).await?;
        }
        if !self.desk.notes.events.is_empty() {
            tx.ring_after_commit();
        }
        match self.write(tx, kept, patience).await {
            // They are locked as they were read: to try again would come to the same.
            Err(error) if error.is_outdated() => Err(DbError::UnexpectedRows(0)),
            written => written,
        }
    }
}

impl Act {
    fn names(&self, hold: &Hold) -> bool {
        self.hold_id == hold.hold_id && self.merchant_id == hold.merchant_id
    }

    fn on(&self, desk: &mut Desk, hold: &mut Hold) -> Result<(), Refusal> {
        match &self.deed {
            Deed::Report(report) => desk.report(hold, report),
            Deed::Confirm { message_id, units } => desk.confirm(hold, message_id.as_ref(), *units),
            Deed::Release => desk.release(hold),
        }
    }
}

/// The balances that a batch may take from. Most of what is reported and charged is set aside already, and a balance
/// that is not locked is in nobody's way. Where one is wanted all are locked: those that only the booking moves would
/// otherwise be locked after it, and two batches could wait for each other.
fn wallets_of(holds: &Holds, batch: &[Act]) -> Vec<Wallet> {
    let open = || holds.values().map(|(hold, _)| hold).filter(|hold| is_open(hold, batch));
    if open().all(|hold| is_covered(hold, batch)) { Vec::new() } else { open().map(Hold::wallet).collect() }
}

/// Whether this batch may move a hold's money or units: nothing is set aside for one that ran out.
fn is_open(hold: &Hold, batch: &[Act]) -> bool {
    match hold.status {
        HoldStatus::Held => true,
        HoldStatus::Expired => is_ended(hold, batch),
        HoldStatus::Confirmed | HoldStatus::Released => false,
    }
}

/// The most that is said of a hold, in this batch or before.
fn most_units(hold: &Hold, batch: &[Act]) -> i64 {
    let named = batch.iter().filter(|act| act.names(hold)).filter_map(|act| act.deed.units());
    named.chain(hold.units).chain([1]).max().unwrap_or(1)
}

/// Whether what a hold has set aside is enough for all that this batch says of it.
fn is_covered(hold: &Hold, batch: &[Act]) -> bool {
    hold.due_ceil(most_units(hold, batch)).is_some_and(|due| due <= hold.held)
}

/// The cycles that must be looked at: those of whose quota a batch may take more, or give something back. What is
/// charged without a quota is added to its cycle when all is written, and nobody looks at it; where other cycles or
/// balances are locked it is locked in its place among them, as by everybody.
fn cycles_of(holds: &Holds, batch: &[Act], locks_balances: bool) -> BTreeSet<CycleKey> {
    let open = holds.values().map(|(hold, _)| hold).filter(|hold| is_open(hold, batch));
    let (limited, free): (Vec<&Hold>, Vec<&Hold>) = open.partition(|hold| hold.cycle_quota.is_some());
    let takes_more = |hold: &Hold| hold.count(most_units(hold, batch)) > hold.counted_units;
    let looked_at = limited.into_iter().filter(|hold| takes_more(hold) || is_ended(hold, batch));
    let mut keys: BTreeSet<CycleKey> = looked_at.map(Hold::cycle_key).collect();
    if locks_balances || !keys.is_empty() {
        keys.extend(free.into_iter().filter(|hold| is_ended(hold, batch)).map(Hold::cycle_key));
    }
    keys
}

fn is_ended(hold: &Hold, batch: &[Act]) -> bool {
    batch.iter().any(|act| act.names(hold) && !matches!(act.deed, Deed::Report(_)))
}

/// What the user owes is a person's to get.
async fn open_shortfall_in_tx(
    tx: &mut Tx,
    ids: &Ids,
    hold: &Hold,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let detail = format!(
        "user {} used {} units of {} and had {} {currency} for them: {} {currency} (minor units) are owed",
        hold.user_id,
        hold.units.unwrap_or(0),
        hold.product_code,
        hold.charged,
        hold.shortfall,
        currency = hold.currency,
    );
    let exception = NewException {
        kind: ExceptionKind::UsageShortfall,
        merchant_id: Some(hold.merchant_id.as_str()),
        order_no: None,
        subject: hold.hold_id.as_str(),
        detail: &detail,
    };
    exceptions::open_in_tx(tx, ids, &exception, now).await
}

/// What those messages of a batch said that were heard before. Under the locks of their holds none comes between.
async fn find_heard(conn: &mut Conn, batch: &[Act]) -> Result<BTreeMap<(String, String), i64>, DbError> {
    let named = batch.iter().filter_map(|act| Some((act.hold_id.as_str(), act.deed.message_id()?.as_str())));
    let (hold_ids, message_ids): (Vec<&str>, Vec<&str>) = named.unzip();
    if hold_ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        "SELECT heard.hold_id, heard.message_id, heard.units
         FROM (SELECT unnest($1::text[]) AS hold_id, unnest($2::text[]) AS message_id) AS said
         JOIN usage_messages AS heard ON heard.hold_id = said.hold_id AND heard.message_id = said.message_id",
        &hold_ids as &[&str],
        &message_ids as &[&str],
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| ((row.hold_id, row.message_id), row.units)).collect())
}

/// Frees those of these holds whose time is over, in one transaction; gives their ids.
pub(in crate::usage) async fn expire_in_tx(
    tx: &mut Tx,
    ids: &Ids,
    hold_ids: &[String],
    in_hand: find::InHand,
    now: OffsetDateTime,
) -> Result<BTreeSet<String>, DbError> {
    let holds = by_id(find::lock_due(tx, hold_ids, in_hand, now).await?);
    let mut desk = Desk::new(now);
    let counting = holds.values().map(|(hold, _)| hold).filter(|hold| hold.counted_units > 0);
    desk.cycles = cycles::lock(tx, counting.map(Hold::cycle_key).collect()).await?;
    let mut expiring = Acting { batch: &[], now, holds, desk };
    for (_, hold) in expiring.holds.values_mut() {
        expiring.desk.expire(hold);
    }
    expiring.write_in_tx(tx, ids, &[], in_hand.patience()).await?;
    Ok(expiring.holds.into_keys().collect())
}
