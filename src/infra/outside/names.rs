//! What is remembered of names: whether they answered soon the last time.
//!
//! Of bounded size, whoever asks for what: names are remembered in two halves, and when the younger is full, the older is
//! forgotten. What is asked for now and then stays in the younger.

use std::collections::HashMap;
use std::mem;

/// Names of a half.
const HALF: usize = 4096;

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It answered soon.
    Answers,
    /// Nothing, or no more.
    Unknown,
    /// It did not answer soon.
    Silent,
}

/// The names.
#[derive(Debug, Default)]
pub(super) struct Names {
    younger: HashMap<String, Standing>,
    older: HashMap<String, Standing>,
}

impl Names {
    /// What is known of this one.
    pub(super) fn standing(&mut self, name: &str) -> Standing {
        if let Some(standing) = self.older.remove(name) {
            self.remember(name, standing);
        }
        self.younger.get(name).copied().unwrap_or(Standing::Unknown)
    }

    /// Remembers how this one did.
    pub(super) fn remember(&mut self, name: &str, standing: Standing) {
        if self.younger.len() >= HALF && !self.younger.contains_key(name) {
            self.older = mem::take(&mut self.younger);
        }
        self.older.remove(name);
        self.younger.insert(name.to_owned(), standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_for_is_remembered_beside_any_number_of_others() {
        let mut names = Names::default();
        names.remember("shop.example", Standing::Answers);
        names.remember("silent.example", Standing::Silent);
        for number in 0..20 * HALF {
            names.remember(&format!("{number}.example"), Standing::Answers);
            if number % 1000 == 0 {
                assert_eq!(names.standing("shop.example"), Standing::Answers, "after {number}");
            }
        }
        assert!(names.younger.len() + names.older.len() <= 2 * HALF);
        assert_eq!(names.standing("silent.example"), Standing::Unknown, "nobody asked for it");
    }
}
