//! The whole suite on one server, without and with TLS.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::Etcd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const SHORT_TTL: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let suite = Suite::new(lockkeeper_etcd::STYLES[0]);
    Program::new().suite("queue", suite.clone(), one_server).tls("queue", suite, one_server_with_tls).run()
}

fn one_server() -> Subject {
    let server = Arc::new(Etcd::start());
    let again = Arc::clone(&server);
    Subject::at(server.url()).short_ttl(SHORT_TTL).restart(move || again.servers()[0].restart()).keep(server)
}

fn one_server_with_tls() -> Subject {
    let server = Arc::new(Etcd::start_tls());
    let again = Arc::clone(&server);
    Subject::at(server.tls_url()).short_ttl(SHORT_TTL).restart(move || again.restart()).keep(server)
}
