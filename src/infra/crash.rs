//! Crash points: named instants around every effect, at which a test lets the process die.
//!
//! An effect is what the world keeps when this process dies: a commit, a call to a channel, a write to Redis. Each
//! stands in `effect!` under a name of its own, so that between any two of them there is a point to die at. A test
//! reads the names out of the sources, and wants a story for each.
//!
//! They exist in tests alone: the feature that fills them in is one of the `dev-dependencies`. A process dies at
//! the point that `FAILPOINTS` names, as by `kill -9`: `FAILPOINTS=pay.begin.after=return payonce serve`.

/// Runs an effect between the crash points `NAME.before` and `NAME.after`.
macro_rules! effect {
    ($name:literal, $effect:expr) => {{
        // Benches have the features of tests, and measure what is released.
        #[cfg(debug_assertions)]
        fail::fail_point!(concat!($name, ".before"), |_| std::process::abort());
        let outcome = $effect;
        #[cfg(debug_assertions)]
        fail::fail_point!(concat!($name, ".after"), |_| std::process::abort());
        outcome
    }};
}

pub(crate) use effect;

/// Arms the points that `FAILPOINTS` names, as long as the answer lives.
#[must_use]
pub fn arm() -> Option<fail::FailScenario<'static>> {
    fail::has_failpoints().then(fail::FailScenario::setup)
}
