//! The conformance suite on the style 'plain', on one server.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::ZooKeeper;
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    Suite::new(lockkeeper_zookeeper::STYLES[1]).run(|| {
        let server = Arc::new(ZooKeeper::start());
        let again = Arc::clone(&server);
        let url = format!("{}?style=plain", server.url());
        Subject::at(url).restart(move || again.servers()[0].restart()).keep(server)
    })
}
