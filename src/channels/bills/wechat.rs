//! WeChat Pay's trade bill: UTF-8, amounts in yuan, a back-tick before each cell and no quotes.

use std::io::Read;

use super::amounts::{Rest, currency, minor, sum, wall};
use super::table::{Column, Columns};
use super::text::{Lines, malformed};
use super::{BadStatement, Checked, Fault, ReadError, Window};
use crate::channels::{StatementKind, StatementLine};

/// What parts two cells. A title may hold it too.
const BETWEEN: &str = ",`";
/// How refunds stand that moved nothing: refused, or not to be paid to where they were to go.
const NOT_MADE: [&str; 3] = ["FAIL", "CLOSED", "ABNORMAL"];
/// How the summary's head begins.
const SUMMARY: &str = "总交易单数";

struct Bill {
    at: Column,
    transaction_id: Column,
    out_trade_no: Column,
    state: Column,
    currency: Column,
    amount: Column,
    refund_id: Column,
    out_refund_no: Column,
    refund_amount: Column,
    refund_state: Column,
    fee: Column,
    columns: usize,
}

impl Bill {
    fn of(head: &str) -> Result<Self, BadStatement> {
        let columns = Columns::of(head.split(',').map(str::to_owned), "商品名称");
        let find = |name| columns.find(name);
        Ok(Self {
            at: find("交易时间")?,
            transaction_id: find("微信订单号")?,
            out_trade_no: find("商户订单号")?,
            state: find("交易状态")?,
            currency: find("货币种类")?,
            amount: find("订单金额")?,
            refund_id: find("微信退款单号")?,
            out_refund_no: find("商户退款单号")?,
            refund_amount: find("申请退款金额")?,
            refund_state: find("退款状态")?,
            fee: find("手续费")?,
            columns: columns.len(),
        })
    }

    fn is_refund(&self, cells: &[&str]) -> bool {
        self.state.of(cells) == "REFUND"
    }

    fn line(&self, cells: &[&str], number: u64, window: Window) -> Result<StatementLine, BadStatement> {
        let wrong = |what: &str| malformed(number, what);
        if cells.len() < self.columns {
            return Err(wrong(&format!("{} cells, expected {}", cells.len(), self.columns)));
        }
        let yuan = |column: Column| {
            minor(column.of(cells), 2, Rest::Refused).ok_or_else(|| wrong("an amount is not in yuan"))
        };
        let currency = currency(self.currency.of(cells), number)?;
        if currency.as_str() != "CNY" {
            let detail = format!("line {number}: {currency}; expected CNY, in which such a bill is");
            return Err(BadStatement::new(Fault::Currency, detail));
        }
        let (kind, our_id, channel_id, amount, is_final) = match self.state.of(cells) {
            "SUCCESS" => {
                (StatementKind::Payment, self.out_trade_no, self.transaction_id, yuan(self.amount)?, true)
            }
            "REFUND" => {
                // Listed on the day on which it was accepted, and never brought up to date.
                let state = self.refund_state.of(cells);
                // One of ours that was made is missing there, where it is listed as none.
                let is_none = NOT_MADE.contains(&state);
                let kind = if is_none { StatementKind::Other } else { StatementKind::Refund };
                (kind, self.out_refund_no, self.refund_id, yuan(self.refund_amount)?, state == "SUCCESS")
            }
            "REVOKED" => {
                (StatementKind::Other, self.out_trade_no, self.transaction_id, yuan(self.amount)?, true)
            }
            state => return Err(wrong(&format!("`{state}` is no 交易状态"))),
        };
        Ok(StatementLine {
            kind,
            our_id: our_id.of(cells).to_owned(),
            channel_id: channel_id.of(cells).to_owned(),
            amount,
            currency,
            at: wall(self.at.of(cells), window).ok_or_else(|| wrong("交易时间 is no time"))?,
            fee: minor(self.fee.of(cells), 2, Rest::Rounded).ok_or_else(|| wrong("手续费 is not in yuan"))?,
            is_final,
        })
    }
}

/// What the bill must add up to.
#[derive(Default)]
struct Totals {
    lines: i64,
    taken: i64,
    refunded: i64,
}

pub(super) fn read<R: Read>(window: Window, source: R, take: &mut Checked<'_>) -> Result<(), ReadError> {
    let mut lines = Lines::utf8(source);
    let head = lines.next()?.unwrap_or_default();
    if !head.starts_with("交易时间,") {
        let detail = "it does not begin with 交易时间; expected WeChat Pay's trade bill (ALL)";
        return Err(BadStatement::new(Fault::OtherChannel, detail).into());
    }
    let (bill, mut totals) = (Bill::of(&head)?, Totals::default());
    while let Some(text) = lines.next()? {
        if text.starts_with(SUMMARY) {
            let summary = lines.next()?.unwrap_or_default();
            return Ok(check(&totals, &text, &summary)?);
        }
        let cells = cells(&text, lines.number)?;
        let line = bill.line(&cells, lines.number, window)?;
        totals.lines += 1;
        // The totals are of what was asked for, made or not.
        let total = if bill.is_refund(&cells) { &mut totals.refunded } else { &mut totals.taken };
        *total = total
            .checked_add(line.amount)
            .ok_or_else(|| malformed(lines.number, "the amounts have no sum"))?;
        take(line)?;
    }
    let detail = format!("it ends after line {} without its summary ({SUMMARY})", lines.number);
    Err(BadStatement::new(Fault::Truncated, detail).into())
}

fn cells(text: &str, number: u64) -> Result<Vec<&str>, BadStatement> {
    let text =
        text.strip_prefix('`').ok_or_else(|| malformed(number, "no back-tick before its first cell"))?;
    Ok(text.split(BETWEEN).collect())
}

fn check(totals: &Totals, head: &str, summary: &str) -> Result<(), BadStatement> {
    let truncated = || BadStatement::new(Fault::Truncated, "its summary is cut off");
    let columns = Columns::of(head.split(',').map(str::to_owned), "");
    let cells: Vec<&str> = summary.strip_prefix('`').ok_or_else(truncated)?.split(BETWEEN).collect();
    if cells.len() < columns.len() {
        return Err(truncated());
    }
    let told = |name: &str, places| {
        let cell = columns.find(name)?.of(&cells);
        sum(cell, places, Rest::Refused).ok_or_else(truncated)
    };
    for (name, places, found) in
        [(SUMMARY, 0, totals.lines), ("订单总金额", 2, totals.taken), ("申请退款总金额", 2, totals.refunded)]
    {
        let told = told(name, places)?;
        if told != found {
            let detail = format!("{name} says {told}, and its lines come to {found}");
            return Err(BadStatement::new(Fault::WrongTotal, detail));
        }
    }
    Ok(())
}
