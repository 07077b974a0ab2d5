//! The ZooKeeper servers of the kit start, elect, restart and leave nothing behind.

mod common;

use std::time::Duration;

use common::{assert_gone, runs};
use lockkeeper_testkit::{ZooKeeper, wait_until};

#[test]
fn one_server_restarts() {
    let zookeeper = ZooKeeper::start();
    assert_eq!(zookeeper.url(), format!("zookeeper://127.0.0.1:{}", zookeeper.servers()[0].port()));
    assert!(zookeeper.four_letter(0, "mntr").contains("zk_server_state\tstandalone"));
    zookeeper.servers()[0].kill();
    zookeeper.servers()[0].restart();
    assert_eq!(zookeeper.four_letter(0, "ruok"), "imok");
}

#[test]
fn an_ensemble_elects_another_when_its_leader_is_killed() {
    let zookeeper = ZooKeeper::ensemble(3);
    let dead = zookeeper.kill_leader();
    assert!(!runs(zookeeper.servers()[dead].pid()));
    wait_until("another leads", Duration::from_secs(20), || {
        zookeeper.leader().is_some_and(|leader| leader != dead)
    });
    zookeeper.servers()[dead].restart();
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let zookeeper = ZooKeeper::start();
    let server = &zookeeper.servers()[0];
    assert_gone(server.pid(), server.directory().to_owned(), || drop(zookeeper));
}
