//! Texts of strangers, as they are kept and shown.

/// As much of a text as is kept, in characters, with a space for what a database cannot keep or a person cannot read.
#[must_use]
pub fn cut(text: &str, longest: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(longest).collect()
}
