//! Where a statement's bytes come from, and whether they came.

use std::io::{self, Read, Seek, SeekFrom};

/// What is not there, or makes no sense, is so for good.
pub(super) const BROKEN: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput, io::ErrorKind::UnexpectedEof];

/// A source that remembers whether it could not be reached: whatever else goes wrong then is the fault of its bytes.
#[derive(Debug)]
pub(super) struct Watched<R> {
    source: R,
    is_away: bool,
}

impl<R> Watched<R> {
    pub(super) const fn new(source: R) -> Self {
        Self { source, is_away: false }
    }

    /// Whether it could not be reached.
    pub(super) const fn is_away(&self) -> bool {
        self.is_away
    }

    fn note<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        // Whoever reads goes on after an interruption.
        let is_away = |kind| kind != io::ErrorKind::Interrupted && !BROKEN.contains(&kind);
        self.is_away |= outcome.as_ref().is_err_and(|error| is_away(error.kind()));
        outcome
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into);
        self.note(read)
    }
}

impl<R: Seek> Seek for Watched<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let sought = self.source.seek(to);
        self.note(sought)
    }
}
