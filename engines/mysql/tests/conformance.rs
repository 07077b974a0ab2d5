//! The whole suite on every style, with and without TLS.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::MariaDb;
use std::time::Duration;

const ROOM: &str = "--max-connections=900";

fn subject(server: MariaDb, url: String) -> Subject {
    Subject::at(format!("{url}&connections=150")).short_ttl(Duration::from_secs(4)).keep(server)
}

fn main() -> std::process::ExitCode {
    let mut program = Program::new();
    for abilities in lockkeeper_mysql::STYLES {
        let style = abilities.style;
        let suite = Suite::new(*abilities)
            .cannot("tokens::grow_after_a_restart", "the cases share a server; tests/engine has its own");
        program = program
            .suite(style, suite.clone(), move || {
                let server = MariaDb::start_with(&[ROOM]);
                let url = format!("{}?style={style}", server.url());
                subject(server, url)
            })
            .tls(style, suite, move || {
                let server = MariaDb::start_tls_with(&[ROOM]);
                let url = format!("{}&style={style}", server.tls_url());
                subject(server, url)
            });
    }
    program.run()
}
