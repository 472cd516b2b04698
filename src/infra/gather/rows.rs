//! Batches as set-based statements take them, and what these give back.
//!
//! A statement takes a batch as one array for each column, and reads them as rows side by side:
//! `FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no, unnest($3::bigint[]) AS place) AS new`. The
//! same by `FROM unnest($1, $2) WITH ORDINALITY AS new (…)` makes a store of rows for each array before the first is joined: of
//! 18 arrays it costs 25 µs more for a batch of one, and about 1 µs more a row for one of 500 (psql). It is for where a plan
//! must know that rows come in the order of their places, to stop at a limit.

/// One value of each command: a column of the arrays that a set-based statement takes.
pub fn column<'a, C, T>(batch: &'a [C], value: impl FnMut(&'a C) -> T) -> Vec<T> {
    batch.iter().map(value).collect()
}

/// A list as PostgreSQL reads an array, `{"a","b"}`: arrays of arrays can only be boxes, so lists of several lengths go as a
/// column of such texts.
pub fn array_text<T: std::fmt::Display>(elements: impl IntoIterator<Item = T>) -> String {
    let quoted = |element: T| {
        let escaped = element.to_string().replace('\\', r"\\").replace('"', r#"\""#);
        format!("\"{escaped}\"")
    };
    format!("{{{}}}", elements.into_iter().map(quoted).collect::<Vec<_>>().join(","))
}

/// The places of so many commands, counted from 1: a column of them by which rows say what they answer.
pub fn places(size: usize) -> Vec<i64> {
    (1..).take(size).collect()
}

/// Rows of a set-based read, each put where the command stands that it answers, by the [`places`] that it was given. A command
/// without a row gets nothing.
pub fn in_places<R, T>(size: usize, rows: Vec<R>, read: impl Fn(R) -> (i64, T)) -> Vec<Option<T>> {
    let mut outcomes: Vec<Option<T>> = std::iter::repeat_with(|| None).take(size).collect();
    for (place, outcome) in rows.into_iter().map(read) {
        let slot = usize::try_from(place - 1).ok().and_then(|index| outcomes.get_mut(index));
        if let Some(slot) = slot {
            *slot = Some(outcome);
        }
    }
    outcomes
}

/// Which commands of a guarded write met their row, from the places that it gave back.
pub fn met(size: usize, places: Vec<i64>) -> Vec<bool> {
    in_places(size, places, |place| (place, ())).iter().map(Option::is_some).collect()
}

#[cfg(test)]
mod tests {
    use super::array_text;

    #[test]
    fn an_array_is_read_back_as_it_was_whatever_is_in_it() {
        assert_eq!(array_text([10, -7]), r#"{"10","-7"}"#);
        assert_eq!(array_text(["a,b", r#"c"d\e}"#]), r#"{"a,b","c\"d\\e}"}"#);
    }
}
