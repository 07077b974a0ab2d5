//! The suite on a cluster of three masters.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::RedisCluster;
use std::process::ExitCode;

fn main() -> ExitCode {
    let suite = Suite::new(lockkeeper_redis::STYLES[0]);
    suite.run(|| {
        let cluster = RedisCluster::start();
        Subject::at(cluster.url()).keep(cluster)
    })
}
