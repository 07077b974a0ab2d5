//! A PostgreSQL server for the suite.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Postgres;
use std::sync::Arc;

/// Runs the suite on one style.
pub(crate) fn suite(style: &'static str) -> std::process::ExitCode {
    let abilities = lockkeeper_postgres::STYLES.iter().find(|known| known.style == style);
    Suite::new(*abilities.expect("a style we have")).run(move || {
        let server = Arc::new(Postgres::start_with(&["max_connections=500"]));
        let restarted = Arc::clone(&server);
        Subject::at(format!("{}?style={style}", server.url()))
            .restart(move || {
                restarted.stop();
                restarted.restart();
            })
            .keep(server)
    })
}
