//! A bar on stderr while the bench runs, when stderr is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Shows how far the bench is and what it does.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// For a number of steps.
    pub(crate) fn start(steps: usize) -> Self {
        let shown = std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says what runs now.
    pub(crate) fn doing(&self, what: String) {
        self.0.set_message(what);
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

/// The bar goes away; the table takes its place.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
