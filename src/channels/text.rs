//! Texts and moments that come from channels: no longer than what is kept of them, and nothing in them that a database, a
//! log or a page stumbles over.

use time::{OffsetDateTime, UtcOffset};

use super::Refusal;
use crate::infra::text::cut;

/// Longest number of a trade, a refund, a payout or an event, in bytes.
pub(super) const MAX_NUMBER: usize = 128;
/// Longest link, in bytes: what browsers and QR codes take.
const MAX_LINK: usize = 2_048;
/// The first year in which a channel can have taken money.
const FIRST_YEAR: i32 = 2000;
/// Longest code of a refusal, in characters.
const MAX_CODE: usize = 64;
/// Longest message of a refusal, and longest word of what is wrong with a statement, in characters.
pub(super) const MAX_MESSAGE: usize = 500;

/// A number of the channel's, if it can be one.
pub(super) fn number(text: &str) -> Option<String> {
    plain(text, MAX_NUMBER)
}

/// A link, or the text of a QR code, if it can be one.
pub(super) fn link(text: &str) -> Option<String> {
    plain(text, MAX_LINK)
}

fn plain(text: &str, longest: usize) -> Option<String> {
    let is_plain = (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control);
    is_plain.then(|| text.to_owned())
}

/// A moment in UTC and in whole microseconds, as it is kept and told, if it can be one: those of a zero clock and those
/// that no calendar has are none.
pub(super) fn moment(at: OffsetDateTime) -> Option<OffsetDateTime> {
    let at = at.checked_to_offset(UtcOffset::UTC).filter(|at| FIRST_YEAR <= at.year())?;
    at.replace_microsecond(at.microsecond()).ok()
}

/// A final no is believed whatever words it comes in: what is too long for ours is cut off.
pub(super) fn refusal(code: &str, message: &str) -> Refusal {
    Refusal { code: cut(code, MAX_CODE), message: cut(message, MAX_MESSAGE) }
}
