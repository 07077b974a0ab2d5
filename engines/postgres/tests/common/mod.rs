//! A PostgreSQL server for the suite.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Postgres;
use std::time::Duration;

/// Runs the suite on one style.
pub(crate) fn suite(style: &'static str) -> std::process::ExitCode {
    let abilities = lockkeeper_postgres::STYLES.iter().find(|known| known.style == style);
    let mut suite = Suite::new(*abilities.expect("a style we have"))
        .cannot("tokens::grow_after_a_restart", "the cases share a server; tests/restart.rs has its own");
    if ["session", "advisory"].contains(&style) {
        suite = suite.cannot(
            "processes::a_paused_holder_finds_out_that_it_lost",
            "the connection of a stopped process lives on, and with it the lock",
        );
    }
    suite.run(move || {
        let server = Postgres::start_with(&["max_connections=900"]);
        Subject::at(format!("{}?style={style}&connections=150", server.url()))
            .short_ttl(Duration::from_secs(4))
            .keep(server)
    })
}
