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

/// What is booked of a commission for a refund, in minor units.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    pub(super) refund_id: String,
    /// What it claimed back, and of that what its user did not have and was left owing.
    pub(super) claimed: i64,
    pub(super) owed: i64,
    /// The entry by which; nothing, where it claimed nothing.
    pub(super) claimed_at: Option<i64>,
    /// What was given again when the channel took it back, and of that what made good what was written off.
    pub(super) given: i64,
    pub(super) recovered: i64,
    /// The entry by which; nothing, where nothing was given.
    pub(super) given_at: Option<i64>,
}

/// What is left of a claim: the debt, and what its user had.
struct Left<'a> {
    refund_id: &'a str,
    claimed_at: i64,
    debt: i64,
    paid: i64,
}

/// The claims whose debts are undone by what is given again for a refund, and how much of each: so much of what was written
/// off since is made good.
///
/// What is given undoes the claim of its refund. A refund may give more than it had claimed, or less: one from before the
/// settlement claimed nothing, units are cut off by rounding, and its claim may be undone already. What is beyond it had been
/// claimed for others, and undoes what is left of theirs, debts first, the oldest first. So all that was given before is gone
/// through, in its order.
pub(super) fn undone_debts<'a>(claims: &'a [Claim], refund_id: &str, given: i64) -> Vec<(&'a str, i64)> {
    let mut left: Vec<_> = claims.iter().filter_map(Left::of).collect();
    left.sort_by_key(|one| one.claimed_at);
    let mut before: Vec<_> = claims.iter().filter_map(|claim| Some((claim.given_at?, claim))).collect();
    before.sort_by_key(|(given_at, _)| *given_at);
    for (given_at, claim) in before {
        undo(&mut left, &claim.refund_id, claim.given, given_at);
    }
    let mut debts = undo(&mut left, refund_id, given, i64::MAX);
    // No more is made good than was left owing, whatever was made good for before.
    let mut most: i64 = claims.iter().map(|claim| claim.owed - claim.recovered).sum();
    for (_, debt) in &mut debts {
        *debt = (*debt).min(most);
        most -= *debt;
    }
    debts.retain(|(_, debt)| *debt > 0);
    debts
}

/// Undoes claims from before that entry by what is given for a refund; gives whose debts, and how much of each.
fn undo<'a>(left: &mut [Left<'a>], refund_id: &str, mut given: i64, before: i64) -> Vec<(&'a str, i64)> {
    let mut debts = Vec::new();
    for is_own in [true, false] {
        for is_debt in [true, false] {
            let of_these =
                |one: &&mut Left<'_>| one.claimed_at < before && (one.refund_id == refund_id) == is_own;
            for one in left.iter_mut().filter(of_these) {
                let part = if is_debt { &mut one.debt } else { &mut one.paid };
                let undone = given.min(*part);
                (*part, given) = (*part - undone, given - undone);
                if is_debt {
                    debts.push((one.refund_id, undone));
                }
            }
        }
    }
    debts
}

impl<'a> Left<'a> {
    fn of(claim: &'a Claim) -> Option<Self> {
        let (debt, paid) = (claim.owed, claim.claimed - claim.owed);
        Some(Self { refund_id: &claim.refund_id, claimed_at: claim.claimed_at?, debt, paid })
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

    /// What was booked: for which refund how much was claimed and owed, or given and recovered.
    enum Booked {
        Claim(&'static str, i64, i64),
        Back(&'static str, i64, i64),
    }

    fn undone(booked: &[Booked], refund_id: &str, given: i64) -> String {
        let mut claims = Vec::<Claim>::new();
        for (at, booked) in (1..).zip(booked) {
            let (Booked::Claim(refund_id, ..) | Booked::Back(refund_id, ..)) = *booked;
            if !claims.iter().any(|claim| claim.refund_id == refund_id) {
                claims.push(Claim { refund_id: refund_id.to_owned(), ..Claim::default() });
            }
            let claim = claims.iter_mut().find(|claim| claim.refund_id == refund_id).unwrap();
            match *booked {
                Booked::Claim(_, claimed, owed) => {
                    (claim.claimed, claim.owed, claim.claimed_at) = (claimed, owed, Some(at));
                }
                Booked::Back(_, given, recovered) => {
                    (claim.given, claim.recovered, claim.given_at) = (given, recovered, Some(at));
                }
            }
        }
        // In whatever order they are found.
        claims.reverse();
        let debts = undone_debts(&claims, refund_id, given);
        debts.into_iter().map(|(name, debt)| format!("{name}:{debt} ")).collect()
    }

    #[test]
    fn what_is_given_undoes_the_claim_of_its_refund_and_beyond_that_those_of_others() {
        use Booked::{Back, Claim};
        for (booked, refund_id, given, debts) in [
            (&[Claim("R", 50, 50)][..], "R", 50, "R:50 "),
            (&[Claim("R", 50, 20)], "R", 50, "R:20 "),
            // What another one left that stands is not undone by what this one had paid, whichever was first.
            (&[Claim("S", 50, 50), Claim("R", 49, 0)], "R", 49, ""),
            (&[Claim("R", 50, 50), Claim("S", 49, 0)], "R", 50, "R:50 "),
            // Refunded before it was settled, it claimed nothing: what it gives again the other one had claimed.
            (&[Claim("S", 49, 49)], "R", 49, "S:49 "),
            (&[Claim("S", 49, 9)], "R", 49, "S:9 "),
            // One unit less was given for the other one, which had left it owing; or had paid it.
            (&[Claim("S", 50, 50), Claim("R", 49, 49), Back("S", 49, 49)], "R", 50, "R:49 S:1 "),
            (&[Claim("S", 50, 0), Claim("R", 49, 49), Back("S", 49, 0)], "R", 50, "R:49 "),
            (&[Claim("S", 1, 1), Claim("T", 25, 0)], "T", 25, ""),
            (&[Claim("S", 1, 1), Claim("T", 25, 0), Back("T", 25, 0)], "R", 1, "S:1 "),
            // Debts are undone before what was paid, its own and others'.
            (&[Claim("R", 50, 20)], "R", 49, "R:20 "),
            (&[Claim("S", 20, 0), Claim("T", 20, 20)], "Q", 20, "T:20 "),
            // Two from before the settlement undo one each, the older one first.
            (&[Claim("S", 20, 20), Claim("T", 20, 20)], "Q", 20, "S:20 "),
            (&[Claim("S", 20, 20), Claim("T", 20, 20), Back("Q", 20, 20)], "R", 20, "T:20 "),
            // Its own claim was undone by what was given for another one: what it gives again a third one had claimed.
            (&[Claim("R", 49, 0), Back("Q", 49, 0), Claim("S", 49, 49)], "R", 49, "S:49 "),
            (&[Claim("R", 49, 49), Back("Q", 49, 0), Claim("S", 49, 0)], "R", 49, ""),
            // By a rule of before more was made good than it was given for.
            (&[Claim("S", 49, 0), Claim("R", 50, 50), Back("S", 49, 30)], "R", 50, "R:20 "),
        ] {
            assert_eq!(undone(booked, refund_id, given), debts, "{given} for {refund_id}");
        }
    }
}
