//! Keys and values in etcd.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_etcd::fuzzing::stored(data));
