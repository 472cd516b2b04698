//! Statements and amounts as channels, and strangers, may write them.

use std::io::{Cursor, Read, Write};

use encoding_rs::GBK;
use proptest::prelude::*;
use time::macros::date;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::amounts::{Rest, minor};
use super::tests::try_read;
use super::*;
use crate::infra::fuzz::cases;

mod files;

use files::{file, printed, said};

const DAY: Date = date!(2026 - 06 - 05);

fn zipped(content: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in [("业务明细(汇总).csv", &b"#"[..]), ("业务明细.csv", content)] {
        zip.start_file(name, SimpleFileOptions::default()).expect("a member");
        zip.write_all(content).expect("written");
    }
    zip.finish().expect("a zip").into_inner()
}

/// Minor units by the digits alone, in a width that nothing overflows.
fn by_digits(is_negative: bool, whole: &str, fraction: &str, places: usize, rest: Rest) -> Option<i64> {
    if whole.is_empty() {
        return None;
    }
    let padded = format!("{fraction}{}", "0".repeat(places + 1));
    let (kept, behind) = padded.split_at(places);
    let mut units: i128 = format!("{whole}{kept}").parse().ok()?;
    match rest {
        Rest::Refused if behind.bytes().any(|digit| digit != b'0') => return None,
        Rest::Rounded if behind.as_bytes()[0] >= b'5' => units += 1,
        Rest::Refused | Rest::Rounded => {}
    }
    let units = i64::try_from(units).ok().filter(|units| *units <= MAX_MINOR)?;
    Some(if is_negative { -units } else { units })
}

/// What gives the same bytes for ever, and counts them.
struct Endless<'a> {
    start: &'a [u8],
    pattern: &'a [u8],
    given: &'a mut usize,
}

impl Read for Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        for byte in into.iter_mut() {
            let behind = self.given.checked_sub(self.start.len());
            *byte =
                behind.map_or_else(|| self.start[*self.given], |at| self.pattern[at % self.pattern.len()]);
            *self.given += 1;
        }
        Ok(into.len())
    }
}

/// Where a statement says what it adds up to.
fn totals(format: Format, file: &[u8]) -> std::ops::Range<usize> {
    let find = |mark: &[u8]| file.windows(mark.len()).rposition(|window| window == mark).expect("a mark");
    match format {
        Format::Alipay => find(&GBK.encode("业务明细列表结束").0)..file.len(),
        // The two sums of what was ordered, and of what was asked back.
        Format::Wechat => {
            let last = find(b",`");
            file[..last].windows(2).rposition(|window| window == b",`").expect("a cell before it")..file.len()
        }
        Format::Sandbox | Format::Stripe => find(b"\n#end")..file.len(),
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn yuan_become_fen_and_no_cent_is_lost(
        sign in prop_oneof![Just(""), Just("-"), Just("+")],
        whole in "[0-9]{0,15}",
        fraction in prop::option::of("[0-9]{0,6}"),
        places in 0..=4_usize,
        is_rounded in any::<bool>(),
    ) {
        let rest = if is_rounded { Rest::Rounded } else { Rest::Refused };
        let part = fraction.as_ref().map_or(String::new(), |fraction| format!(".{fraction}"));
        let expected = by_digits(sign == "-", &whole, &fraction.unwrap_or_default(), places, rest);
        prop_assert_eq!(minor(&format!(" {sign}{whole}{part}\t"), places, rest), expected);
    }

    #[test]
    fn no_text_breaks_the_reader_of_amounts(text in prop_oneof!["\\PC{0,30}", "[-+0-9.,eE ]{0,24}"], places in 0..=4_usize) {
        let Some(units) = minor(&text, places, Rest::Refused) else { return Ok(()) };
        // Printed and read again it is the same.
        let one = 10_i64.pow(u32::try_from(places).expect("few"));
        let sign = if units < 0 { "-" } else { "" };
        let (whole, part) = (units.abs() / one, units.abs() % one);
        let printed = format!("{sign}{whole}.{part:0places$}");
        prop_assert_eq!(minor(&printed, places, Rest::Refused), Some(units));
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn what_a_channel_prints_is_read_as_it_was(format in prop::sample::select(Format::ALL), said in said()) {
        let file = file(format, &said);
        let told = try_read(format, DAY, &file).map(|lines| lines.iter().map(printed).collect::<Vec<_>>());
        let expected: Vec<_> = said.iter().map(|line| line.as_read(format)).collect();
        prop_assert_eq!(told, Ok(expected));
        if format == Format::Alipay {
            prop_assert_eq!(try_read(format, DAY, &zipped(&file)), try_read(format, DAY, &file));
        }
    }

    #[test]
    fn no_bent_statement_breaks_its_reader_and_what_adds_up_is_what_it_says(
        format in prop::sample::select(Format::ALL),
        said in said(),
        bends in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
        in_zip in any::<bool>(),
    ) {
        let whole = file(format, &said);
        let mut bent = if in_zip { zipped(&whole) } else { whole.clone() };
        for (place, byte, how) in bends {
            let place = place.index(bent.len().max(1));
            match how {
                0 if place < bent.len() => bent[place] = byte,
                1 => bent.insert(place.min(bent.len()), byte),
                2 => bent.truncate(place),
                _ if place < bent.len() => {
                    bent.remove(place);
                }
                _ => {}
            }
        }
        if let Ok(lines) = try_read(format, DAY, &bent) {
            prop_assert!(lines.iter().all(|line| check_line(line).is_ok()));
            // One line less, or one cent more, would not add up; Stripe's lines do each by themselves.
            let sum = |lines: &[StatementLine]| lines.iter().map(|line| line.amount).sum::<i64>();
            let is_told = bent != whole && format == Format::Sandbox && !in_zip;
            if is_told {
                let text = String::from_utf8_lossy(&bent);
                let Some((_, end)) = text.split_once("\n#end,") else { return Ok(()) };
                let mut told = end.lines().next().unwrap_or_default().split(',').map(|cell| cell.trim().trim_matches('"').parse::<i64>());
                prop_assert_eq!(told.next(), Some(Ok(i64::try_from(lines.len()).expect("few"))));
                prop_assert_eq!(told.next(), Some(Ok(sum(&lines))));
            }
        }
    }

    #[test]
    fn half_a_statement_is_none(format in prop::sample::select(&[Format::Sandbox, Format::Alipay, Format::Wechat][..]), said in said(), place in any::<prop::sample::Index>()) {
        let whole = file(format, &said);
        // Behind the line that ends the list Alipay only sums up.
        let end = match format {
            Format::Alipay => {
                let (mark, ..) = GBK.encode("业务明细列表结束");
                whole.windows(mark.len()).rposition(|window| window == &*mark).expect("an end")
            }
            _ => whole.len() - 6,
        };
        prop_assert!(try_read(format, DAY, &whole[..place.index(end)]).is_err());
    }

    #[test]
    fn of_a_report_that_says_nothing_of_its_end_whole_lines_are_read_and_no_part_of_one(said in said(), place in any::<prop::sample::Index>()) {
        let whole = file(Format::Stripe, &said);
        let part = &whole[..place.index(whole.len() + 1)];
        let told = try_read(Format::Stripe, DAY, part);
        let lines = part.iter().filter(|byte| **byte == b'\n').count();
        if lines > 0 && part.ends_with(b"\n") {
            let told = told.map(|lines| lines.iter().map(printed).collect::<Vec<_>>());
            let expected: Vec<_> = said[..lines - 1].iter().map(|line| line.as_read(Format::Stripe)).collect();
            prop_assert_eq!(told, Ok(expected));
        } else {
            prop_assert!(told.is_err(), "{}", String::from_utf8_lossy(part));
        }
    }

    #[test]
    fn a_total_that_was_bent_is_refused(
        format in prop::sample::select(&[Format::Sandbox, Format::Alipay, Format::Wechat][..]),
        said in said(),
        place in any::<prop::sample::Index>(),
        other in prop_oneof![Just(b'x'), Just(b'0'), Just(b'1'), Just(b'9')],
    ) {
        let mut bent = file(format, &said);
        let digits: Vec<usize> = totals(format, &bent).filter(|at| bent[*at].is_ascii_digit()).collect();
        let at = digits[place.index(digits.len())];
        prop_assume!(bent[at] != other);
        bent[at] = other;
        prop_assert!(try_read(format, DAY, &bent).is_err(), "{}", GBK.decode(&bent).0);
    }

    #[test]
    fn nothing_is_read_without_end(
        format in prop::sample::select(Format::ALL),
        said in said(),
        pattern in prop_oneof![Just(b"x".to_vec()), Just(b"\"".to_vec()), Just(b"\"x,".to_vec()), prop::collection::vec(b' '..=b'~', 1..9)],
        is_head_there in any::<bool>(),
    ) {
        let whole = file(format, &said);
        let at = whole.len() / 2;
        let start = if is_head_there { &whole[..at] } else { &[] };
        let mut given = 0;
        let source = Endless { start, pattern: &pattern, given: &mut given };
        let outcome = super::read(format, DAY, source, &mut |_| ControlFlow::Continue(()));
        prop_assert!(outcome.is_err());
        prop_assert!(given - start.len() <= 512 * 1024, "{} bytes were read", given);
    }

    #[test]
    fn no_bytes_break_any_reader(format in prop::sample::select(Format::ALL), bytes in prop::collection::vec(any::<u8>(), 0..400), is_zip in any::<bool>()) {
        let bytes = if is_zip { [&b"PK\x03\x04"[..], &bytes].concat() } else { bytes };
        prop_assert!(try_read(format, DAY, &bytes).is_err());
    }
}
