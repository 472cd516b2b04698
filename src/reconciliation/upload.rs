//! A statement that an operator brings: kept piece by piece as it comes, and read by the workers once it is whole.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;

use futures_util::{Stream, StreamExt};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use time::Date;

use super::begin::{Contents, Day, Wish, begin_day};
use super::error::ReconciliationError;
use super::file::StoredFile;
use super::find;
use super::model::Reconciliation;
use super::store::{self, NewFile};
use crate::admin_log::Entry;
use crate::app::App;
use crate::channels::bills::{self, Format, ReadError};
use crate::infra::crash::effect;

/// Bytes of a piece, but of the last one.
pub(super) const PART: usize = 256 * 1024;

/// What an upload is.
#[derive(Clone, Debug)]
pub struct NewUpload {
    /// Whose statement.
    pub channel: String,
    /// Of which day of the channel's.
    pub day: Date,
    /// What it looks like.
    pub format: Format,
    /// What its channel says of it: SHA-1 (WeChat Pay) or SHA-256 of its bytes, in hex.
    pub checksum: Option<String>,
    /// Whether it may have nothing of ours although something moved here: a person says that the channel has nothing of it.
    pub accepts_empty: bool,
}

/// As the admin log tells of it.
impl fmt::Display for NewUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accepted = if self.accepts_empty { ", accept_empty" } else { "" };
        write!(f, "{} {}{accepted}", self.channel, self.day)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Uploaded {
    /// The day that it is compared with.
    pub reconciliation: Reconciliation,
    /// Bytes that came.
    pub bytes: u64,
    /// Their SHA-256 in hex.
    pub sha256: String,
}

/// Takes an upload in and begins its day with it. Dropped on the way, it leaves pieces that nobody reads, which are
/// forgotten in time.
///
/// # Errors
/// [`ReconciliationError::UploadIncomplete`], [`ReconciliationError::UploadTooLarge`],
/// [`ReconciliationError::Checksum`], [`ReconciliationError::UnknownChannel`], [`ReconciliationError::Statement`]:
/// nothing was begun.
pub async fn upload<B, E>(
    app: &App,
    new: &NewUpload,
    bytes: impl Stream<Item = Result<B, E>>,
    entry: Option<Entry>,
) -> Result<Uploaded, ReconciliationError>
where
    B: AsRef<[u8]>,
    E: fmt::Display,
{
    // Statements also come of channels that nobody is called at from here, and of nothing else.
    if app.channels.get(&new.channel).is_none() && Format::of_channel(&new.channel).is_none() {
        return Err(ReconciliationError::UnknownChannel(new.channel.clone()));
    }
    let day = Day::of(new.day, new.format.offset());
    let mut file = Keeping::new(app);
    let mut bytes = pin!(bytes);
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| ReconciliationError::UploadIncomplete(error.to_string()))?;
        file.add(piece.as_ref()).await?;
    }
    let kept = file.end().await?;
    if new.checksum.as_ref().is_some_and(|told| !kept.fits(told)) {
        return Err(ReconciliationError::Checksum);
    }
    let (format, accepts_empty) = (new.format, new.accepts_empty);
    let file = NewFile { format, file_id: &kept.file_id, sha256: &kept.sha256, accepts_empty };
    let wish = Wish::ByFile { file, is_checked: false };
    let id = begin_day(app, &new.channel, day, wish, entry).await?;
    Ok(Uploaded { reconciliation: find::find(app, &id).await?, bytes: kept.bytes, sha256: kept.sha256 })
}

/// Reads a file to its end, and says what is wrong with it as the statement of a day.
pub(super) async fn check_wholly(
    app: &App,
    channel: &str,
    day: Day,
    new: NewFile<'_>,
) -> Result<(), ReconciliationError> {
    let file = StoredFile::open(app, new.file_id).await?;
    let (format, date, may_be_empty) = (new.format, day.day, new.accepts_empty);
    let reading = tokio::task::spawn_blocking(move || {
        let mut contents = Contents { may_be_empty, ..Contents::default() };
        let mut take = |line| {
            contents.add(line);
            ControlFlow::Continue(())
        };
        bills::read_file(format, date, file, &mut take).map(|()| contents)
    });
    let read = reading.await.map_err(|error| ReconciliationError::UploadIncomplete(error.to_string()))?;
    let contents = read.map_err(|error| match error {
        ReadError::Bad(bad) => ReconciliationError::Statement(bad),
        error => ReconciliationError::UploadIncomplete(error.to_string()),
    })?;
    match day.fault_of(app, channel, &contents).await? {
        Some(bad) => Err(ReconciliationError::Statement(bad)),
        None => Ok(()),
    }
}

/// A file that is whole.
struct Kept {
    file_id: String,
    bytes: u64,
    sha1: String,
    sha256: String,
}

impl Kept {
    fn fits(&self, told: &str) -> bool {
        [&self.sha1, &self.sha256].into_iter().any(|own| own.eq_ignore_ascii_case(told.trim()))
    }
}

/// A file that is coming in.
struct Keeping<'a> {
    app: &'a App,
    file_id: String,
    part: i32,
    pending: Vec<u8>,
    bytes: u64,
    sha1: Context,
    sha256: Context,
}

impl<'a> Keeping<'a> {
    fn new(app: &'a App) -> Self {
        Self {
            app,
            file_id: app.ids.statement_file(),
            part: 0,
            pending: Vec::with_capacity(PART),
            bytes: 0,
            sha1: Context::new(&SHA1_FOR_LEGACY_USE_ONLY),
            sha256: Context::new(&SHA256),
        }
    }

    async fn add(&mut self, mut piece: &[u8]) -> Result<(), ReconciliationError> {
        self.bytes += piece.len() as u64;
        if self.bytes > bills::MAX_FILE {
            return Err(ReconciliationError::UploadTooLarge(bills::MAX_FILE));
        }
        self.sha1.update(piece);
        self.sha256.update(piece);
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(PART - self.pending.len()));
            self.pending.extend_from_slice(now);
            piece = later;
            if self.pending.len() == PART {
                self.keep().await?;
            }
        }
        Ok(())
    }

    async fn keep(&mut self) -> Result<(), ReconciliationError> {
        let (now, mut conn) = (self.app.now(), self.app.db.conn().await?);
        effect!(
            "reconciliation.keep_part",
            store::insert_part(&mut conn, &self.file_id, self.part, &self.pending, now).await
        )?;
        self.part += 1;
        self.pending.clear();
        Ok(())
    }

    async fn end(mut self) -> Result<Kept, ReconciliationError> {
        if !self.pending.is_empty() {
            self.keep().await?;
        }
        let hex = |context: Context| {
            context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let Self { file_id, bytes, sha1, sha256, .. } = self;
        Ok(Kept { file_id, bytes, sha1: hex(sha1), sha256: hex(sha256) })
    }
}
