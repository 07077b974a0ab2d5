//! The whole suite on every style, without and with TLS, and through a transaction pooler on those that can.

use lockkeeper::views::Abilities;
use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::Postgres;
use std::process::ExitCode;
use std::time::Duration;

const ROOM: &str = "max_connections=900";

fn main() -> ExitCode {
    let mut program = Program::new();
    for abilities in lockkeeper_postgres::STYLES {
        let (style, suite) = (abilities.style, suite(*abilities));
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
    for abilities in lockkeeper_postgres::POOLED {
        let style = abilities.style;
        program = program.pooler(style, suite(*abilities), move || {
            let server = Postgres::start_with(&[ROOM]);
            let pooler = server.pooler("transaction");
            let url = format!("{}?style={style}&pooler=transaction", pooler.url());
            subject(server, url).keep(pooler)
        });
    }
    program.run()
}

fn suite(abilities: Abilities) -> Suite {
    Suite::new(abilities)
        .cannot("tokens::grow_after_a_restart", "the cases share a server; engine/restart.rs has its own")
}

fn subject(server: Postgres, url: String) -> Subject {
    Subject::at(format!("{url}&connections=150")).short_ttl(Duration::from_secs(4)).keep(server)
}
