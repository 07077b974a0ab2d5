//! Waits for a condition with a deadline instead of sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Returns as soon as `condition` holds.
///
/// # Panics
/// With "`what`: not within …" when it does not hold within `timeout`.
///
/// ```
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// lockkeeper_testkit::wait_until("10 ms pass", Duration::from_secs(5), || {
///     start.elapsed() > Duration::from_millis(10)
/// });
/// ```
#[track_caller]
pub fn wait_until(what: &str, timeout: Duration, condition: impl FnMut() -> bool) {
    assert!(holds_within(timeout, condition), "{what}: not within {timeout:?}");
}

/// Whether `condition` comes to hold within `timeout`.
pub(crate) fn holds_within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    succeeds_within(timeout, || if condition() { Ok(()) } else { Err(()) }).is_ok()
}

/// The first success of `attempt`, or its last failure when `timeout` has passed.
pub(crate) fn succeeds_within<T, E>(
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + timeout;
    loop {
        let outcome = attempt();
        if outcome.is_ok() || Instant::now() >= deadline {
            return outcome;
        }
        thread::sleep(POLL);
    }
}
