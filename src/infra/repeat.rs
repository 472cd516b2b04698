//! Comparing a repeat with what is there already.

/// The fields that are not the same, by their names in the contract.
pub fn differing(fields: impl IntoIterator<Item = (&'static str, bool)>) -> Vec<&'static str> {
    fields.into_iter().filter_map(|(field, is_same)| (!is_same).then_some(field)).collect()
}
