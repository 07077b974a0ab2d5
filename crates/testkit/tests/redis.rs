//! The Redis servers of the kit start, restart, freeze, die and leave nothing behind.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{assert_gone, redis_cli};
use lockkeeper_testkit::Redis;

#[test]
fn a_started_server_answers() {
    let redis = Redis::start();
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis_cli(redis.port(), &["SET", "a", "1"]), "OK");
}

#[test]
fn a_restarted_server_keeps_port_and_data() {
    let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (port, pid) = (redis.port(), redis.pid());
    redis_cli(port, &["SET", "a", "1"]);
    redis.kill();
    assert!(!redis.is_running());
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_ne!(redis.pid(), pid);
    assert_eq!(redis_cli(port, &["GET", "a"]), "1");
}

#[test]
fn a_paused_server_is_silent_until_resumed() {
    let redis = Redis::start();
    redis.pause();
    // The kernel accepts the connection and the bytes; only the server can answer.
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port())).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut reply = [0; 7];
    assert!(client.read_exact(&mut reply).is_err());
    redis.resume();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn independent_servers_have_different_ports() {
    let mut ports: Vec<u16> = Redis::start_many(5).iter().map(|redis| redis.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 5);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let redis = Redis::start();
    assert_gone(redis.pid(), redis.directory().to_owned(), || drop(redis));
}

#[test]
fn a_dropped_paused_server_is_gone_as_well() {
    let redis = Redis::start();
    redis.pause();
    assert_gone(redis.pid(), redis.directory().to_owned(), || drop(redis));
}

#[test]
fn a_server_which_cannot_start_shows_its_log() {
    let failure = std::panic::catch_unwind(|| Redis::start_with(&["--no-such-option", "1"])).unwrap_err();
    let text = failure.downcast_ref::<String>().unwrap();
    assert!(text.contains("no-such-option"), "{text}");
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let redis = std::thread::spawn(Redis::start).join().unwrap();
    assert_eq!(redis_cli(redis.port(), &["PING"]), "PONG");
}
