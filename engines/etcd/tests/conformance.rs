//! The whole suite on one server.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Etcd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    Suite::new(lockkeeper_etcd::STYLES[0]).run(|| {
        let server = Arc::new(Etcd::start());
        let again = Arc::clone(&server);
        let subject = Subject::at(server.url()).short_ttl(Duration::from_secs(5));
        subject.restart(move || again.servers()[0].restart()).keep(server)
    })
}
