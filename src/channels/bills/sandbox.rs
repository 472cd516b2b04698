//! The sandbox's own CSV: minor units, RFC 3339, and an end that says what it adds up to.
//!
//! ```csv
//! #statement,sandbox,2026-11-20
//! kind,our_id,channel_id,amount,currency,at,fee
//! PAYMENT,po_…,txn_…,1990,CNY,2026-11-20T10:00:00Z,0
//! #end,1,1990
//! ```

use std::io::Read;

use csv::{ReaderBuilder, StringRecord};
use time::Date;
use time::OffsetDateTime;
use time::format_description::well_known::{Iso8601, Rfc3339};

use super::amounts::currency;
use super::stripe::{Bounded, next};
use super::text::malformed;
use super::{BadStatement, Checked, Fault, ReadError, Window};
use crate::channels::{StatementKind, StatementLine};

const COLUMNS: [&str; 7] = ["kind", "our_id", "channel_id", "amount", "currency", "at", "fee"];

pub(super) fn read<R: Read>(window: Window, source: R, take: &mut Checked<'_>) -> Result<(), ReadError> {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(Bounded::of(source));
    let mut record = StringRecord::new();
    next(&mut reader, &mut record)?;
    check_title(&record, window)?;
    if !next(&mut reader, &mut record)? || record.iter().ne(COLUMNS) {
        let detail = format!("expected the columns {}", COLUMNS.join(","));
        return Err(BadStatement::new(Fault::OtherChannel, detail).into());
    }
    let (mut lines, mut amount) = (0_i64, 0_i64);
    while next(&mut reader, &mut record)? {
        let number = reader.position().line();
        if record.get(0) == Some("#end") {
            return Ok(check(&record, lines, amount)?);
        }
        let line = line(&record, number)?;
        let more = line.amount;
        take(line)?;
        lines += 1;
        amount = amount.checked_add(more).ok_or_else(|| malformed(number, "the amounts have no sum"))?;
    }
    Err(BadStatement::new(Fault::Truncated, format!("it ends after {lines} lines without #end")).into())
}

fn check_title(record: &StringRecord, window: Window) -> Result<(), BadStatement> {
    if (record.get(0), record.get(1)) != (Some("#statement"), Some("sandbox")) {
        return Err(BadStatement::new(Fault::OtherChannel, "it does not begin with #statement,sandbox"));
    }
    let day = record.get(2).and_then(|day| Date::parse(day, &Iso8601::DATE).ok());
    if day == Some(window.day) {
        return Ok(());
    }
    let told = record.get(2).unwrap_or_default();
    Err(BadStatement::new(Fault::OtherDay, format!("it is of {told}; expected {}", window.day)))
}

fn line(record: &StringRecord, number: u64) -> Result<StatementLine, BadStatement> {
    let wrong = |what: &str| malformed(number, what);
    let cell = |place: usize| record.get(place).ok_or_else(|| wrong("it has too few cells"));
    let word = cell(0)?;
    let kind = StatementKind::ALL.iter().copied().find(|kind| kind.as_str() == word);
    let amount: i64 = cell(3)?.parse().map_err(|_| wrong("amount: expected minor units"))?;
    if amount < 1 {
        return Err(wrong("amount: expected at least 1"));
    }
    Ok(StatementLine {
        kind: kind.ok_or_else(|| wrong(&format!("`{word}` is no kind of movement")))?,
        our_id: cell(1)?.to_owned(),
        channel_id: cell(2)?.to_owned(),
        amount,
        currency: currency(cell(4)?, number)?,
        at: OffsetDateTime::parse(cell(5)?, &Rfc3339).map_err(|_| wrong("at: expected RFC 3339"))?,
        fee: cell(6)?.parse().map_err(|_| wrong("fee: expected minor units"))?,
        is_final: true,
    })
}

fn check(record: &StringRecord, lines: i64, amount: i64) -> Result<(), BadStatement> {
    let told = |place: usize| record.get(place).and_then(|cell| cell.parse::<i64>().ok());
    match (told(1), told(2)) {
        (Some(told_lines), Some(told_amount)) if (told_lines, told_amount) == (lines, amount) => Ok(()),
        (Some(told_lines), Some(told_amount)) => {
            let detail = format!(
                "#end says {told_lines} lines of {told_amount}; there are {lines}, which come to {amount}"
            );
            Err(BadStatement::new(Fault::WrongTotal, detail))
        }
        _ => Err(BadStatement::new(Fault::Truncated, "#end is cut off")),
    }
}
