//! The member of a zip that holds the lines. Names in it are GBK, whatever the zip says of them.

use std::io::{self, Read, Seek, SeekFrom};

use encoding_rs::GBK;
use zip::ZipArchive;
use zip::result::ZipError;

use super::{BadStatement, Fault, ReadError};

/// What can be read from any place: a zip's table of contents is at its end.
pub trait Seekable: Read + Seek {}
impl<T: Read + Seek> Seekable for T {}

/// In the name of the member that only sums up.
const SUMMARY: &str = "汇总";
/// How a zip begins.
const MAGIC: &[u8] = b"PK\x03\x04";

pub(super) fn is_zip(source: &mut impl Seekable) -> io::Result<bool> {
    let mut head = Vec::new();
    source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(head == MAGIC)
}

/// Reads the member with the lines.
pub(super) fn read<R: Seekable>(
    source: R,
    member: impl FnOnce(&mut dyn Read) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut archive = ZipArchive::new(source).map_err(wrong)?;
    let mut found = None;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(wrong)?;
        let (name, ..) = GBK.decode(entry.name_raw());
        let is_utf8 = std::str::from_utf8(entry.name_raw()).is_ok_and(|name| name.contains(SUMMARY));
        if name.ends_with(".csv") && !name.contains(SUMMARY) && !is_utf8 {
            found = Some(index);
        }
    }
    let missing = || BadStatement::new(Fault::OtherChannel, "its zip holds no list of transactions (….csv)");
    let mut entry = archive.by_index(found.ok_or_else(missing)?).map_err(wrong)?;
    member(&mut entry)
}

fn wrong(error: ZipError) -> ReadError {
    match error {
        ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.into(),
        error => BadStatement::new(Fault::Truncated, format!("its zip cannot be opened ({error})")).into(),
    }
}
