//! The whole suite on one server in both styles, without and with TLS. Sentinel and Cluster have programs of their own.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::{Redis, Server};
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;

/// Restarts keep the data.
const DURABLE: &[&str] = &["--appendonly", "yes"];

fn main() -> ExitCode {
    let mut program = Program::new();
    for abilities in lockkeeper_redis::STYLES {
        let (suite, style) = (Suite::new(*abilities), abilities.style);
        program = program
            .suite(style, suite.clone(), move || {
                let server = Redis::start_with(DURABLE);
                let url = format!("{}?style={style}", server.url());
                subject(server, url)
            })
            .tls(style, suite, move || {
                let server = Redis::start_tls_with(DURABLE);
                let url = format!("{}&style={style}", server.tls_url());
                subject(server, url)
            });
    }
    program.run()
}

fn subject<S: Deref<Target = Server> + Send + Sync + 'static>(server: S, url: String) -> Subject {
    let server = Arc::new(server);
    let again = Arc::clone(&server);
    let restart = move || {
        again.stop();
        again.restart();
    };
    Subject::at(url).restart(restart).keep(server)
}
