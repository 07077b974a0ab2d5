//! Locks held by a connection and the runtimes that drive it: see the cases, which are those of every server.

#[path = "../../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::LazyLock;

static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start_with(&["--max-connections=300"]));

cases::on_every_server!(SERVER, &["queue", "row", "session", "advisory"]);

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    let server = MariaDb::start();
    cases::a_loss_is_told_while_the_runtime_stands_still(&server.url(), async || {
        let mut killer = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a server");
        let all =
            "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
        for number in killer.query::<u64, _>(all).await.expect("a list") {
            // It may have ended by itself.
            let _ = killer.query_drop(format!("KILL {number}")).await;
        }
    });
}
