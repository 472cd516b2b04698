//! The member of a zip that holds the lines. Names in it are GBK, whatever the zip says of them.

use std::io::{self, Read, Seek, SeekFrom};

use encoding_rs::GBK;
use zip::ZipArchive;
use zip::result::ZipError;

use super::{BadStatement, Fault, MAX_FILE, ReadError, alipay};

/// What can be read from any place: a zip's table of contents is at its end.
pub trait Seekable: Read + Seek {}
impl<T: Read + Seek> Seekable for T {}

/// In the name of a member that only sums up.
const SUMMARY: &str = "汇总";
/// How a zip begins.
const MAGIC: &[u8] = b"PK\x03\x04";
/// How its end begins, and where the number of its files stands, in two bytes up to there.
const END: &[u8] = b"PK\x05\x06";
const COUNT_ENDS: usize = 12;
/// What stands before the end of one that has more files or bytes than that can say.
const ZIP64: &[u8] = b"PK\x06\x07";
/// Bytes in which both are looked for: a comment of up to 64 KiB may stand behind them.
const ENDING: u64 = 66 * 1024;
/// Files of a zip at most: the names of all of them are kept in memory to read one. No channel's has more than a few.
const MAX_FILES: u16 = 100;
/// Bytes that are looked at to see what a member says of itself.
const HEADING: u64 = 256;

pub(super) fn is_zip(source: &mut impl Seekable) -> io::Result<bool> {
    let mut head = Vec::new();
    source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(head == MAGIC)
}

/// Reads the member with the lines.
pub(super) fn read<R: Seekable>(
    mut source: R,
    member: impl FnOnce(&mut dyn Read) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    if is_too_large(&mut source)? {
        let detail = "its zip has more than 100 files or 4 GiB; expected a smaller one, or the list itself";
        return Err(BadStatement::new(Fault::Malformed, detail).into());
    }
    let mut archive = ZipArchive::new(source).map_err(wrong)?;
    let found = find(&mut archive)?;
    let mut unpacked = archive.by_index(found).map_err(wrong)?.take(MAX_FILE + 1);
    let read = member(&mut unpacked);
    if unpacked.limit() == 0 {
        let detail = format!("its list unpacks to more than {MAX_FILE} bytes");
        return Err(BadStatement::new(Fault::Malformed, detail).into());
    }
    read
}

fn is_too_large(source: &mut impl Seekable) -> io::Result<bool> {
    let mut ending = Vec::new();
    let end = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(end.saturating_sub(ENDING)))?;
    source.by_ref().take(ENDING).read_to_end(&mut ending)?;
    source.seek(SeekFrom::Start(0))?;
    let has_many =
        |end: &[u8]| matches!(end, [.., low, high] if u16::from_le_bytes([*low, *high]) > MAX_FILES);
    let mut places = ending.windows(COUNT_ENDS);
    Ok(places.any(|bytes| bytes.starts_with(ZIP64) || bytes.starts_with(END) && has_many(bytes)))
}

/// The one list in a zip; of several, the one that says of itself that it has the transactions.
fn find<R: Seekable>(archive: &mut ZipArchive<R>) -> Result<usize, ReadError> {
    let mut lists = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(wrong)?;
        let (name, ..) = GBK.decode(entry.name_raw());
        let is_utf8 = std::str::from_utf8(entry.name_raw()).is_ok_and(|name| name.contains(SUMMARY));
        if name.ends_with(".csv") && !name.contains(SUMMARY) && !is_utf8 {
            lists.push(index);
        }
    }
    if lists.len() > 1 {
        let mut of_transactions = Vec::new();
        for index in lists {
            let mut heading = Vec::new();
            let entry = archive.by_index(index).map_err(wrong)?;
            entry.take(HEADING).read_to_end(&mut heading)?;
            let (text, ..) = GBK.decode(&heading);
            if text.lines().next().is_some_and(|line| line.contains(alipay::TITLE)) {
                of_transactions.push(index);
            }
        }
        lists = of_transactions;
    }
    match lists[..] {
        [list] => Ok(list),
        [] => Err(other("its zip holds no list of transactions (….csv)")),
        _ => Err(other("its zip holds several lists of transactions; expected one")),
    }
}

fn other(detail: &str) -> ReadError {
    BadStatement::new(Fault::OtherChannel, detail).into()
}

fn wrong(error: ZipError) -> ReadError {
    match error {
        ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.into(),
        error => BadStatement::new(Fault::Truncated, format!("its zip cannot be opened ({error})")).into(),
    }
}
