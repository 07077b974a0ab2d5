//! Locks held by a connection and the runtimes that drive it: see the cases, which are those of every server.

use crate::cases;
use lockkeeper_testkit::Postgres;
use std::sync::LazyLock;
use tokio_postgres::NoTls;

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start_with(&["max_connections=300"]));

cases::on_every_server!(SERVER, &["queue", "row", "session", "advisory"]);

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    let server = Postgres::start();
    cases::a_loss_is_told_while_the_runtime_stands_still(&server.url(), async || {
        let (killer, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a server");
        tokio::spawn(connection);
        let all =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockkeeper'";
        killer.query(all, &[]).await.expect("an end");
    });
}
