//! Names and contents of the file engine's claims.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_file::fuzzing::claim_files(data));
