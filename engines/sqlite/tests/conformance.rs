//! The conformance suite on SQLite, one style after the other.

use lockkeeper_conformance::{Subject, Suite};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut outcome = ExitCode::SUCCESS;
    for style in lockkeeper_sqlite::STYLES {
        let suite = Suite::new(*style).run(move || {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let file = directory.path().join("locks.db");
            let url = format!("sqlite:{}?style={}", file.display(), style.style);
            Subject::at(url).keep(directory).restart(move || restart(&file))
        });
        if suite != ExitCode::SUCCESS {
            eprintln!("the style '{}' has failed", style.style);
            outcome = suite;
        }
    }
    outcome
}

/// Undoes the last change of the numbers, as a power cut may. (It would end every claim, too, but other cases are at work.)
fn restart(file: &std::path::Path) {
    let connection = rusqlite::Connection::open(file).expect("the database");
    connection.busy_timeout(std::time::Duration::from_secs(30)).expect("a time-out");
    connection.execute("UPDATE lockkeeper_counter SET horizon = 0", []).expect("the counter");
}
