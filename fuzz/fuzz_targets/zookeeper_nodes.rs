//! Names and data of znodes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_zookeeper::fuzzing::nodes(data));
