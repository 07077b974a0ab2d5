//! Requests to the server, with their bodies.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_serve::fuzzing::requests(data));
