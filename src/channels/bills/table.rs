//! Columns by their names, in lines whose free text may hold what parts columns.

use super::{BadStatement, Fault};

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Columns {
    names: Vec<String>,
    /// The column of free text: what stands right of it is counted from the line's end.
    free: usize,
}

impl Columns {
    /// The columns of a head line; `free` names the one with free text.
    pub(super) fn of(names: impl Iterator<Item = String>, free: &str) -> Self {
        let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
        let free = names.iter().position(|name| name == free).unwrap_or(names.len());
        Self { names, free }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The places of the columns whose names fit, counted from the start.
    pub(super) fn places(&self, fits: impl Fn(&str) -> bool) -> Vec<usize> {
        self.names.iter().enumerate().filter(|(_, name)| fits(name)).map(|(place, _)| place).collect()
    }

    /// The place of a column.
    pub(super) fn find(&self, name: &str) -> Result<Column, BadStatement> {
        let Some(place) = self.names.iter().position(|known| known == name) else {
            let detail = format!("it has no column {name}; expected the channel's own file, unchanged");
            return Err(BadStatement::new(Fault::OtherChannel, detail));
        };
        Ok(if place <= self.free { Column::FromStart(place) } else { Column::FromEnd(self.len() - place) })
    }
}

/// Where a column's cells are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    FromStart(usize),
    FromEnd(usize),
}

impl Column {
    /// Its cell in a line; empty where the line has none.
    pub(super) fn of<'a>(self, cells: &[&'a str]) -> &'a str {
        let cell = match self {
            Self::FromStart(place) => cells.get(place),
            Self::FromEnd(place) => cells.len().checked_sub(place).and_then(|place| cells.get(place)),
        };
        cell.copied().unwrap_or_default().trim()
    }
}
