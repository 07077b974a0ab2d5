//! The suite on one server, in the style 'queue'.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Redis;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    Suite::new(lockkeeper_redis::STYLES[0]).run(|| {
        let redis = Arc::new(Redis::start_with(&["--appendonly", "yes"]));
        let server = Arc::clone(&redis);
        let restart = move || {
            server.stop();
            server.restart();
        };
        Subject::at(redis.url()).restart(restart).keep(redis)
    })
}
