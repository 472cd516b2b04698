//! How many cases a parser is fed with by its tests; those of `tests/it` have it too.

use proptest::test_runner::{Config, RngSeed};

/// Whether everything is asked for.
pub(crate) fn is_full() -> bool {
    std::env::var("PAYONCE_FULL").is_ok_and(|full| full == "1")
}

/// So many cases, the same ones each time unless `PROPTEST_RNG_SEED` names others; with `PAYONCE_FULL=1` a hundred times
/// as many, others each time.
pub(crate) fn cases(count: u32) -> Config {
    let cases = if is_full() { 100 * count } else { count };
    let given = Config::default();
    let rng_seed = match given.rng_seed {
        RngSeed::Random if !is_full() => RngSeed::Fixed(20_261_122),
        seed => seed,
    };
    Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2_000, ..given }
}
