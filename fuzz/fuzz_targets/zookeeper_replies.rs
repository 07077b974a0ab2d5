//! A ZooKeeper server's replies in Jute.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_zookeeper::fuzzing::replies(data));
