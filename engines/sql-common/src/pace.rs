//! How often keepers look whose server sends no messages.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How many keepers of this process look now. They share the pace, so that those who wait cost the same however many
/// keepers they are spread over (Law 10); beyond that many keepers each has its own, lest it becomes too slow.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
const SHARE_AT_MOST: usize = 20;

/// The pace of one keeper: together some thirteen looks a second in this process, at random moments so that many keepers do
/// not come together.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Whether it is counted among those that look.
    looks: AtomicBool,
}

impl Pace {
    /// Counts the keeper among those that look, or no longer.
    pub(crate) fn count(&self, looks: bool) {
        match (self.looks.swap(looks, SeqCst), looks) {
            (false, true) => LOOKING.fetch_add(1, SeqCst),
            (true, false) => LOOKING.fetch_sub(1, SeqCst),
            _ => 0,
        };
    }

    /// The pause before the next look.
    pub(crate) fn pause(&self) -> Duration {
        let share = LOOKING.load(SeqCst).clamp(1, SHARE_AT_MOST) as f64;
        Duration::from_millis(rand::random_range(50..100)).mul_f64(share)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.count(false);
    }
}
