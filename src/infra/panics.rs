//! What is left of a panic.

use std::any::Any;

/// What a panic says: a text, or one that was put together.
pub fn message_of(panic: &(dyn Any + Send)) -> &str {
    let plain = panic.downcast_ref::<&str>().copied();
    plain.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_tells_its_message_also_one_that_was_put_together() {
        let count = 3;
        let plain = std::panic::catch_unwind(|| panic!("a text")).unwrap_err();
        let formatted = std::panic::catch_unwind(|| panic!("{count} texts")).unwrap_err();
        let other = std::panic::catch_unwind(|| std::panic::panic_any(7)).unwrap_err();
        let told = [plain, formatted, other].map(|panic| message_of(panic.as_ref()).to_owned());
        assert_eq!(told, ["a text", "3 texts", "without a word"]);
    }
}
