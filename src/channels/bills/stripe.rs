//! Stripe's itemised balance change report: quoted CSV, amounts in major units of each currency.
//!
//! What a customer paid in another currency than the account settles in stands there twice: as the customer's amount, which
//! is the one that we asked for, and as what it was settled for, which is none of ours. The fee is of the settlement, so
//! it then has a line of its own.

use std::io::{self, Read};

use csv::{Reader, ReaderBuilder, StringRecord};

use super::amounts::{Rest, currency, minor, places, wall};
use super::text::malformed;
use super::{BadStatement, Checked, Fault, ReadError, Window};
use crate::channels::{StatementKind, StatementLine};
use crate::money::Currency;

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
    /// The amount and the currency that the customer saw, where the report was asked for with them.
    customer_facing: Option<(usize, usize)>,
}

impl Columns {
    fn of(head: &StringRecord) -> Result<Self, BadStatement> {
        let look = |name: &str| head.iter().position(|known| known.trim_start_matches('\u{feff}') == name);
        let find = |name: &str| {
            look(name).ok_or_else(|| {
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
            customer_facing: look("customer_facing_amount").zip(look("customer_facing_currency")),
        })
    }

    /// The line of a record, and the one of its fee where that is of another currency.
    fn lines(
        &self,
        record: &StringRecord,
        number: u64,
        window: Window,
    ) -> Result<(StatementLine, Option<StatementLine>), BadStatement> {
        let cell = |place: usize| record.get(place).unwrap_or_default().trim();
        let settled_in = currency(cell(self.currency), number)?;
        let [gross, fee, net] =
            [self.gross, self.fee, self.net].map(|place| major(cell(place), settled_in, number));
        let (gross, fee, net) = (gross?, fee?, net?);
        if gross - fee != net {
            let detail = format!("line {number}: gross {gross} − fee {fee} is not net {net} (minor units)");
            return Err(BadStatement::new(Fault::WrongTotal, detail));
        }
        let (kind, our_id, channel_id) = match cell(self.category) {
            // Nothing that we asked for: a payment by an older way of theirs has its charge alone.
            "charge" if cell(self.payment_intent).is_empty() => {
                (StatementKind::Payment, self.payment_id, self.source)
            }
            "charge" => (StatementKind::Payment, self.payment_id, self.payment_intent),
            // A debit that the bank turned down days later went back, and is none of our refunds.
            "refund" | "charge_failure" => (StatementKind::Refund, self.refund_id, self.source),
            "refund_failure" => (StatementKind::RefundReversal, self.refund_id, self.source),
            // Fees, disputes, payouts to the bank: kept for the totals.
            _ => (StatementKind::Other, self.source, self.transaction),
        };
        // Checked here: the amount that the customer saw may take its place.
        if kind == StatementKind::Payment && gross < 0 {
            return Err(malformed(number, "a payment's gross is below zero"));
        }
        // Refunds and their reversals tell by their sign which way they went; so does their kind.
        let without_sign = |amount: i64| match kind {
            StatementKind::Refund | StatementKind::RefundReversal => amount.abs(),
            _ => amount,
        };
        let at = wall(cell(self.at), window);
        let line = StatementLine {
            kind,
            our_id: cell(our_id).to_owned(),
            channel_id: cell(channel_id).to_owned(),
            amount: without_sign(gross),
            currency: settled_in,
            at: at.ok_or_else(|| malformed(number, "created_utc is no time"))?,
            fee,
            is_final: true,
        };
        let told = self.customer_facing.map(|(amount, currency)| (cell(amount), cell(currency)));
        let Some((amount, code)) =
            told.filter(|_| kind != StatementKind::Other).filter(|told| *told != ("", ""))
        else {
            return Ok((line, None));
        };
        let paid_in = currency(code, number)?;
        let amount = without_sign(major(amount, paid_in, number)?);
        if paid_in == settled_in {
            return Ok((StatementLine { amount, ..line }, None));
        }
        let fee_line = (fee != 0).then(|| StatementLine {
            kind: StatementKind::Other,
            channel_id: cell(self.transaction).to_owned(),
            amount: 0,
            ..line.clone()
        });
        Ok((StatementLine { amount, currency: paid_in, fee: 0, ..line }, fee_line))
    }
}

/// Minor units of a decimal in major ones.
fn major(text: &str, currency: Currency, number: u64) -> Result<i64, BadStatement> {
    let amount = minor(text, places(currency), Rest::Refused);
    amount.ok_or_else(|| malformed(number, &format!("`{text}` is no amount of {currency}")))
}

pub(super) fn read<R: Read>(window: Window, source: R, take: &mut Checked<'_>) -> Result<(), ReadError> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(Bounded::of(source));
    let mut record = StringRecord::new();
    if !next(&mut reader, &mut record)? {
        return Err(BadStatement::new(Fault::Truncated, "it is empty, without even its head").into());
    }
    let columns = Columns::of(&record)?;
    while next(&mut reader, &mut record)? {
        let (line, fee) = columns.lines(&record, reader.position().line(), window)?;
        take(line)?;
        fee.map(&mut *take).transpose()?;
    }
    if reader.get_ref().is_in_a_line() {
        let detail = format!("it ends within line {}; expected a line's end", reader.position().line());
        return Err(BadStatement::new(Fault::Truncated, detail).into());
    }
    Ok(())
}

/// Bytes of a record at most, beside those that were read ahead: a quote that is never closed takes no more memory.
const MAX_RECORD: usize = 128 * 1024;

/// A source whose records end.
pub(super) struct Bounded<R> {
    source: R,
    since_record: usize,
    last: Option<u8>,
}

impl<R> Bounded<R> {
    pub(super) const fn of(source: R) -> Self {
        Self { source, since_record: 0, last: None }
    }

    /// Whether what was read so far does not end with a line.
    fn is_in_a_line(&self) -> bool {
        self.last.is_some_and(|byte| !matches!(byte, b'\n' | b'\r'))
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
        self.last = into[..count].last().copied().or(self.last);
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
