//! Rows of claims in databases.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_sql_common::fuzzing::rows(data));
