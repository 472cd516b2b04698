//! What faces outside, fed with whatever there is: nothing panics, nothing reads past its limit, what is read prints
//! back as it was, no cent is lost or invented, and what was bent is not believed. Parsers that are private are fed
//! where they are (`fuzz.rs` beside them).
//!
//! A few thousand cases each, a hundred times as many with `PAYONCE_FULL=1`. What fails is cut down and printed.

use proptest::test_runner::{Config, RngSeed};

use crate::support::service::is_full;

mod addresses;
mod bodies;
mod names;
mod numbers;
mod settings;
mod signatures;

/// So many cases of a kind, the same ones each time unless `PROPTEST_RNG_SEED` names others; or a hundred times as many.
fn cases(count: u32) -> Config {
    let cases = if is_full() { 100 * count } else { count };
    let given = Config::default();
    let rng_seed = match given.rng_seed {
        RngSeed::Random if !is_full() => RngSeed::Fixed(20_261_122),
        seed => seed,
    };
    Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2_000, ..given }
}
