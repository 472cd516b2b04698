//! The address of what a command asks for.

use reqwest::Url;

use super::Given;
use super::description::Place;
use crate::cli::CliError;

/// The route's address with the given values in it.
pub(super) fn target(base: &str, given: &Given) -> Result<Url, CliError> {
    let mut url = Url::parse(base)?;
    {
        let mut path = url.path_segments_mut().map_err(|()| "the URL cannot have a path")?;
        path.pop_if_empty();
        for segment in given.deed.path.split('/').skip(1) {
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            let value = name.and_then(|name| given.value(name)).unwrap_or(segment);
            // It would be left out, or a part of it, and the rest be the address of something else.
            if matches!(value.trim(), "." | "..") || value.contains(['\t', '\r', '\n']) {
                return Err(format!(
                    "`{value}` names nothing that could stand in {}; nothing was done",
                    given.deed.path
                )
                .into());
            }
            path.push(value);
        }
    }
    let query: Vec<_> = given.values.iter().filter(|(field, _)| field.place == Place::Query).collect();
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query.iter().map(|(field, value)| (&field.name, value)));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_would_be_left_out_of_the_path_is_refused() {
        let target_of = |id: &str| {
            let given = Given::of("retry-task", &[("task_id", Some(id.to_owned()))]).unwrap();
            target("http://within", &given).map(|url| url.path().to_owned())
        };
        assert_eq!(target_of("7").unwrap(), "/admin/compensations/7/retry");
        assert_eq!(target_of("a/../b").unwrap(), "/admin/compensations/a%2F..%2Fb/retry");
        for id in [".", "..", "..\r", "7\n"] {
            let refused = target_of(id).unwrap_err().to_string();
            assert!(refused.ends_with("nothing was done"), "{refused}");
        }
    }
}
