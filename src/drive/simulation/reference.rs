//! What must hold, whatever happens: told naively, after the text of the design and not after the code. It looks at our
//! rows and at the channels' own books, and remembers where each thing stood.

use super::channel::{Taken, Way};
use super::world::{AMOUNT, Move, OPENING, Refund, Source, World};
use crate::compensation::{Action, TaskStatus};
use crate::orders::{OrderKind, OrderStatus};
use crate::pay::PayStatus;
use crate::pay::report::Verdict;
use crate::refunds::{RefundStatus, StrayStatus};
use crate::settlement::SettlementStatus;
use crate::withdrawals::WithdrawalStatus;

/// A rule that does not hold, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// A state was left by a way that there is not, or without a line of history.
    Edges,
    /// At most one attempt pays an order: with its amount and currency, once.
    PaidOnce,
    /// Money that was taken is known once, as what it is, or not yet.
    MoneyOnce,
    /// Nothing goes back that was not taken.
    RefundsFit,
    /// At most one attempt is live, and none of a closed order.
    OneLive,
    /// Nothing is in the middle without a task or an open exception, and none is open about money that is not.
    Driven,
    /// A task that says it is done has nothing left to do.
    Nearer,
    /// The user's money adds up, and is never below nothing.
    Wallet,
    /// A commission is what is due on what is left.
    Commission,
    /// The same callback gets the same verdict.
    SameVerdict,
    /// What is decided can be written.
    Stuck,
    /// In the end nothing is in the middle.
    Ends,
    /// In the end our books are the channels', both ways.
    Books,
}

impl Rule {
    /// Every rule; the last one tells how many there are.
    pub(super) const ALL: [Self; Self::Books as usize + 1] = [
        Self::Edges,
        Self::PaidOnce,
        Self::MoneyOnce,
        Self::RefundsFit,
        Self::OneLive,
        Self::Driven,
        Self::Nearer,
        Self::Wallet,
        Self::Commission,
        Self::SameVerdict,
        Self::Stuck,
        Self::Ends,
        Self::Books,
    ];
}

/// Where things stood.
#[derive(Default)]
pub(super) struct Reference {
    order: Option<OrderStatus>,
    attempts: Vec<PayStatus>,
    strays: Vec<StrayStatus>,
    refunds: Vec<RefundStatus>,
    withdrawals: Vec<WithdrawalStatus>,
    settlement: Option<SettlementStatus>,
    verdicts: Vec<Verdict>,
}

type Check = Result<(), Rule>;

const fn hold(holds: bool, rule: Rule) -> Check {
    if holds { Ok(()) } else { Err(rule) }
}

impl Reference {
    /// Looks at what became of the world since the last look.
    pub(super) fn look(&mut self, world: &mut World) -> Check {
        if !world.is_touched && world.moves.is_empty() && world.done.is_empty() {
            return Ok(());
        }
        // A way that there is not explains what is stuck behind it.
        self.follow(world)?;
        hold(world.stuck.is_none(), Rule::Stuck)?;
        for place in 0..world.done.len() {
            let (action, subject) = world.done[place];
            hold(has_no_more_to_do(world, action, subject), Rule::Nearer)?;
        }
        paid_once(world)?;
        money_once(world)?;
        refunds_fit(world)?;
        one_live(world)?;
        driven(world)?;
        wallet(world)?;
        commission(world)?;
        world.moves.clear();
        world.done.clear();
        world.is_touched = false;
        Ok(())
    }

    // ---- states -----------------------------------------------------------------------------------------------

    /// Goes along with history: each line begins where the thing stood, and ends where it may.
    fn follow(&mut self, world: &World) -> Check {
        self.meet(world);
        for line in &world.moves {
            let (is_next, may) = match *line {
                Move::Order(from, to) => (self.order.replace(to) == Some(from), order_may(from, to)),
                Move::Attempt(number, from, to) => {
                    (std::mem::replace(&mut self.attempts[number], to) == from, attempt_may(from, to))
                }
                Move::Stray(number, from, to) => {
                    (std::mem::replace(&mut self.strays[number], to) == from, stray_may(from, to))
                }
                Move::Refund(number, from, to) => {
                    let was_taken_back =
                        world.theirs.refunds[number].is_some_and(|theirs| theirs.state == Way::TakenBack);
                    let before = std::mem::replace(&mut self.refunds[number], to);
                    (before == from, refund_may(from, to, was_taken_back))
                }
                Move::Withdrawal(number, from, to) => {
                    (std::mem::replace(&mut self.withdrawals[number], to) == from, withdrawal_may(from, to))
                }
                Move::Settlement(from, to) => (self.settlement.replace(to) == Some(from), from != to),
            };
            hold(is_next && may, Rule::Edges)?;
        }
        self.stand(world)
    }

    /// Things that are new stand where a life begins.
    fn meet(&mut self, world: &World) {
        self.order.get_or_insert(OrderStatus::Pending);
        self.attempts.resize(world.attempts.len(), PayStatus::Init);
        self.strays.resize(world.strays.len(), StrayStatus::Held);
        self.withdrawals.resize(world.withdrawals.len(), WithdrawalStatus::Debited);
        for refund in &world.refunds[self.refunds.len()..] {
            let waits = refund.source == Source::Paid && refund.minor > super::world::APPROVAL_ABOVE;
            self.refunds.push(if waits { RefundStatus::AwaitingApproval } else { RefundStatus::Pending });
        }
        if world.settlement.is_some() {
            self.settlement.get_or_insert(SettlementStatus::Settled);
        }
    }

    /// History ends in the present state, and verdicts stay but for what was waited for.
    fn stand(&mut self, world: &World) -> Check {
        let is_there = self.order == Some(world.order.status)
            && self.attempts.iter().zip(&world.attempts).all(|(known, row)| *known == row.status)
            && self.strays.iter().zip(&world.strays).all(|(known, row)| *known == row.status)
            && self.refunds.iter().zip(&world.refunds).all(|(known, row)| *known == row.status)
            && self.withdrawals.iter().zip(&world.withdrawals).all(|(known, row)| *known == row.status)
            && self.settlement == world.settlement.as_ref().map(|row| row.status);
        hold(is_there, Rule::Edges)?;
        for (known, row) in self.verdicts.iter_mut().zip(&world.inbox) {
            hold(*known == row.verdict || *known == Verdict::Unmatched, Rule::SameVerdict)?;
            *known = row.verdict;
        }
        let new = &world.inbox[self.verdicts.len()..];
        self.verdicts.extend(new.iter().map(|row| row.verdict));
        Ok(())
    }
}

const fn order_may(from: OrderStatus, to: OrderStatus) -> bool {
    use OrderStatus as S;
    matches!(
        (from, to),
        (S::Pending, S::Paid | S::Closed)
            | (S::Paid, S::PartiallyRefunded | S::Refunded)
            | (S::PartiallyRefunded, S::Refunded | S::Paid)
            | (S::Refunded, S::PartiallyRefunded | S::Paid)
    )
}

const fn attempt_may(from: PayStatus, to: PayStatus) -> bool {
    use PayStatus as S;
    matches!(
        (from, to),
        (S::Init, S::Paying)
            | (S::Init | S::Paying, S::Paid | S::Failed | S::Closed)
            | (S::Closed | S::Failed, S::Paid)
    )
}

const fn stray_may(from: StrayStatus, to: StrayStatus) -> bool {
    use StrayStatus as S;
    matches!(
        (from, to),
        (S::Held, S::Refunding | S::Kept) | (S::Refunding, S::Refunded | S::Held) | (S::Refunded, S::Held)
    )
}

/// `SUCCEEDED → FAILED` only on the channel's own reversal.
const fn refund_may(from: RefundStatus, to: RefundStatus, was_taken_back: bool) -> bool {
    use RefundStatus as S;
    match (from, to) {
        (S::AwaitingApproval, S::Pending | S::Failed)
        | (S::Pending, S::Processing)
        | (S::Processing, S::Succeeded | S::Failed) => true,
        (S::Succeeded, S::Failed) => was_taken_back,
        _ => false,
    }
}

const fn withdrawal_may(from: WithdrawalStatus, to: WithdrawalStatus) -> bool {
    use WithdrawalStatus as S;
    matches!(
        (from, to),
        (S::Debited, S::Paying) | (S::Paying, S::Succeeded | S::Reversing) | (S::Reversing, S::Reversed)
    )
}

fn has_no_more_to_do(world: &World, action: Action, subject: usize) -> bool {
    match action {
        Action::DrivePayOrder => world.attempts[subject].status != PayStatus::Init,
        Action::ClosePayOrder => !is_live(world.attempts[subject].status),
        Action::ExpireOrder => world.order.status != OrderStatus::Pending,
        Action::DriveRefund => is_over(world.refunds[subject].status),
        Action::DriveWithdrawal => is_at_rest(world.withdrawals[subject].status),
        Action::RematchCallback => world.inbox[subject].verdict != Verdict::Unmatched,
        // Whoever asks writes what the channel says, or leaves it to a person.
        Action::QueryRefund | Action::ApplyUpdate => true,
    }
}

const fn is_live(status: PayStatus) -> bool {
    matches!(status, PayStatus::Init | PayStatus::Paying)
}

const fn is_over(status: RefundStatus) -> bool {
    matches!(status, RefundStatus::Succeeded | RefundStatus::Failed)
}

const fn is_at_rest(status: WithdrawalStatus) -> bool {
    matches!(status, WithdrawalStatus::Succeeded | WithdrawalStatus::Reversed)
}

// ---- money ----------------------------------------------------------------------------------------------------

fn paid_once(world: &World) -> Check {
    let is_paid = !matches!(world.order.status, OrderStatus::Pending | OrderStatus::Closed);
    hold(is_paid == world.order.paid_by.is_some(), Rule::PaidOnce)?;
    let gone = world.order.refunded;
    let fits = match world.order.status {
        OrderStatus::Pending | OrderStatus::Closed | OrderStatus::Paid => gone == 0,
        OrderStatus::PartiallyRefunded => 0 < gone && gone < AMOUNT,
        OrderStatus::Refunded => gone == AMOUNT,
    };
    hold(fits, Rule::PaidOnce)?;
    let Some(attempt) = world.order.paid_by else { return Ok(()) };
    let row = &world.attempts[attempt];
    let Some(payment) = row.transaction else { return Err(Rule::PaidOnce) };
    let Taken { attempt: of, minor, is_asked, .. } = world.theirs.taken[payment];
    let is_right = row.status == PayStatus::Paid && (of, minor, is_asked) == (attempt, AMOUNT, true);
    hold(is_right, Rule::PaidOnce)
}

/// What the channels took = what is recognised + what is stray + what is not known yet; payment by payment.
fn money_once(world: &World) -> Check {
    let paid = world.order.paid_by.and_then(|attempt| world.attempts[attempt].transaction);
    let (mut recognised, mut stray, mut unknown, mut all) = (0, 0, 0, 0);
    for (payment, taken) in world.theirs.taken.iter().enumerate() {
        all += taken.minor;
        let mut rows = world.known.iter().filter(|known| known.payment == payment);
        match (rows.next(), rows.next()) {
            (None, _) => unknown += taken.minor,
            (Some(_), Some(_)) => return Err(Rule::MoneyOnce),
            (Some(row), None) => match row.stray {
                None if paid == Some(payment) => recognised += AMOUNT,
                Some(place) if paid != Some(payment) && world.strays[place].payment == payment => {
                    stray += world.strays[place].minor;
                }
                _ => return Err(Rule::MoneyOnce),
            },
        }
    }
    let rows = world.strays.len() + usize::from(world.order.paid_by.is_some());
    hold(all == recognised + stray + unknown && rows == world.known.len(), Rule::MoneyOnce)
}

fn refunds_fit(world: &World) -> Check {
    hold(world.theirs.complaint.is_none(), Rule::RefundsFit)?;
    let (mut open, mut made) = (0, 0);
    for refund in world.refunds.iter().filter(|refund| refund.source == Source::Paid) {
        match refund.status {
            RefundStatus::Failed => {}
            RefundStatus::Succeeded => made += refund.minor,
            _ => open += refund.minor,
        }
    }
    hold(open + made <= AMOUNT && made == world.order.refunded, Rule::RefundsFit)?;
    for (number, stray) in world.strays.iter().enumerate() {
        let on_its_way = sum(world, |refund| {
            refund.source == Source::Stray(number) && refund.status != RefundStatus::Failed
        });
        let expected = match stray.status {
            StrayStatus::Held | StrayStatus::Kept => 0,
            StrayStatus::Refunding | StrayStatus::Refunded => stray.minor,
        };
        hold(on_its_way == expected, Rule::RefundsFit)?;
    }
    Ok(())
}

fn sum(world: &World, which: impl Fn(&Refund) -> bool) -> i64 {
    world.refunds.iter().filter(|refund| which(refund)).map(|refund| refund.minor).sum()
}

fn one_live(world: &World) -> Check {
    let live = world.attempts.iter().filter(|row| !row.is_hidden && is_live(row.status)).count();
    let most = usize::from(world.order.status != OrderStatus::Closed);
    hold(live <= most, Rule::OneLive)
}

fn driven(world: &World) -> Check {
    let has =
        |action: Action, subject: usize| world.tasks.iter().any(|task| task.thing() == (action, subject));
    for (number, row) in world.attempts.iter().enumerate().filter(|(_, row)| !row.is_hidden) {
        let is_waited_for = world.order.status == OrderStatus::Pending;
        let fine = match row.status {
            PayStatus::Init => has(Action::DrivePayOrder, number) || has(Action::ClosePayOrder, number),
            PayStatus::Paying => is_waited_for || has(Action::ClosePayOrder, number),
            _ => true,
        };
        hold(fine, Rule::Driven)?;
    }
    for (number, row) in world.refunds.iter().enumerate() {
        let is_on_its_way = matches!(row.status, RefundStatus::Pending | RefundStatus::Processing);
        hold(!is_on_its_way || has(Action::DriveRefund, number), Rule::Driven)?;
    }
    for (number, row) in world.withdrawals.iter().enumerate() {
        hold(is_at_rest(row.status) || has(Action::DriveWithdrawal, number), Rule::Driven)?;
    }
    hold(world.strays.iter().all(|row| row.status != StrayStatus::Held || row.is_shown), Rule::Driven)?;
    for (place, row) in world.inbox.iter().enumerate() {
        hold(row.verdict != Verdict::Unmatched || has(Action::RematchCallback, place), Rule::Driven)?;
    }
    for task in world.tasks.iter().filter(|task| task.status == TaskStatus::Dead) {
        let is_of_money = matches!(task.action, Action::DriveRefund | Action::DriveWithdrawal);
        hold(!is_of_money || !has_no_more_to_do(world, task.action, task.subject), Rule::Driven)?;
    }
    Ok(())
}

/// What the user has and has set aside comes from somewhere, and what was sent out is gone.
fn wallet(world: &World) -> Check {
    let (mut out, mut aside) = (0, 0);
    for row in &world.withdrawals {
        match row.status {
            WithdrawalStatus::Succeeded => out += row.minor,
            WithdrawalStatus::Reversed => {}
            _ => aside += row.minor,
        }
    }
    let is_top_up = world.order.kind == OrderKind::TopUp;
    let mut topped_up = 0;
    if is_top_up {
        aside += sum(world, |refund| refund.source == Source::Paid && !is_over(refund.status));
        topped_up = if world.order.paid_by.is_some() { AMOUNT - world.order.refunded } else { 0 };
    }
    let earned = world.settlement.as_ref().map_or(0, |row| row.commission - row.clawed_back);
    let adds_up = world.available + world.held == OPENING + topped_up + earned + world.owed - out;
    hold(adds_up && world.held == aside && world.available >= 0 && world.owed >= 0, Rule::Wallet)
}

/// floor(Σ line × rate × factor × base / amount): (70 × 0.07 + 30 × 0.11) × 1.5 = 12.3 on all of 100.
const fn due_on(base: i64) -> i64 {
    123 * base / 1_000
}

fn commission(world: &World) -> Check {
    let Some(row) = &world.settlement else { return Ok(()) };
    let left = AMOUNT - world.order.refunded;
    let most = due_on(row.settled_on);
    let kept = if due_on(left) < most { due_on(left) } else { most };
    let is_right = row.commission == most && row.clawed_back == most - kept;
    let is_gone = row.clawed_back == row.commission && row.clawed_back > 0;
    hold(is_right && is_gone == (row.status == SettlementStatus::ClawedBack), Rule::Commission)
}

// ---- the end --------------------------------------------------------------------------------------------------

/// Nothing is in the middle, and each book has what the other has.
pub(super) fn settled(world: &World) -> Check {
    let is_over = world.order.status != OrderStatus::Pending
        && world.tasks.is_empty()
        && world.attempts.iter().all(|row| row.is_hidden || !is_live(row.status))
        && world.refunds.iter().all(|row| is_over(row.status))
        && world.withdrawals.iter().all(|row| is_at_rest(row.status))
        && world.strays.iter().all(|row| matches!(row.status, StrayStatus::Refunded | StrayStatus::Kept))
        && world.inbox.iter().all(|row| row.verdict != Verdict::Unmatched);
    hold(is_over, Rule::Ends)?;
    hold(world.known.len() == world.theirs.taken.len(), Rule::Books)?;
    for (row, theirs) in world.refunds.iter().zip(&world.theirs.refunds) {
        let is_there = theirs.is_some_and(|theirs| theirs.state == Way::Made && theirs.minor == row.minor);
        hold(is_there == (row.status == RefundStatus::Succeeded), Rule::Books)?;
        hold(!row.is_contradicted, Rule::Books)?;
    }
    for (row, theirs) in world.withdrawals.iter().zip(&world.theirs.payouts) {
        let has_gone = theirs.is_some_and(|theirs| theirs.state == Way::Made && theirs.minor == row.minor);
        hold(has_gone == (row.status == WithdrawalStatus::Succeeded), Rule::Books)?;
    }
    for (payment, taken) in world.theirs.taken.iter().enumerate() {
        let gone: i64 = world
            .theirs
            .refunds
            .iter()
            .flatten()
            .filter_map(|theirs| {
                (theirs.payment == Some(payment) && theirs.state == Way::Made).then_some(theirs.minor)
            })
            .sum();
        hold(gone == taken.given_back && gone <= taken.minor, Rule::Books)?;
    }
    Ok(())
}
