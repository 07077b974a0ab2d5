//! Lines about holds that keepers send each other through PostgreSQL.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_postgres::fuzzing::holds(data));
