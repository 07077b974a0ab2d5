//! The conformance suite on the style 'plain', on one server.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::ZooKeeper;
use std::sync::Arc;
use std::time::Duration;

/// Two thirds of it are longer than the server needs to start again, which it does while other cases hold locks.
const SHORT_TTL: Duration = Duration::from_secs(12);

fn main() -> std::process::ExitCode {
    Suite::new(lockkeeper_zookeeper::STYLES[1]).mostly_waits().run(|| {
        let server = Arc::new(ZooKeeper::start());
        let again = Arc::clone(&server);
        let url = format!("{}?style=plain", server.url());
        Subject::at(url).short_ttl(SHORT_TTL).restart(move || again.servers()[0].restart()).keep(server)
    })
}
