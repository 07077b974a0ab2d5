//! Rows of claims in databases, and lines about holds that keepers send each other there.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    lockkeeper_sql_common::fuzzing::rows(data);
    lockkeeper_postgres::fuzzing::holds(data);
});
