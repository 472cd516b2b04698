//! How many cases a parser is fed with by its tests.

use proptest::test_runner::Config;

/// So many cases, or a hundred times as many with `PAYONCE_FULL=1`.
pub(crate) fn cases(count: u32) -> Config {
    let is_full = std::env::var("PAYONCE_FULL").is_ok_and(|full| full == "1");
    let cases = if is_full { 100 * count } else { count };
    Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() }
}
