//! The time that all processes of one boot share. Only here expiry is judged by clients, so that they must read one clock.

use lockkeeper_core::engine::{Clock, Moment};
use lockkeeper_core::{Error, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The boot this process runs in, and the clock that all its processes read alike, whatever the wall clock does.
#[derive(Debug)]
pub(crate) struct Time {
    /// Which boot: the kernel's random id.
    pub(crate) boot: String,
    /// What this process's time namespace adds to the boot clock, so that containers agree with the host.
    offset_nanos: i64,
}

impl Time {
    /// Reads the boot's id and the namespace's offset.
    ///
    /// # Errors
    /// When the system does not say: expiry could not be judged.
    pub(crate) fn read() -> Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            let why =
                format!("the system does not name its boot in /proc/sys/kernel/random/boot_id: {error}");
            Error::permanent("sqlite", "read the boot's id", why)
        })?;
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(Self { boot: boot.trim().to_owned(), offset_nanos: boot_offset_nanos(&offsets) })
    }

    /// Now, in the form the database stores.
    pub(crate) fn now(&self) -> i64 {
        let nanos = i64::try_from(Clock::Boot.now().as_nanos()).unwrap_or(i64::MAX);
        nanos.saturating_sub(self.offset_nanos)
    }

    /// A stored time as a moment on this process's clock.
    pub(crate) fn moment(&self, stored: i64) -> Moment {
        let nanos = stored.saturating_add(self.offset_nanos);
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

/// A stored time in microseconds.
pub(crate) fn micros(stored: i64) -> i64 {
    stored / 1000
}

/// The wall clock in microseconds: only ever a lower bound for tokens, never a measure of time.
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(0)
}

/// A duration in the form the database stores.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4)
}

/// How long from one stored time to a later one; zero if it is not later.
pub(crate) fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_nanos(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}

/// Reads the line `boottime SECONDS NANOSECONDS`; no such line means no offset.
fn boot_offset_nanos(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.trim().strip_prefix("boottime"));
    let mut numbers = line.unwrap_or("").split_whitespace().map(|number| number.parse::<i64>().unwrap_or(0));
    let (seconds, nanos) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_is_taken_out_of_the_clock() {
        assert_eq!(
            boot_offset_nanos("monotonic           0         0\nboottime            7  500000000\n"),
            7_500_000_000
        );
        assert_eq!(boot_offset_nanos("monotonic 0 0\nboottime -7 0\n"), -7_000_000_000);
        assert_eq!(boot_offset_nanos(""), 0);
        let here = Time { boot: String::new(), offset_nanos: 5_000_000_000 };
        let there = Time { boot: String::new(), offset_nanos: 0 };
        assert!(here.now() < there.now());
        assert_eq!(here.moment(1).as_nanos(), 5_000_000_001);
    }
}
