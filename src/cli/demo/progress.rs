//! How far it is: a bar at a terminal, plain lines anywhere else.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::tell;

/// Shows what is being played.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    is_told: bool,
}

impl Progress {
    pub(super) fn new(acts: u64, is_told: bool) -> Self {
        let bar = (is_told && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(acts);
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{pos}/{len}] {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, is_told }
    }

    /// The next act begins.
    pub(super) fn begin(&self, promise: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(promise.to_owned()),
            None if self.is_told => tell(&format!("… {promise}")),
            None => {}
        }
    }

    /// An act is over.
    pub(super) fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
