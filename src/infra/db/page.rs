//! Pages of rows by their state.

use std::fmt::Display;

use sqlx::{Postgres, QueryBuilder};

/// Which page of a table, newest first, and by what.
#[derive(Clone, Copy, Debug)]
pub struct StatePage<'a, S> {
    /// The primary key: an id that grows with time.
    pub key: &'static str,
    /// In one state.
    pub status: Option<S>,
    /// The states that few rows are in, those of a small index.
    pub few: &'a [S],
    /// Behind this one: the last id of the page before.
    pub starting_after: Option<&'a str>,
    /// How many.
    pub limit: i64,
}

impl<S: Copy + Display + PartialEq> StatePage<'_, S> {
    /// The statement that gives this page of what `select` gives.
    #[must_use]
    pub fn of(&self, select: &'static str) -> QueryBuilder<Postgres> {
        let (mut query, hidden) = in_state(select, self.status, self.few);
        let key = format!("{}{hidden}", self.key);
        if let Some(after) = self.starting_after {
            query.push(format_args!(" AND {key} < ")).push_bind(after.to_owned());
        }
        query.push(format_args!(" ORDER BY {key} DESC LIMIT ")).push_bind(self.limit);
        query
    }
}

/// The statement that gives what `select` gives of the rows in a state; and what each part of the page's key is written with.
///
/// What `few` rows are in is all fetched by its small index. The key is then in words that no index has: no plan goes
/// through what is over, in the order of the page, until it has enough.
#[must_use]
pub fn in_state<S: Copy + Display + PartialEq>(
    select: &'static str,
    status: Option<S>,
    few: &[S],
) -> (QueryBuilder<Postgres>, &'static str) {
    let mut query = QueryBuilder::<Postgres>::new(select);
    query.push(" WHERE true");
    if let Some(status) = status {
        // A word of ours and no text from outside; the plan must see it to take the index.
        query.push(format_args!(" AND status = '{status}'"));
    }
    let is_few = status.is_some_and(|status| few.contains(&status));
    (query, if is_few { " || ''" } else { "" })
}
