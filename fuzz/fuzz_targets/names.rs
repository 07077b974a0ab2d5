//! Names, demands, holders and durations.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_core::fuzzing::names(data));
