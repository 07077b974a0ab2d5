//! Handles of detached holds.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_core::fuzzing::handles(data));
