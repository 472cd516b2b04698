//! Results on standard output, for people or for programs.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use super::{CliError, Format};

/// Prints results in the chosen format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output(pub(super) Format);

impl Output {
    /// Prints a value: as JSON, or as the lines that `table` makes of it.
    pub(super) fn show<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        match self.0 {
            Format::Json => print(&serde_json::to_string_pretty(value)?)?,
            Format::Table => print(table(value).trim_end())?,
        }
        Ok(())
    }
}

/// Prints a text and a line's end. Whoever reads no further has heard enough; what else is wrong there must not go unseen, such as
/// a full disk under a key that is shown once.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    printed.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Says a line to the person who waits, on standard error. Whoever does not listen misses no result.
pub(super) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
