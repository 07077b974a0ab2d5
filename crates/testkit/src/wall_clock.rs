//! A wall clock of servers that a test sets while they run: a small library that is loaded before theirs.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::error::{Result, Trying, or_panic};
use crate::{data, spawner};

const SHIM: &str = include_str!("wall_clock/shim.c");
const NANOS_PER_MS: i64 = 1_000_000;

/// A wall clock that servers read instead of the machine's. Their other clocks go on as ever.
///
/// It works for servers that read the clock through the C library (Redis, PostgreSQL, MariaDB, the JVM), not for Go's.
/// Needs a C compiler, `cc`, which Rust needs as well.
///
/// ```no_run
/// let clock = lockkeeper_testkit::WallClock::new();
/// let redis = clock.of(lockkeeper_testkit::Redis::start);
/// clock.set_ahead_ms(3_600_000);
/// # drop(redis);
/// ```
pub struct WallClock(Arc<Inner>);

struct Inner {
    directory: TempDir,
    offset: File,
}

/// What a server's process needs so that it reads the clock.
#[derive(Clone)]
pub(crate) struct Preload(Arc<Inner>);

thread_local! {
    static CURRENT: RefCell<Option<Preload>> = const { RefCell::new(None) };
}

impl WallClock {
    /// A clock that shows the machine's time.
    ///
    /// # Panics
    /// With the compiler's output, when the library cannot be made.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it runs a compiler")]
    pub fn new() -> WallClock {
        WallClock(Arc::new(or_panic(create())))
    }

    /// The servers that are started here read this clock, also when they are restarted.
    pub fn of<T>(&self, start: impl FnOnce() -> T) -> T {
        let _resets = Resets(CURRENT.replace(Some(Preload(Arc::clone(&self.0)))));
        start()
    }

    /// Sets the clock ahead of the machine's by this number of milliseconds, or behind it if below zero.
    ///
    /// # Panics
    /// When the file that the servers share cannot be written.
    #[track_caller]
    pub fn set_ahead_ms(&self, offset_ms: i64) {
        let bytes = (offset_ms * NANOS_PER_MS).to_ne_bytes();
        or_panic(self.0.offset.write_all_at(&bytes, 0).trying("set the clock"));
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.0.directory.path()).finish()
    }
}

struct Resets(Option<Preload>);

impl Drop for Resets {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Preload {
    /// That of the servers which this thread starts now, if they have one.
    pub(crate) fn current() -> Option<Preload> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let path = |name: &str| self.0.directory.path().join(name).into_os_string();
        [("LD_PRELOAD", path(LIBRARY)), ("LOCKKEEPER_CLOCK", path(OFFSET))]
    }
}

const LIBRARY: &str = "wall_clock.so";
const OFFSET: &str = "offset";

fn create() -> Result<Inner> {
    let directory = data::directory()?;
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::write(path("shim.c"), SHIM).trying("write the clock's source")?;
    let mut compile = Command::new("cc");
    compile
        .args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(path(LIBRARY))
        .arg(path("shim.c"));
    spawner::run(compile)?;
    let offset = File::create(path(OFFSET)).trying("create the clock's offset")?;
    offset.write_all_at(&0_i64.to_ne_bytes(), 0).trying("set the clock")?;
    Ok(Inner { directory, offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Redis, resp};

    fn seconds(redis: &Redis) -> i64 {
        let reply = resp::call(redis.port(), &["EVAL", "return redis.call('TIME')[1]", "0"]);
        reply.expect("a reply").trim().parse().expect("a time")
    }

    #[test]
    fn a_servers_clock_jumps_while_it_runs() {
        let (clock, plain) = (WallClock::new(), Redis::start());
        let redis = clock.of(Redis::start);
        let ahead = || seconds(&redis) - seconds(&plain);
        assert!(ahead().abs() <= 1);
        for hours in [1, -1] {
            clock.set_ahead_ms(hours * 3_600_000);
            assert!((ahead() - hours * 3_600).abs() <= 1);
        }
        redis.restart();
        assert!((ahead() + 3_600).abs() <= 1, "a restarted server reads the same clock");
    }
}
