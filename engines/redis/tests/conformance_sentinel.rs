//! The suite on one master with two replicas and three sentinels, after a failover.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Sentinel;
use std::process::ExitCode;

fn main() -> ExitCode {
    let suite = Suite::new(lockkeeper_redis::STYLES[0]).cannot(
        "tokens::grow_after_a_restart",
        "a failover may lose claims of the cases beside it; `topologies` fails over in the middle of work",
    );
    suite.run(|| {
        let sentinel = Sentinel::start();
        sentinel.failover();
        Subject::at(sentinel.url()).keep(sentinel)
    })
}
