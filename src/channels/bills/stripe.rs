//! Stripe's itemised balance change report: quoted CSV, amounts in major units of each currency.

use std::io::{self, Read};

use csv::{Reader, ReaderBuilder, StringRecord};

use super::amounts::{Rest, currency, minor, places, wall};
use super::text::malformed;
use super::{BadStatement, Checked, Fault, ReadError, Window};
use crate::channels::{StatementKind, StatementLine};

/// The columns that count; the report may have others.
struct Columns {
    transaction: usize,
    at: usize,
    currency: usize,
    gross: usize,
    fee: usize,
    net: usize,
    category: usize,
    source: usize,
    payment_intent: usize,
    payment_id: usize,
    refund_id: usize,
}

impl Columns {
    fn of(head: &StringRecord) -> Result<Self, BadStatement> {
        let find = |name: &str| {
            head.iter().position(|known| known.trim_start_matches('\u{feff}') == name).ok_or_else(|| {
                let detail =
                    format!("it has no column {name}; expected balance_change_from_activity.itemized");
                BadStatement::new(Fault::OtherChannel, detail)
            })
        };
        Ok(Self {
            transaction: find("balance_transaction_id")?,
            at: find("created_utc")?,
            currency: find("currency")?,
            gross: find("gross")?,
            fee: find("fee")?,
            net: find("net")?,
            category: find("reporting_category")?,
            source: find("source_id")?,
            payment_intent: find("payment_intent_id")?,
            payment_id: find("payment_metadata[payment_id]")?,
            refund_id: find("refund_metadata[refund_id]")?,
        })
    }

    fn line(
        &self,
        record: &StringRecord,
        number: u64,
        window: Window,
    ) -> Result<StatementLine, BadStatement> {
        let wrong = |what: &str| malformed(number, what);
        let cell = |place: usize| record.get(place).unwrap_or_default().trim();
        let currency = currency(cell(self.currency), number)?;
        let major = |place: usize| {
            let amount = minor(cell(place), places(currency), Rest::Refused);
            amount.ok_or_else(|| wrong(&format!("`{}` is no amount of {currency}", cell(place))))
        };
        let (gross, fee, net) = (major(self.gross)?, major(self.fee)?, major(self.net)?);
        if gross - fee != net {
            let detail = format!("line {number}: gross {gross} − fee {fee} is not net {net} (minor units)");
            return Err(BadStatement::new(Fault::WrongTotal, detail));
        }
        let (kind, our_id, channel_id) = match cell(self.category) {
            "charge" => (StatementKind::Payment, self.payment_id, self.payment_intent),
            "refund" => (StatementKind::Refund, self.refund_id, self.source),
            "refund_failure" => (StatementKind::RefundReversal, self.refund_id, self.source),
            // Fees, disputes, payouts to the bank: kept for the totals.
            _ => (StatementKind::Other, self.source, self.transaction),
        };
        Ok(StatementLine {
            kind,
            our_id: cell(our_id).to_owned(),
            channel_id: cell(channel_id).to_owned(),
            amount: if kind == StatementKind::Other { gross } else { gross.abs() },
            currency,
            at: wall(cell(self.at), window).ok_or_else(|| wrong("created_utc is no time"))?,
            fee,
            is_final: true,
        })
    }
}

pub(super) fn read<R: Read>(window: Window, source: R, take: &mut Checked<'_>) -> Result<(), ReadError> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(Bounded::of(source));
    let mut record = StringRecord::new();
    if !next(&mut reader, &mut record)? {
        return Err(BadStatement::new(Fault::Truncated, "it is empty, without even its head").into());
    }
    let columns = Columns::of(&record)?;
    while next(&mut reader, &mut record)? {
        take(columns.line(&record, reader.position().line(), window)?)?;
    }
    Ok(())
}

/// Bytes of a record at most, beside those that were read ahead: a quote that is never closed takes no more memory.
const MAX_RECORD: usize = 128 * 1024;

/// A source whose records end.
pub(super) struct Bounded<R> {
    source: R,
    since_record: usize,
}

impl<R> Bounded<R> {
    pub(super) const fn of(source: R) -> Self {
        Self { source, since_record: 0 }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.since_record > MAX_RECORD {
            let what = format!("a record is longer than {MAX_RECORD} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let count = self.source.read(into)?;
        self.since_record += count;
        Ok(count)
    }
}

/// Reads the next record; `false` behind the last one.
pub(super) fn next<R: Read>(
    reader: &mut Reader<Bounded<R>>,
    record: &mut StringRecord,
) -> Result<bool, ReadError> {
    reader.get_mut().since_record = 0;
    let error = match reader.read_record(record) {
        Ok(is_there) => return Ok(is_there),
        Err(error) => error,
    };
    let line = error.position().map_or(0, csv::Position::line);
    Err(match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        csv::ErrorKind::Utf8 { .. } => {
            BadStatement::new(Fault::Encoding, format!("line {line} is not UTF-8")).into()
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let detail = format!("line {line} has {len} cells, expected {expected_len}");
            BadStatement::new(Fault::Truncated, detail).into()
        }
        other => malformed(line, &format!("{other:?}")).into(),
    })
}
