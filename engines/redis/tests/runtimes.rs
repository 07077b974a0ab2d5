//! Connections and the runtimes that drive them: see the cases, which are those of every server.

// A connection that breaks costs no lock here, so the case of its loss is not for us.
#[allow(dead_code)]
#[path = "../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use lockkeeper_testkit::Redis;
use std::sync::LazyLock;

static SERVER: LazyLock<Redis> = LazyLock::new(Redis::start);

const STYLES: &[&str] = &["queue", "plain"];

#[test]
fn a_lock_outlives_the_runtime_it_was_taken_on() {
    cases::a_lock_outlives_the_runtime_it_was_taken_on(&SERVER.url(), STYLES);
}

#[test]
fn a_guard_dropped_while_its_runtime_stands_still_frees_the_lock() {
    cases::a_guard_dropped_while_its_runtime_stands_still_frees_the_lock(&SERVER.url(), STYLES);
}

#[test]
fn a_runtime_without_io_can_lock_as_well() {
    cases::a_runtime_without_io_can_lock_as_well(&SERVER.url(), STYLES);
}
