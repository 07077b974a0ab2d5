//! The conformance suite on SQLite, style 'row'.

use lockkeeper_conformance::{Subject, Suite};

fn main() -> std::process::ExitCode {
    Suite::new(lockkeeper_sqlite::STYLES[1]).run(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("locks.db");
        let url = format!("sqlite:{}?style=row", file.display());
        Subject::at(url).keep(directory).restart(move || restart(&file))
    })
}

/// Undoes the last numbers, as a power cut may. (It would end every claim, too, but other cases are at work.)
fn restart(file: &std::path::Path) {
    let connection = rusqlite::Connection::open(file).expect("the database");
    connection.busy_timeout(std::time::Duration::from_secs(30)).expect("a time-out");
    connection.execute("UPDATE lockkeeper_counter SET last = 0", []).expect("the counter");
}
