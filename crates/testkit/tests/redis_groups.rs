//! The Redis servers of the kit that work together, or behind TLS, serve and fail over.

mod common;

use std::process::Command;
use std::time::Duration;

use common::{output, redis_cli, runs};
use lockkeeper_testkit::{Redis, RedisCluster, Sentinel, Server, wait_until};

/// Processes and directories of servers, to look for after their end.
fn traces<'a>(servers: impl Iterator<Item = &'a Server>) -> Vec<(u32, std::path::PathBuf)> {
    servers.map(|server| (server.pid(), server.directory().to_owned())).collect()
}

fn assert_all_gone(traces: &[(u32, std::path::PathBuf)]) {
    assert!(traces.iter().all(|(pid, directory)| !runs(*pid) && !directory.exists()));
}

#[test]
fn sentinels_fail_over_when_asked_and_when_the_master_dies() {
    let sentinel = Sentinel::start();
    let first = sentinel.master_port();
    assert!(sentinel.url().ends_with("/m"));
    assert_eq!(redis_cli(first, &["SET", "a", "1"]), "OK");

    let second = sentinel.failover();
    assert_ne!(first, second);
    assert_eq!(redis_cli(second, &["SET", "a", "2"]), "OK");

    sentinel.master().kill();
    wait_until("a third master", Duration::from_secs(60), || {
        let third = sentinel.master_port();
        third != second && redis_cli(third, &["ROLE"]).starts_with("master")
    });
    sentinel.servers().iter().find(|server| server.port() == second).unwrap().restart();

    let traces = traces(sentinel.servers().iter().chain(sentinel.sentinels()));
    assert_eq!(traces.len(), 6);
    drop(sentinel);
    assert_all_gone(&traces);
}

#[test]
fn a_cluster_serves_all_slots() {
    let cluster = RedisCluster::start();
    let port = cluster.servers()[0].port();
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(redis_cli(port, &["-c", "SET", key, "1"]), "OK");
    }
    cluster.servers()[1].kill();
    cluster.servers()[1].restart();
    wait_until("the member is back", Duration::from_secs(30), || {
        redis_cli(port, &["CLUSTER", "INFO"]).contains("cluster_slots_ok:16384")
    });
    let traces = traces(cluster.servers().iter());
    drop(cluster);
    assert_all_gone(&traces);
}

#[test]
fn a_server_behind_tls_answers_its_user_only() {
    let redis = Redis::start_tls();
    let port = redis.port().to_string();
    let client = |more: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"]).arg(redis.ca()).args(more);
        output(&mut command)
    };
    assert_eq!(
        client(&["--no-auth-warning", "--user", redis.user(), "--pass", redis.password(), "PING"]),
        "PONG"
    );
    assert!(client(&["PING"]).starts_with("NOAUTH"));
    assert!(redis.url().starts_with("rediss://"));
    redis.restart();
}
