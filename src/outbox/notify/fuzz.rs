//! What an endpoint may answer.

use proptest::prelude::*;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::{MAX_KEPT, asked_pause, kept};
use crate::infra::fuzz::cases;

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_pause_is_what_was_asked_and_lies_ahead(
        now in 0..4_000_000_000_i64,
        ahead in -1_000_000..1_000_000_i64,
        seconds in any::<u64>(),
    ) {
        let now = OffsetDateTime::from_unix_timestamp(now).expect("a time");
        let date = (now + time::Duration::seconds(ahead)).format(&Rfc2822).expect("a date").replace("+0000", "GMT");
        let expected = Some(time::Duration::seconds(ahead)).filter(|pause| pause.is_positive());
        prop_assert_eq!(asked_pause(&date, now), expected);
        let told = asked_pause(&seconds.to_string(), now);
        let fits = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        prop_assert_eq!(told, fits.map(|seconds| time::Duration::seconds(seconds.into())));
    }

    #[test]
    fn no_text_breaks_the_reader_of_pauses(
        text in prop_oneof![
            "\\PC{0,60}",
            "[+-]?[0-9]{0,30}",
            "([A-Z][a-z]{2}, )?[0-9]{1,3} (Jan|Feb|Dec|Abc) [0-9]{1,9} [0-9]{1,3}:[0-9]{1,3}(:[0-9]{1,3})? (GMT|[+-][0-9]{4}|Z)",
        ],
        now in -377_705_116_800..=253_402_300_799_i64,
    ) {
        let now = OffsetDateTime::from_unix_timestamp(now).expect("a time");
        prop_assert!(asked_pause(&text, now).is_none_or(time::Duration::is_positive));
    }

    #[test]
    fn what_is_kept_of_an_answer_can_be_kept(body in prop::collection::vec(any::<u8>(), 0..4_000)) {
        let text = kept(&body);
        prop_assert!(text.chars().count() <= MAX_KEPT && !text.chars().any(char::is_control));
    }
}
