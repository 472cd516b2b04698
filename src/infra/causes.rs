//! An error in one line: JSON logs and columns take a text and do not ask what caused it.

use std::error::Error;

/// The error's text and those of all that caused it. What one says in the words of its cause already is not said twice.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        if !text.ends_with(&told) {
            text = format!("{text}: {told}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Told {
        text: &'static str,
        source: Option<Box<Told>>,
    }

    fn told(text: &'static str, source: Option<Told>) -> Told {
        Told { text, source: source.map(Box::new) }
    }

    #[test]
    fn every_cause_is_told_once() {
        let innermost = || told("no such host", None);
        assert_eq!(with_causes(&innermost()), "no such host");
        let repeating = told("it broke: no such host", Some(innermost()));
        assert_eq!(with_causes(&told("no answer", Some(repeating))), "no answer: it broke: no such host");
    }
}
