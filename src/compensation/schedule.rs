//! When a task is tried again: data, a line for each kind.

use time::Duration;

use super::model::{Action, Lane, TaskKind};

/// Pauses in seconds after the first, second, … failed try. Past the last one the task is `DEAD`.
///
/// What talks to a channel begins with 1 s and 2 s ahead of the 5 s of the others: a buyer waits for the link or for
/// the other channel, and the usual reason is a lock that is busy or one lost answer, both over in a second.
const SCHEDULES: [(TaskKind, &[i64]); 4] = [
    (TaskKind::RedoBusiness, &[1, 2, 5, 10, 30, 60, 120, 600, 1_800, 3_600, 10_800, 21_600]),
    (TaskKind::ReplayUpdate, &[5, 10, 30, 60, 120, 600, 1_800, 3_600, 10_800, 21_600]),
    (TaskKind::ResendEvent, &[5, 10, 30, 60, 120, 600, 1_800, 3_600, 10_800, 21_600]),
    (TaskKind::ReplayCallback, &[5, 10, 30, 60, 120, 600, 1_800, 3_600, 10_800, 21_600]),
];

/// A callback is looked at this often at least: its pay order shows up soon or never, a buyer waits for it, and
/// the callback itself knows when to stop looking.
const REMATCH_EVERY_SECS: i64 = 30;
/// Twice the looks that its ten minutes take.
const MAX_REMATCHES: i32 = 50;

/// A pause as long as this makes a task old: it goes on in the lane of the sweep, where it delays nobody.
const OLD_AFTER: Duration = Duration::minutes(10);

/// How a kind of task is tried again.
fn pauses(kind: TaskKind) -> &'static [i64] {
    SCHEDULES.iter().find(|(of, _)| *of == kind).map_or(&[], |(_, pauses)| pauses)
}

/// How long to wait after the given number of failed tries; `None` when it is time to give up.
#[must_use]
pub fn retry_after(action: Action, attempts: i32) -> Option<Duration> {
    let index = usize::try_from(attempts - 1).ok()?;
    let pause = pauses(action.kind()).get(index).copied();
    let pause = match action {
        Action::RematchCallback if attempts > MAX_REMATCHES => None,
        Action::RematchCallback => Some(pause.unwrap_or(REMATCH_EVERY_SECS).min(REMATCH_EVERY_SECS)),
        _ => pause,
    };
    pause.map(Duration::seconds)
}

/// The same by an action's name. One that this version does not know is tried again like an update: a newer one beside it may
/// know it.
pub(super) fn retry_of(action: &str, attempts: i32) -> Option<Duration> {
    retry_after(Action::of(action).unwrap_or(Action::ApplyUpdate), attempts)
}

/// The lane in which a task goes on after such a pause; `None` leaves it where it is.
pub(super) fn lane_after(pause: Duration) -> Option<Lane> {
    (pause >= OLD_AFTER).then_some(Lane::Sweep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_growing_schedule_from_seconds_to_six_hours() {
        for kind in TaskKind::ALL {
            let pauses = pauses(*kind);
            assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]), "{kind} grows");
            assert!(pauses[0] <= 5 && pauses.last() == Some(&21_600), "{kind} has its bounds");
            assert!(pauses.contains(&5), "{kind}");
        }
    }

    #[test]
    fn pauses_end() {
        let pauses: Vec<_> = (1..).map_while(|tries| retry_after(Action::DriveRefund, tries)).collect();
        assert_eq!(pauses.len(), 12);
        assert_eq!(retry_after(Action::DriveRefund, 0), None);
        let unknown = (1..).map_while(|tries| retry_of("OF_ANOTHER_VERSION", tries));
        assert_eq!(unknown.count(), 10);
    }

    #[test]
    fn what_failed_for_minutes_leaves_the_realtime_lane() {
        assert_eq!(lane_after(Duration::minutes(2)), None);
        assert_eq!(lane_after(Duration::minutes(10)), Some(Lane::Sweep));
    }

    #[test]
    fn a_callback_is_looked_at_for_more_than_its_ten_minutes() {
        let pauses: Vec<_> = (1..).map_while(|tries| retry_after(Action::RematchCallback, tries)).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::seconds(30)));
        assert!(pauses.iter().sum::<Duration>() > Duration::minutes(15));
    }
}
