//! The suite on a cluster of three masters.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::RedisCluster;
use std::process::ExitCode;

fn main() -> ExitCode {
    let suite = Suite::new(lockkeeper_redis::STYLES[0]).cannot(
        "tokens::grow_after_a_restart",
        "the members keep nothing on disk; the suite on one server restarts it with its data",
    );
    suite.run(|| {
        let cluster = RedisCluster::start();
        Subject::at(cluster.url()).keep(cluster)
    })
}
