//! The conformance suite on the style 'queue', on one server.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::ZooKeeper;
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    Suite::new(lockkeeper_zookeeper::STYLES[0]).run(|| {
        let server = Arc::new(ZooKeeper::start());
        let again = Arc::clone(&server);
        Subject::at(server.url()).restart(move || again.servers()[0].restart()).keep(server)
    })
}
