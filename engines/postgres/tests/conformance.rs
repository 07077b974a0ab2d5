//! The whole suite on every style, without and with TLS.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::Postgres;
use std::process::ExitCode;
use std::time::Duration;

const ROOM: &str = "max_connections=900";

fn main() -> ExitCode {
    let mut program = Program::new();
    for abilities in lockkeeper_postgres::STYLES {
        let style = abilities.style;
        let suite = Suite::new(*abilities).cannot(
            "tokens::grow_after_a_restart",
            "the cases share a server; engine/restart.rs has its own",
        );
        program = program
            .suite(style, suite.clone(), move || {
                let server = Postgres::start_with(&[ROOM]);
                let url = format!("{}?style={style}", server.url());
                subject(server, url)
            })
            .tls(style, suite, move || {
                let server = Postgres::start_tls_with(&[ROOM]);
                let url = format!("{}&style={style}", server.tls_url());
                subject(server, url)
            });
    }
    program.run()
}

fn subject(server: Postgres, url: String) -> Subject {
    Subject::at(format!("{url}&connections=150")).short_ttl(Duration::from_secs(4)).keep(server)
}
