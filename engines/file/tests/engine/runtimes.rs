//! The file engine on runtimes that lack I/O or timers.

use crate::support::Locks;

#[path = "../../../../crates/conformance/cases/bare_runtimes.rs"]
mod cases;

#[test]
fn a_runtime_without_io_and_timers_can_lock() {
    let locks = Locks::new();
    cases::a_runtime_without_io_or_timers_gets_an_error_that_says_so(&locks.url(), &["queue"]);
}
