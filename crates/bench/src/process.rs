//! What this process has used so far: processor time and memory.

use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// Processor time of all threads of this process, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Memory of this process that is in use, in bytes; zero where the system does not tell.
pub(crate) fn memory_bytes() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    (pages.unwrap_or_default() * rustix::param::page_size() as u64) as f64
}
