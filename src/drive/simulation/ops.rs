//! What can happen, drawn from a seed: the same list for the same seed, whatever becomes of it.

/// A happening, and what goes wrong at the channel while it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) what: What,
    /// Which one, of those that there are.
    pub(super) pick: usize,
    /// Of the first call, and of those behind it.
    pub(super) faults: [Fault; 2],
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Somebody asks for a link of one of the channels.
    AskLink,
    /// The buyer pays what was asked, on a trade that is open.
    Pay,
    /// The buyer pays on any trade, closed and paid ones too: another amount, another currency, or once more.
    PayOddly,
    /// The buyer, or the channel, gives a trade up.
    Decline,
    /// A callback arrives.
    Deliver,
    /// A callback arrives, and will again.
    DeliverFirst,
    /// A callback is lost for good.
    Lose,
    /// A pay order is here that callbacks knew before.
    Appear,
    /// The merchant closes the order.
    Cancel,
    /// The timer looks whether it is time.
    Expire,
    /// Seconds pass.
    Wait,
    /// What waits for a channel's answer gets it, and is written down.
    Land,
    /// Whoever waits for a channel's answer dies.
    Die,
    /// A worker takes a task that is due.
    Work,
    /// A call that was lost on the way arrives after all.
    Arrive,
    /// A task is put back untried once more, because nobody heard that it was.
    PutBackAgain,
    /// The channel ends what it was at.
    Conclude,
    /// The channel takes a refund back.
    TakeBack,
    /// The merchant wants money given back.
    AskRefund,
    /// An operator lets a refund go, or does not.
    Approve,
    /// A person decides over stray money.
    Resolve,
    /// An operator has tasks tried again that were given up.
    Revive,
    /// The commission is settled.
    Settle,
    /// The user wants money sent out.
    Withdraw,
    /// The statement of a day is compared.
    Compare,
}

/// What goes wrong at a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    /// It hears nothing.
    SilentBefore,
    /// It acts, and its answer is lost.
    SilentAfter,
    /// It refuses, and does nothing.
    Refuses,
    /// It refuses this call, keeps nothing of it, and may do the same one later.
    Declines,
    /// It has no time.
    NotNow,
    /// The call is on its way for long, and arrives when nobody waits for it any more.
    Late,
    /// It takes the call in, and is at it.
    Slow,
    /// It refuses what it did before, and names no payment.
    Curt,
}

/// How often each thing happens, of 100.
const OFTEN: [(What, usize); 25] = [
    (What::AskLink, 8),
    (What::Pay, 5),
    (What::PayOddly, 3),
    (What::Decline, 1),
    (What::Deliver, 7),
    (What::DeliverFirst, 4),
    (What::Lose, 1),
    (What::Appear, 1),
    (What::Cancel, 1),
    (What::Expire, 3),
    (What::Wait, 9),
    (What::Land, 18),
    (What::Die, 3),
    (What::Work, 13),
    (What::PutBackAgain, 2),
    (What::Arrive, 2),
    (What::Conclude, 3),
    (What::TakeBack, 1),
    (What::AskRefund, 5),
    (What::Approve, 2),
    (What::Resolve, 2),
    (What::Revive, 1),
    (What::Settle, 2),
    (What::Withdraw, 2),
    (What::Compare, 1),
];

/// Of 16: half of the calls go well.
const FAULTS: [Fault; 16] = [
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::Nothing,
    Fault::SilentBefore,
    Fault::SilentAfter,
    Fault::Refuses,
    Fault::NotNow,
    Fault::Late,
    Fault::Slow,
    Fault::Declines,
    Fault::Curt,
];

/// A source of chance that is cheap without an optimiser: splitmix64.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The things in a row of 100, so that one is found at once.
pub(super) fn often() -> Vec<What> {
    OFTEN.iter().flat_map(|(what, times)| std::iter::repeat_n(*what, *times)).collect()
}

/// So many happenings.
pub(super) fn draw(chance: &mut Chance, often: &[What], count: usize, ops: &mut Vec<Op>) {
    ops.clear();
    for _ in 0..count {
        let bits = chance.number().to_le_bytes();
        let at = |place: usize| usize::from(bits[place]);
        let what = often[(at(0) << 8 | at(1)) % often.len()];
        let pick = at(2) << 8 | at(3);
        ops.push(Op { what, pick, faults: [FAULTS[at(4) % 16], FAULTS[at(5) % 16]] });
    }
}
