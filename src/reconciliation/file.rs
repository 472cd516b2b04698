//! A kept file as what can be read from any place, by code that does not wait: the formats' readers.

use std::io::{self, Read, Seek, SeekFrom};

use tokio::runtime::Handle;

use super::store;
use super::upload::PART;
use crate::app::App;
use crate::infra::db::DbError;

/// A file of an upload. Reads block, so it belongs into a thread that may.
pub(super) struct StoredFile {
    app: App,
    runtime: Handle,
    file_id: String,
    size: u64,
    at: u64,
    /// The piece that was read last, by its number.
    piece: Option<(i32, Vec<u8>)>,
}

impl StoredFile {
    pub(super) async fn open(app: &App, file_id: &str) -> Result<Self, DbError> {
        let size = store::measure(&mut app.db.conn().await?, file_id).await?;
        let (app, runtime, file_id) = (app.clone(), Handle::current(), file_id.to_owned());
        Ok(Self { app, runtime, file_id, size, at: 0, piece: None })
    }

    fn piece(&mut self, number: i32) -> io::Result<&[u8]> {
        if self.piece.as_ref().is_none_or(|(known, _)| *known != number) {
            let found = self.runtime.block_on(async {
                let mut conn = self.app.db.conn().await?;
                store::find_part(&mut conn, &self.file_id, number).await
            });
            let bytes = found.map_err(io::Error::other)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.piece = Some((number, bytes));
        }
        Ok(self.piece.as_ref().map(|(_, bytes)| bytes.as_slice()).unwrap_or_default())
    }
}

impl Read for StoredFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size {
            return Ok(0);
        }
        let number = i32::try_from(self.at / PART as u64).map_err(io::Error::other)?;
        let offset = usize::try_from(self.at % PART as u64).map_err(io::Error::other)?;
        let rest = self.piece(number)?.get(offset..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for StoredFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.size, by),
            SeekFrom::Current(by) => (self.at, by),
        };
        self.at = from.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
