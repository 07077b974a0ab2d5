//! Values in Redis, as scripts reply them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_redis::fuzzing::stored(data));
