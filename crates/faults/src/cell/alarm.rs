//! Whether the machine had time for the run.

use std::io::{Seek, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

const THREAD_STEP: Duration = Duration::from_millis(20);
const DISK_STEP: Duration = Duration::from_millis(100);
const BLOCK: [u8; 4096] = [0; 4096];

/// Notes how late a thread wakes, and how long the disk below the servers takes for a small write: on a machine that has no time
/// for them, nothing is said about the locks by a long wait.
pub(super) struct Alarm {
    thread_ms: Arc<AtomicU64>,
    disk_ms: Arc<AtomicU64>,
}

impl Alarm {
    pub(super) fn start() -> std::io::Result<Self> {
        let alarm = Self { thread_ms: Arc::default(), disk_ms: Arc::default() };
        let woken = Arc::downgrade(&alarm.thread_ms);
        thread::spawn(move || note(&woken, THREAD_STEP, || ()));
        let written = Arc::downgrade(&alarm.disk_ms);
        // Where the servers' data is, too.
        let mut file = tempfile::tempfile()?;
        thread::spawn(move || {
            note(&written, DISK_STEP, || {
                let _ = file.rewind().and_then(|()| file.write_all(&BLOCK)).and_then(|()| file.sync_data());
            });
        });
        Ok(alarm)
    }

    /// What took longer than this, if anything did.
    pub(super) fn exceeds(&self, limit: Duration) -> Option<String> {
        let late = |of: &AtomicU64| Duration::from_millis(of.load(Relaxed));
        let (thread, disk) = (late(&self.thread_ms), late(&self.disk_ms));
        if thread > limit {
            return Some(format!("a thread woke {:.1} s late", thread.as_secs_f64()));
        }
        (disk > limit).then(|| format!("the disk took {:.1} s to write 4 KB", disk.as_secs_f64()))
    }
}

fn note(latest_ms: &Weak<AtomicU64>, step: Duration, mut act: impl FnMut()) {
    while let Some(latest) = latest_ms.upgrade() {
        let started = Instant::now();
        thread::sleep(step);
        act();
        latest.fetch_max(started.elapsed().saturating_sub(step).as_millis() as u64, Relaxed);
    }
}
