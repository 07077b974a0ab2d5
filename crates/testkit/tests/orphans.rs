//! A server dies with the process that started it, even when that process is killed.

mod common;

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::runs;
use lockkeeper_testkit::{Postgres, Redis, wait_until};

const HELPER: &str = "LOCKKEEPER_TESTKIT_HELPER";

/// Not a test of its own: the process which the test below kills.
#[test]
fn helper() {
    if env::var_os(HELPER).is_none() {
        return;
    }
    let (redis, postgres) = (Redis::start(), Postgres::start());
    println!("\npids {} {}", redis.pid(), postgres.pid());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn servers_die_with_a_killed_process() {
    let mut helper = Command::new(env::current_exe().unwrap())
        .args(["helper", "--exact", "--nocapture"])
        .env(HELPER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(helper.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line =
        lines.into_iter().find(|line| line.starts_with("pids ")).expect("the helper tells its servers");
    let pids: Vec<u32> = line.split(' ').skip(1).map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| runs(*pid)));

    helper.kill().unwrap();
    helper.wait().unwrap();
    wait_until("the servers die", Duration::from_secs(10), || !pids.iter().any(|pid| runs(*pid)));
}
