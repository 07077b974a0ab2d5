//! The PostgreSQL servers of the kit start, restart, freeze, die and leave nothing behind.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{assert_gone, is_stopped, output, runs};
use lockkeeper_testkit::{Postgres, wait_until};

fn psql(postgres: &Postgres, sql: &str) -> String {
    output(Command::new("psql").args([&postgres.url(), "-X", "-A", "-t", "-q", "-c", sql]))
}

/// A client whose session is busy for a minute, and the process of that session.
fn sleeper(postgres: &Postgres) -> (Child, u32) {
    let client = Command::new("psql")
        .args([&postgres.url(), "-c", "SELECT pg_sleep(60)"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut session = String::new();
    wait_until("the session sleeps", Duration::from_secs(10), || {
        session = psql(postgres, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        !session.is_empty()
    });
    (client, session.parse().unwrap())
}

#[test]
fn a_killed_server_takes_its_sessions_along_and_restarts_with_its_data() {
    let postgres = Postgres::start();
    psql(&postgres, "CREATE TABLE a AS SELECT 7 AS n");
    let (mut client, session) = sleeper(&postgres);
    postgres.kill();
    assert!(!runs(session));
    assert!(!client.wait().unwrap().success());
    postgres.restart();
    assert_eq!(psql(&postgres, "SELECT n FROM a"), "7");
}

#[test]
fn a_paused_server_freezes_its_sessions_too() {
    let postgres = Postgres::start();
    let (mut client, session) = sleeper(&postgres);
    postgres.pause();
    wait_until("the session stops", Duration::from_secs(10), || is_stopped(session));
    postgres.resume();
    wait_until("the session goes on", Duration::from_secs(10), || !is_stopped(session));
    drop(postgres);
    assert!(!client.wait().unwrap().success());
}

#[test]
fn a_standby_follows() {
    let primary = Postgres::start();
    let standby = primary.standby();
    assert_eq!(psql(&standby, "SELECT pg_is_in_recovery()"), "t");
    psql(&primary, "CREATE TABLE a (n int)");
    wait_until("the table arrives", Duration::from_secs(10), || {
        psql(&standby, "SELECT to_regclass('a') IS NOT NULL") == "t"
    });
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let postgres = Postgres::start();
    assert_gone(postgres.pid(), postgres.directory().to_owned(), || drop(postgres));
}
