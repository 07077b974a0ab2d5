//! URLs, as the core and the engines read them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    lockkeeper_core::fuzzing::urls(data);
    lockkeeper_etcd::fuzzing::urls(data);
    lockkeeper_file::fuzzing::urls(data);
    lockkeeper_mysql::fuzzing::urls(data);
    lockkeeper_postgres::fuzzing::urls(data);
    lockkeeper_redis::fuzzing::urls(data);
    lockkeeper_redlock::fuzzing::urls(data);
    lockkeeper_sqlite::fuzzing::urls(data);
    lockkeeper_zookeeper::fuzzing::urls(data);
});
