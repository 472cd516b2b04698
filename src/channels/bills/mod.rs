//! Statements as files: what channels let a merchant download by hand, read line by line in constant memory.
//!
//! Always true: a file is read to its end or refused with a word for what is wrong ([`Fault`]) and the place; an amount
//! is never a float; free text (a title with commas and back-ticks) cannot move a column that counts. Whoever reads one
//! must use nothing of it before [`read`] has said that it adds up: what a file says of itself stands at its end.
//!
//! | format | encoding | day | what it must add up to |
//! |---|---|---|---|
//! | `sandbox` | UTF-8 | UTC | `#end` with the number of lines and the sum of their amounts |
//! | `alipay` | GBK, also in its zip | +08:00 | the line that ends the list, and the totals behind it |
//! | `wechat` | UTF-8 | +08:00 | its summary |
//! | `stripe` | UTF-8 | UTC | each line: gross − fee = net, and the last one ends |

use std::io::{self, Read};
use std::ops::ControlFlow;

use time::{Date, Duration, OffsetDateTime, PrimitiveDateTime, UtcOffset};

use super::text::{MAX_MESSAGE, MAX_NUMBER};
use super::{StatementKind, StatementLine};
use crate::infra::text::cut;
use crate::infra::words::words;
use crate::money::MAX_MINOR;

mod alipay;
mod amounts;
mod sandbox;
mod source;
mod stripe;
mod table;
mod text;
mod wechat;
mod zipped;

pub use zipped::Seekable;

use source::Watched;

words! {
    /// What a statement file looks like.
    pub enum Format {
        /// The sandbox's own CSV.
        Sandbox = "sandbox",
        /// Alipay's list of transactions (`trade`), as CSV or in its zip.
        Alipay = "alipay",
        /// WeChat Pay's trade bill (`ALL`).
        Wechat = "wechat",
        /// Stripe's itemised balance change report.
        Stripe = "stripe",
    }
}

/// Bytes of a file at most, also of what a zip unpacks to: forty million lines.
pub const MAX_FILE: u64 = 8 << 30;

words! {
    /// What is wrong with a statement.
    pub enum Fault {
        /// The channel has not made it yet.
        Late = "LATE",
        /// Nothing stands in it although something moved here on that day.
        Empty = "EMPTY",
        /// It ends before its end.
        Truncated = "TRUNCATED",
        /// It speaks of another day.
        OtherDay = "OTHER_DAY",
        /// It is not what this channel sends.
        OtherChannel = "OTHER_CHANNEL",
        /// Somebody else's: nothing that it lists is known here, although something was paid here on that day.
        OtherAccount = "OTHER_ACCOUNT",
        /// A currency that does not exist, that this channel does not have, or that none of its payments had here.
        Currency = "CURRENCY",
        /// Its bytes are not the text that this channel writes.
        Encoding = "ENCODING",
        /// Its lines do not add up to what it says of itself.
        WrongTotal = "WRONG_TOTAL",
        /// It is not the file that its checksum was made of.
        Checksum = "CHECKSUM",
        /// A line that cannot be read.
        Malformed = "MALFORMED",
    }
}

/// Why a statement is not used. Nothing of it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}: {detail}")]
pub struct BadStatement {
    /// What is wrong, for programs.
    pub fault: Fault,
    /// Where, and what was expected, for people.
    pub detail: String,
}

impl BadStatement {
    /// A statement with this fault. What the detail repeats of it may be anything: it is cut to what can be kept and shown.
    pub fn new(fault: Fault, detail: impl AsRef<str>) -> Self {
        Self { fault, detail: cut(detail.as_ref(), MAX_MESSAGE) }
    }
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The statement is at fault.
    #[error(transparent)]
    Bad(#[from] BadStatement),
    /// The bytes could not be had: the same may be tried again.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// Whoever takes the lines has enough.
    #[error("reading was stopped")]
    Stopped,
}

/// Takes the lines, one after the other.
pub type Take<'a> = dyn FnMut(StatementLine) -> ControlFlow<()> + 'a;

/// How far from its day a line may be booked: channels close their books a little early or late.
pub const EDGE: Duration = Duration::minutes(10);

impl Format {
    /// The format in which a channel of this name gives its statements.
    #[must_use]
    pub fn of_channel(channel: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.as_str() == channel)
    }

    /// Where the channel's days begin and end.
    #[must_use]
    pub const fn offset(self) -> UtcOffset {
        match self {
            Self::Sandbox | Self::Stripe => UtcOffset::UTC,
            Self::Alipay | Self::Wechat => match UtcOffset::from_hms(8, 0, 0) {
                Ok(beijing) => beijing,
                Err(_) => UtcOffset::UTC,
            },
        }
    }
}

/// Reads a statement to its end and hands its lines out as they come. Only `Ok` says that it adds up.
///
/// # Errors
/// See [`ReadError`].
pub fn read<R: Read>(format: Format, day: Date, source: R, take: &mut Take<'_>) -> Result<(), ReadError> {
    let window = Window { day, offset: format.offset() };
    let mut take = |line: StatementLine| -> Result<(), ReadError> {
        window.check(line.at)?;
        check_line(&line)?;
        match take(line) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ReadError::Stopped),
        }
    };
    match format {
        Format::Sandbox => sandbox::read(window, source, &mut take),
        Format::Alipay => alipay::read(window, source, &mut take),
        Format::Wechat => wechat::read(window, source, &mut take),
        Format::Stripe => stripe::read(window, source, &mut take),
    }
}

/// The same for what may be in a zip.
///
/// # Errors
/// See [`ReadError`].
pub fn read_file<R: Seekable>(
    format: Format,
    day: Date,
    source: R,
    take: &mut Take<'_>,
) -> Result<(), ReadError> {
    let mut source = Watched::new(source);
    let outcome = match zipped::is_zip(&mut source) {
        Ok(true) => zipped::read(&mut source, |member| read(format, day, member, take)),
        Ok(false) => read(format, day, &mut source, take),
        Err(error) => Err(error.into()),
    };
    outcome.map_err(|error| match error {
        // Its bytes are here and are no file: they are the same the next time.
        ReadError::Io(error) if !source.is_away() => {
            BadStatement::new(Fault::Malformed, format!("its bytes cannot be read ({error})")).into()
        }
        error => error,
    })
}

/// What no line may have, wherever it comes from: it could not be kept, or not be added up.
///
/// # Errors
/// When the line is none that can be.
pub fn check_line(line: &StatementLine) -> Result<(), BadStatement> {
    let StatementLine { kind, our_id, channel_id, amount, fee, .. } = line;
    let wrong = |what: &str| {
        let detail = format!("the line of {:?} (ours {:?}): {what}", short(channel_id), short(our_id));
        Err(BadStatement::new(Fault::Malformed, detail))
    };
    if [our_id, channel_id].iter().any(|id| id.len() > MAX_NUMBER || id.contains(char::is_control)) {
        return wrong("expected numbers of at most 128 bytes that can be shown");
    }
    if *kind == StatementKind::Payment && channel_id.is_empty() {
        return wrong("expected the channel's number of the payment");
    }
    // Only what is nobody's movement may go out: a fee, a payout to the bank.
    let least = if *kind == StatementKind::Other { -MAX_MINOR } else { 0 };
    if !(least..=MAX_MINOR).contains(amount) || !(-MAX_MINOR..=MAX_MINOR).contains(fee) {
        return wrong("expected an amount and a fee of at most 1,000,000,000,000 minor units");
    }
    Ok(())
}

fn short(id: &str) -> String {
    id.chars().take(MAX_NUMBER).filter(|letter| !letter.is_control()).collect()
}

/// Takes a line that is of the right day.
type Checked<'a> = dyn FnMut(StatementLine) -> Result<(), ReadError> + 'a;

/// The day that a statement must be of.
#[derive(Clone, Copy, Debug)]
struct Window {
    day: Date,
    offset: UtcOffset,
}

impl Window {
    fn check(self, at: OffsetDateTime) -> Result<(), BadStatement> {
        let begins_at = self.day.midnight().assume_offset(self.offset);
        if (begins_at - EDGE..begins_at + Duration::DAY + EDGE).contains(&at) {
            return Ok(());
        }
        Err(BadStatement::new(Fault::OtherDay, format!("a line of {at}; expected the day {}", self.day)))
    }

    /// The instant of a wall clock of the channel's, if there is one: the first and the last hours of all years have none.
    fn instant(self, wall: PrimitiveDateTime) -> Option<OffsetDateTime> {
        wall.assume_offset(self.offset).checked_to_offset(UtcOffset::UTC)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
