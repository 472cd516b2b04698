//! Lines of text in the encoding of their channel, one at a time.

use std::io::{BufRead, BufReader, Read};

use encoding_rs::{Encoding, GBK, UTF_8};

use super::{BadStatement, Fault, ReadError};

/// Bytes of a line at most: more is no statement.
const MAX_LINE: u64 = 64 * 1024;
/// Bytes that are asked for at once.
const BUFFER: usize = 64 * 1024;
/// What some programs put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a file.
pub(super) struct Lines<R> {
    source: BufReader<R>,
    encoding: &'static Encoding,
    bytes: Vec<u8>,
    /// The number of the line that was given last, from 1.
    pub(super) number: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn utf8(source: R) -> Self {
        Self::of(source, UTF_8)
    }

    pub(super) fn gbk(source: R) -> Self {
        Self::of(source, GBK)
    }

    fn of(source: R, encoding: &'static Encoding) -> Self {
        let source = BufReader::with_capacity(BUFFER, source);
        Self { source, encoding, bytes: Vec::new(), number: 0 }
    }

    /// The next line without its end, or nothing behind the last one. No byte of a character of GBK is a line's end.
    pub(super) fn next(&mut self) -> Result<Option<String>, ReadError> {
        self.bytes.clear();
        let read = (&mut self.source).take(MAX_LINE).read_until(b'\n', &mut self.bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.bytes.pop_if(|byte| *byte == b'\n').is_none() && self.bytes.len() as u64 >= MAX_LINE {
            let detail = format!("line {} is longer than {MAX_LINE} bytes", self.number);
            return Err(BadStatement::new(Fault::Malformed, detail).into());
        }
        self.bytes.pop_if(|byte| *byte == b'\r');
        let line = match self.bytes.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if self.number == 1 => rest,
            _ => &self.bytes,
        };
        let text = self.encoding.decode_without_bom_handling_and_without_replacement(line);
        match text {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(self.wrong_encoding().into()),
        }
    }

    /// Says that the line which was given last is not in the channel's encoding.
    pub(super) fn wrong_encoding(&self) -> BadStatement {
        let detail = format!("line {} is not {}", self.number, self.encoding.name());
        BadStatement::new(Fault::Encoding, detail)
    }

    /// Whether the line which was given last is UTF-8 beyond ASCII: few texts of GBK are.
    pub(super) fn looks_like_utf8(&self) -> bool {
        !self.bytes.is_ascii() && std::str::from_utf8(&self.bytes).is_ok()
    }
}

/// A line that cannot be read.
pub(super) fn malformed(line: u64, what: &str) -> BadStatement {
    BadStatement::new(Fault::Malformed, format!("line {line}: {what}"))
}
