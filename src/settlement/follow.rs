//! How a commission follows what is left of its order, and who bears the difference. Pure.

use super::model::{SettlementEvent, SettlementStatus};

/// How much of a commission is claimed back in all when so much is due on what is left of the order, and where that
/// leads; nothing where that is as it was before, or where the settlement cannot go.
pub(crate) fn follow(
    status: SettlementStatus,
    commission: i64,
    before: i64,
    due_on_the_rest: i64,
) -> Option<(i64, SettlementStatus)> {
    let clawed_back = (commission - due_on_the_rest).max(0);
    let event = match () {
        () if clawed_back == before => return None,
        () if clawed_back < before => SettlementEvent::Restored,
        () if clawed_back == commission => SettlementEvent::AllClawedBack,
        () => SettlementEvent::PartClawedBack,
    };
    Some((clawed_back, status.after(event)?))
}

/// Who bears a difference: minor units that are taken, or given where they are below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Of what the user can spend.
    pub(crate) of_balance: i64,
    /// Of what the user owes: what is taken beyond the balance makes it grow, what is given pays it off first.
    pub(crate) of_debt: i64,
}

impl Shares {
    /// Of a difference that is claimed back, or given again where it is below zero, by what the user has and owes.
    pub(crate) fn of(difference: i64, has: i64, owes: i64) -> Self {
        if difference > 0 {
            let of_balance = difference.min(has);
            return Self { of_balance, of_debt: difference - of_balance };
        }
        let of_debt = -owes.min(-difference);
        Self { of_balance: difference - of_debt, of_debt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_takes_what_is_there_and_pays_off_debts_first() {
        for (difference, has, owes, of_balance, of_debt) in [
            (7, 10, 0, 7, 0),
            (7, 4, 0, 4, 3),
            (7, 0, 5, 0, 7),
            (-7, 3, 0, -7, 0),
            (-7, 0, 5, -2, -5),
            (-7, 0, 9, 0, -7),
        ] {
            assert_eq!(Shares::of(difference, has, owes), Shares { of_balance, of_debt }, "{difference}");
        }
    }

    #[test]
    fn a_commission_follows_what_is_left_both_ways() {
        use SettlementStatus as S;
        for (status, before, due, expected) in [
            (S::Settled, 0, 60, Some((40, S::Settled))),
            (S::Settled, 40, 0, Some((100, S::ClawedBack))),
            (S::Settled, 40, 60, None),
            (S::ClawedBack, 100, 30, Some((70, S::Settled))),
            (S::Settled, 40, 100, Some((0, S::Settled))),
            // Rates only ever round down: what is due on a part is never more than on all.
            (S::Settled, 0, 101, None),
        ] {
            assert_eq!(follow(status, 100, before, due), expected, "{status} {before} {due}");
        }
    }
}
