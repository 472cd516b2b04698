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
/// The first of the two times.
const CREATED_AT: &str = "创建时间";
const LIST_ENDS: &str = "业务明细列表结束";
/// Commas too many at most, where they stand in several columns: a line with more is not guessed at.
const MOST_COMMAS: usize = 8;

struct List {
    trade_no: Column,
    out_trade_no: Column,
    kind: Column,
    columns: usize,
    /// What tells how many commas stand left of it, from left to right: the two times right behind the title, by the
    /// first of them, and each column of money.
    marks: Vec<usize>,
    created_at: usize,
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
            marks: columns.places(|name| name == CREATED_AT || name.ends_with(IN_YUAN)),
            created_at: place(CREATED_AT)?,
            amount: place("订单金额（元）")?,
            request_no: place("退款批次号/请求号")?,
            fee: place("服务费（元）")?,
            columns: columns.len(),
            currency: super::amounts::currency("CNY", 0)?,
        })
    }

    fn line(&self, text: &str, number: u64, window: Window) -> Result<StatementLine, BadStatement> {
        let wrong = |what: &str| malformed(number, what);
        let row = Row { list: self, cells: text.split(',').collect(), window };
        let Told { done_at, amount, request_no, fee } =
            row.told().ok_or_else(|| wrong("its cells cannot be told apart by the head"))?;
        let yuan = |cell: &str, rest| minor(cell, 2, rest).ok_or_else(|| wrong("an amount is not in yuan"));
        let trade_no = self.trade_no.of(&row.cells);
        let (kind, our_id, channel_id) = match self.kind.of(&row.cells) {
            "交易" => {
                (StatementKind::Payment, self.out_trade_no.of(&row.cells).to_owned(), trade_no.to_owned())
            }
            "退款" => {
                // A refund has no number of its own there; one that was not asked for through the interface has none of
                // ours either, and is told from others of its trade by when and how much.
                let channel_id = match request_no {
                    "" => format!("{trade_no}:{done_at}:{}", amount.trim_start_matches('-')),
                    _ => format!("{trade_no}:{request_no}"),
                };
                (StatementKind::Refund, request_no.to_owned(), channel_id)
            }
            other => return Err(wrong(&format!("`{other}` is no 业务类型"))),
        };
        let amount = yuan(amount, Rest::Refused)?;
        Ok(StatementLine {
            kind,
            our_id,
            channel_id,
            // Some exports write refunds as negative amounts, some do not. A payment below zero is none, and is refused.
            amount: if kind == StatementKind::Refund { amount.abs() } else { amount },
            currency: self.currency,
            at: wall(done_at, window).ok_or_else(|| wrong("完成时间 is no time"))?,
            // What it keeps stands there as what the merchant has less.
            fee: -yuan(fee, Rest::Rounded)?,
            is_final: true,
        })
    }
}

/// The cells that count behind the title.
struct Told<'a> {
    done_at: &'a str,
    amount: &'a str,
    request_no: &'a str,
    fee: &'a str,
}

/// How many commas may stand left of a mark: so many at least and at most. Not each number between them need fit.
struct Bounds {
    mark: usize,
    least: usize,
    most: usize,
}

/// A line in its cells. Commas in free text make more of them than there are columns.
struct Row<'a> {
    list: &'a List,
    cells: Vec<&'a str>,
    window: Window,
}

impl<'a> Row<'a> {
    /// The cell of a column that has so many commas left of it.
    fn cell(&self, place: usize, commas: usize) -> &'a str {
        self.cells.get(place + commas).copied().unwrap_or_default().trim()
    }

    /// Whether two times, or for a column of money an amount or a blank, are where a mark is with so many commas.
    fn fits(&self, mark: usize, commas: usize) -> bool {
        let is_time = |place| wall(self.cell(place, commas), self.window).is_some();
        if mark == self.list.created_at {
            return is_time(mark) && is_time(mark + 1);
        }
        let cell = self.cell(mark, commas);
        cell.is_empty() || minor(cell, 2, Rest::Rounded).is_some()
    }

    /// The cells that count, where all the commas that move them stand in the title. Others may stand in the remark,
    /// at the end. A title that looks like a whole line itself tells nothing.
    fn told(&self) -> Option<Told<'a>> {
        let &List { columns, created_at, amount, request_no, fee, .. } = self.list;
        let more = self.cells.len().checked_sub(columns)?;
        let fits_all = |commas: &usize| self.list.marks.iter().all(|mark| self.fits(*mark, *commas));
        let mut fitting = (0..=more).filter(fits_all);
        match (fitting.next(), fitting.next()) {
            (Some(commas), None) => Some(Told {
                done_at: self.cell(created_at + 1, commas),
                amount: self.cell(amount, commas),
                request_no: self.cell(request_no, commas),
                fee: self.cell(fee, commas),
            }),
            (None, _) if more <= MOST_COMMAS => self.told_all_the_same(more),
            _ => None,
        }
    }

    /// The cells that count, where commas stand in several columns, such as the shop's name or a coupon's: only where
    /// they are the same in whatever way the line can be read.
    fn told_all_the_same(&self, more: usize) -> Option<Told<'a>> {
        let &List { created_at, amount, request_no, fee, .. } = self.list;
        let bounds = self.bounds(more)?;
        let same = |place: usize, mark: usize| {
            let &Bounds { least, most, .. } = bounds.iter().find(|bounds| bounds.mark == mark)?;
            let cell = self.cell(place, least);
            let mut fitting = (least..=most).filter(|commas| self.fits(mark, *commas));
            fitting.all(|commas| self.cell(place, commas) == cell).then_some(cell)
        };
        // Any text may be a request number: only the marks around it tell its place, and that it has no comma.
        let before = bounds.iter().rfind(|bounds| bounds.mark < request_no)?;
        let behind = bounds.iter().find(|bounds| bounds.mark > request_no)?;
        if before.least != behind.most {
            return None;
        }
        same(created_at, created_at)?;
        Some(Told {
            done_at: same(created_at + 1, created_at)?,
            amount: same(amount, amount)?,
            request_no: self.cell(request_no, before.least),
            fee: same(fee, fee)?,
        })
    }

    /// The bounds of each mark in all ways to read the line; nothing where there is none. From left to right commas
    /// only become more. So a number that fits between the bounds of its mark belongs to a whole way: with the least
    /// left of it and the most right of it.
    fn bounds(&self, more: usize) -> Option<Vec<Bounds>> {
        let mut bounds = Vec::with_capacity(self.list.marks.len());
        let mut least = 0;
        for &mark in &self.list.marks {
            least = (least..=more).find(|commas| self.fits(mark, *commas))?;
            bounds.push(Bounds { mark, least, most: more });
        }
        let mut most = more;
        for bounds in bounds.iter_mut().rev() {
            most = (0..=most).rfind(|commas| self.fits(bounds.mark, *commas))?;
            bounds.most = most;
        }
        Some(bounds)
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
