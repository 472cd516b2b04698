//! When a delivery is tried again, as data.

use time::Duration;

use super::lane;
use super::model::DeliveryKind;

/// Standard Webhooks' own: three days in all.
const CALLBACK_SECS: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// Of a message that the broker did not want; that the broker is away is no try of it.
const MESSAGE_SECS: [i64; 7] = [1, 5, 30, 300, 1_800, 7_200, 21_600];

/// The longest wait that an endpoint may ask for.
const LONGEST_ASKED: Duration = Duration::DAY;
/// The same, where others who did not ask share the lane.
const LONGEST_ASKED_FOR_OTHERS: Duration = Duration::minutes(1);
/// Hundredths of a pause that chance may add, so that what failed together does not come again together.
const MOST_JITTER: u64 = 10;

/// How long a lane is left alone whose endpoint asked for it.
pub(super) fn rest_of(lane: &str, asked: Duration) -> Duration {
    asked.min(if lane::is_shared(lane) { LONGEST_ASKED_FOR_OTHERS } else { LONGEST_ASKED })
}

/// How long to wait after the given number of failed tries; `None` when it is time to give up. `asked` is the
/// endpoint's own `Retry-After`, `chance` gives a number from 0 to its argument.
pub(super) fn retry_after(
    kind: DeliveryKind,
    attempts: i32,
    asked: Option<Duration>,
    chance: impl FnOnce(u64) -> u64,
) -> Option<Duration> {
    let schedule: &[i64] = match kind {
        DeliveryKind::ReplayCallback => &CALLBACK_SECS,
        DeliveryKind::ResendEvent => &MESSAGE_SECS,
    };
    let seconds = *schedule.get(usize::try_from(attempts - 1).ok()?)?;
    let pause = Duration::seconds(seconds).max(asked.unwrap_or_default().min(LONGEST_ASKED));
    let most = pause.whole_milliseconds().unsigned_abs() / 100 * u128::from(MOST_JITTER);
    let jitter = chance(u64::try_from(most).unwrap_or(0));
    Some(pause + Duration::milliseconds(i64::try_from(jitter).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_that_of_the_scheme_with_a_little_chance() {
        let pauses = |chance: fn(u64) -> u64| -> Vec<Duration> {
            (1..).map_while(|tries| retry_after(DeliveryKind::ReplayCallback, tries, None, chance)).collect()
        };
        let least: Vec<i64> = pauses(|_| 0).iter().map(|pause| pause.whole_seconds()).collect();
        assert_eq!(least, CALLBACK_SECS);
        for (least, most) in pauses(|_| 0).iter().zip(pauses(|most| most)) {
            assert!(*least < most && most <= *least * 1.1, "{least} to {most}");
        }
        assert_eq!(retry_after(DeliveryKind::ReplayCallback, 0, None, |_| 0), None);
    }

    #[test]
    fn an_endpoint_may_ask_for_more_and_not_for_ever() {
        let after =
            |asked: i64| retry_after(DeliveryKind::ReplayCallback, 1, Some(Duration::seconds(asked)), |_| 0);
        assert_eq!(after(120), Some(Duration::seconds(120)));
        assert_eq!(after(1), Some(Duration::seconds(5)), "never sooner than by the schedule");
        assert_eq!(after(10_000_000), Some(Duration::DAY));
    }
}
