//! Results on standard output, for people or for programs.

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
            Format::Json => print(&serde_json::to_string_pretty(value)?),
            Format::Table => print(table(value).trim_end()),
        }
        Ok(())
    }
}

/// Prints a text and a line's end.
#[expect(clippy::print_stdout, reason = "the answer to a person or a program at a terminal")]
pub(super) fn print(text: &str) {
    println!("{text}");
}
