//! The SQLite engine on runtimes that lack I/O or timers.

use crate::support::File;

#[path = "../../../../crates/conformance/cases/bare_runtimes.rs"]
mod cases;

#[test]
fn a_runtime_without_io_and_timers_can_lock() {
    let file = File::new("queue");
    let url = format!("sqlite:{}", file.path().display());
    cases::a_runtime_without_io_or_timers_gets_an_error_that_says_so(&url, &["queue", "row"]);
}
