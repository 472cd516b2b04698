//! Many rows at once: `COPY` in its text form.

use futures_util::FutureExt;

use super::{Conn, DbError};

impl Conn {
    /// Adds rows that were written as `COPY … FROM STDIN` reads them. Gives how many.
    ///
    /// # Errors
    /// When the database cannot be reached, or refuses a row: then none of them is there.
    pub async fn copy_in(&mut self, statement: &'static str, rows: Vec<u8>) -> Result<u64, DbError> {
        let copied = self.exchange(move |conn| {
            async move {
                let mut copy = conn.copy_in_raw(statement).await?;
                copy.send(rows).await?;
                copy.finish().await
            }
            .boxed()
        });
        Ok(copied.await?)
    }
}

/// Adds a cell in the form that `COPY` reads: what would end it is escaped.
pub fn push_cell(rows: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'\\' => rows.extend(b"\\\\"),
            b'\t' => rows.extend(b"\\t"),
            b'\n' => rows.extend(b"\\n"),
            b'\r' => rows.extend(b"\\r"),
            byte => rows.push(byte),
        }
    }
}
