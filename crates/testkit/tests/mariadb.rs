//! The MariaDB servers of the kit start, restart, die and leave nothing behind.

mod common;

use std::process::Command;

use common::{assert_gone, output};
use lockkeeper_testkit::MariaDb;

fn query(mariadb: &MariaDb, sql: &str) -> String {
    let port = mariadb.port().to_string();
    output(Command::new("mariadb").args([
        "--no-defaults",
        "-h127.0.0.1",
        "-uroot",
        "-P",
        &port,
        "-N",
        "-e",
        sql,
        "lockkeeper",
    ]))
}

#[test]
fn a_killed_server_restarts_with_its_data() {
    let mariadb = MariaDb::start();
    assert_eq!(mariadb.url(), format!("mysql://root@127.0.0.1:{}/lockkeeper", mariadb.port()));
    query(&mariadb, "CREATE TABLE a AS SELECT 7 AS n");
    mariadb.kill();
    mariadb.restart();
    assert_eq!(query(&mariadb, "SELECT n FROM a"), "7");
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let mariadb = MariaDb::start();
    assert_gone(mariadb.pid(), mariadb.directory().to_owned(), || drop(mariadb));
}
