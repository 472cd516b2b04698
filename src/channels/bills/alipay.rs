//! Alipay's list of transactions: GBK, amounts in yuan, TABs behind cells, no quotes, `#` before what is no line.

use std::io::Read;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Date, Duration};

use super::amounts::{Rest, minor, sum, wall};
use super::table::{Column, Columns};
use super::text::{Lines, malformed};
use super::{BadStatement, Checked, Fault, ReadError, Window};
use crate::channels::{StatementKind, StatementLine};
use crate::money::Currency;

/// What the file says of itself in its first line.
pub(super) const TITLE: &str = "业务明细查询";
/// The first column's name: the head of the list begins so.
const FIRST_COLUMN: &str = "支付宝交易号";
/// How the name of a column of money ends.
const IN_YUAN: &str = "（元）";
const LIST_ENDS: &str = "业务明细列表结束";

struct List {
    trade_no: Column,
    out_trade_no: Column,
    kind: Column,
    columns: usize,
    /// The two times right behind the title, which tell how many commas stand in it.
    created_at: usize,
    /// The columns of money, all of them behind the title.
    amounts: Vec<usize>,
    amount: usize,
    request_no: usize,
    fee: usize,
    currency: Currency,
}

impl List {
    fn of(head: &str) -> Result<Self, BadStatement> {
        let columns = Columns::of(head.split(',').map(str::to_owned), "");
        let place = |name| match columns.find(name)? {
            Column::FromStart(place) | Column::FromEnd(place) => Ok::<_, BadStatement>(place),
        };
        Ok(Self {
            trade_no: columns.find(FIRST_COLUMN)?,
            out_trade_no: columns.find("商户订单号")?,
            kind: columns.find("业务类型")?,
            created_at: place("创建时间")?,
            amounts: columns.places(|name| name.ends_with(IN_YUAN)),
            amount: place("订单金额（元）")?,
            request_no: place("退款批次号/请求号")?,
            fee: place("服务费（元）")?,
            columns: columns.len(),
            currency: super::amounts::currency("CNY", 0)?,
        })
    }

    /// How many commas stand in the title: behind it are two times, and an amount in each column of money. Others may stand
    /// in the remark, at the end. A title that looks like all of that itself tells nothing.
    fn commas_in_title(&self, cells: &[&str], window: Window) -> Option<usize> {
        let more = cells.len().checked_sub(self.columns)?;
        let is_time = |place: usize| cells.get(place).is_some_and(|cell| wall(cell, window).is_some());
        let is_amount = |place: usize| {
            cells
                .get(place)
                .is_some_and(|cell| cell.trim().is_empty() || minor(cell, 2, Rest::Rounded).is_some())
        };
        let mut fitting = (0..=more).filter(|commas| {
            is_time(self.created_at + commas)
                && is_time(self.created_at + 1 + commas)
                && self.amounts.iter().all(|place| is_amount(place + commas))
        });
        fitting.next().filter(|_| fitting.next().is_none())
    }

    fn line(&self, text: &str, number: u64, window: Window) -> Result<StatementLine, BadStatement> {
        let wrong = |what: &str| malformed(number, what);
        let cells: Vec<&str> = text.split(',').collect();
        let commas = self
            .commas_in_title(&cells, window)
            .ok_or_else(|| wrong("its cells cannot be told apart by the head"))?;
        let cell = |place: usize| cells.get(place + commas).copied().unwrap_or_default().trim();
        let yuan = |place, rest| minor(cell(place), 2, rest).ok_or_else(|| wrong("an amount is not in yuan"));
        let trade_no = self.trade_no.of(&cells);
        let (kind, our_id, channel_id) = match self.kind.of(&cells) {
            "交易" => {
                (StatementKind::Payment, self.out_trade_no.of(&cells).to_owned(), trade_no.to_owned())
            }
            "退款" => {
                // A refund has no number of its own there; one that was not asked for through the interface has none of
                // ours either, and is told from others of its trade by when and how much.
                let (request_no, at, amount) =
                    (cell(self.request_no), cell(self.created_at + 1), cell(self.amount));
                let channel_id = match request_no {
                    "" => format!("{trade_no}:{at}:{}", amount.trim_start_matches('-')),
                    _ => format!("{trade_no}:{request_no}"),
                };
                (StatementKind::Refund, request_no.to_owned(), channel_id)
            }
            other => return Err(wrong(&format!("`{other}` is no 业务类型"))),
        };
        Ok(StatementLine {
            kind,
            our_id,
            channel_id,
            // Some exports write refunds as negative amounts, some do not.
            amount: yuan(self.amount, Rest::Refused)?.abs(),
            currency: self.currency,
            at: wall(cell(self.created_at + 1), window).ok_or_else(|| wrong("完成时间 is no time"))?,
            // What it keeps stands there as what the merchant has less.
            fee: -yuan(self.fee, Rest::Rounded)?,
            is_final: true,
        })
    }
}

pub(super) fn read<R: Read>(window: Window, source: R, take: &mut Checked<'_>) -> Result<(), ReadError> {
    let mut lines = Lines::gbk(source);
    let title = lines.next()?.unwrap_or_default();
    if lines.looks_like_utf8() {
        return Err(lines.wrong_encoding().into());
    }
    if !title.starts_with('#') || !title.contains(TITLE) {
        let detail = format!("it does not begin with #…{TITLE}; expected Alipay's bill of the type trade");
        return Err(BadStatement::new(Fault::OtherChannel, detail).into());
    }
    let (mut list, mut payments, mut refunds) = (None, Total::default(), Total::default());
    while let Some(text) = lines.next()? {
        // A title may say so too, in a line that begins with a number.
        if text.starts_with('#') && text.contains(LIST_ENDS) {
            return check_totals(&mut lines, payments, refunds);
        }
        if text.starts_with('#') {
            check_day(&text, window)?;
        } else if let Some(list) = &list {
            let line = List::line(list, &text, lines.number, window)?;
            let total = if line.kind == StatementKind::Refund { &mut refunds } else { &mut payments };
            total.add(line.amount).ok_or_else(|| malformed(lines.number, "the amounts have no sum"))?;
            take(line)?;
        } else {
            list = Some(List::of(&text)?);
        }
    }
    let detail = format!("it ends after line {} without the line that ends its list", lines.number);
    Err(BadStatement::new(Fault::Truncated, detail).into())
}

const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]年[month]月[day]日");

/// `#起始日期：[2026年06月05日 00:00:00]   终止日期：[2026年06月06日 00:00:00]`
fn check_day(text: &str, window: Window) -> Result<(), BadStatement> {
    let mut days = text.split('[').skip(1).filter_map(|rest| {
        let (day, _) = rest.split_once(' ')?;
        Date::parse(day, DAY).ok()
    });
    let (Some(first), Some(last)) = (days.next(), days.next()) else { return Ok(()) };
    if first == window.day && (last == first || last == first + Duration::DAY) {
        return Ok(());
    }
    Err(BadStatement::new(Fault::OtherDay, format!("it is of {first} to {last}; expected {}", window.day)))
}

/// So many lines, and what they come to.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    lines: i64,
    amount: i64,
}

impl Total {
    /// Nothing where they have no sum.
    fn add(&mut self, amount: i64) -> Option<()> {
        self.lines += 1;
        self.amount = self.amount.checked_add(amount)?;
        Some(())
    }

    /// `#交易合计：2笔，订单金额共3.00元，…`: the number must be right, and the order amount where it is told.
    fn check(self, text: &str) -> Result<(), BadStatement> {
        let number = |from: &str, to: &str| {
            let (_, rest) = text.split_once(from)?;
            Some(rest.split_once(to)?.0.trim())
        };
        // What is told and cannot be read fits nothing.
        let lines = number("合计：", "笔").map(|lines| lines.parse::<i64>().ok());
        let amount = number("订单金额共", "元").map(|yuan| sum(yuan, 2, Rest::Refused).map(i64::abs));
        let fits = |told: Option<Option<i64>>, found: i64| told.is_none_or(|told| told == Some(found));
        if fits(lines, self.lines) && fits(amount, self.amount) {
            return Ok(());
        }
        let Self { lines, amount } = self;
        let detail = format!("{}: its lines are {lines} and come to {amount} fen", text.trim_matches('#'));
        Err(BadStatement::new(Fault::WrongTotal, detail))
    }
}

fn check_totals<R: Read>(lines: &mut Lines<R>, payments: Total, refunds: Total) -> Result<(), ReadError> {
    while let Some(text) = lines.next()? {
        match () {
            () if text.starts_with("#交易合计") => payments.check(&text)?,
            () if text.starts_with("#退款合计") => refunds.check(&text)?,
            () => {}
        }
    }
    Ok(())
}
