//! The etcd servers of the kit start, elect, restart and leave nothing behind.

mod common;

use std::time::Duration;

use common::{assert_gone, runs};
use lockkeeper_testkit::{Etcd, wait_until};

#[test]
fn one_server_restarts() {
    let etcd = Etcd::start();
    assert_eq!(etcd.url(), format!("etcd://127.0.0.1:{}", etcd.servers()[0].port()));
    assert!(etcd.metrics(0).contains("etcd_server_has_leader 1"));
    etcd.servers()[0].kill();
    etcd.servers()[0].restart();
    assert_eq!(etcd.leader(), Some(0));
}

#[test]
fn a_cluster_elects_another_when_its_leader_is_killed() {
    let etcd = Etcd::cluster_with(3, &["--unsafe-no-fsync"]);
    let dead = etcd.kill_leader();
    assert!(!runs(etcd.servers()[dead].pid()));
    wait_until("another leads", Duration::from_secs(20), || etcd.leader().is_some_and(|it| it != dead));
    etcd.servers()[dead].restart();
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let etcd = Etcd::start();
    let server = &etcd.servers()[0];
    assert_gone(server.pid(), server.directory().to_owned(), || drop(etcd));
}
