//! The whole suite on every style, one after the other.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Postgres;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let outcomes: Vec<ExitCode> =
        lockkeeper_postgres::STYLES.iter().map(|style| suite(style.style)).collect();
    let failed = outcomes.into_iter().find(|outcome| *outcome != ExitCode::SUCCESS);
    failed.unwrap_or(ExitCode::SUCCESS)
}

/// Runs the suite on one style.
fn suite(style: &'static str) -> ExitCode {
    let abilities = lockkeeper_postgres::STYLES.iter().find(|known| known.style == style);
    let suite = Suite::new(*abilities.expect("a style we have"))
        .cannot("tokens::grow_after_a_restart", "the cases share a server; engine/restart.rs has its own");
    suite.run(move || {
        let server = Postgres::start_with(&["max_connections=900"]);
        Subject::at(format!("{}?style={style}&connections=150", server.url()))
            .short_ttl(Duration::from_secs(4))
            .keep(server)
    })
}
