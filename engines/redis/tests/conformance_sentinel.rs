//! The suite on one master with two replicas and three sentinels.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Sentinel;
use std::process::ExitCode;

fn main() -> ExitCode {
    let suite = Suite::new(lockkeeper_redis::STYLES[0]);
    suite.run(|| {
        let sentinel = Sentinel::start();
        Subject::at(sentinel.url()).keep(sentinel)
    })
}
