//! Whether the machine had time for the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Notes how late a thread wakes: on a machine that has no time for it, nothing is said about the locks by a long wait.
pub(super) struct Alarm {
    latest_ms: Arc<AtomicU64>,
}

impl Alarm {
    pub(super) fn start() -> Self {
        let latest_ms = Arc::new(AtomicU64::new(0));
        let noted = Arc::downgrade(&latest_ms);
        thread::spawn(move || {
            const STEP: Duration = Duration::from_millis(20);
            while let Some(latest) = noted.upgrade() {
                let started = Instant::now();
                thread::sleep(STEP);
                latest.fetch_max(started.elapsed().saturating_sub(STEP).as_millis() as u64, Relaxed);
            }
        });
        Self { latest_ms }
    }

    pub(super) fn latest(&self) -> Duration {
        Duration::from_millis(self.latest_ms.load(Relaxed))
    }
}
