//! A server that is not there yet when the command starts.

mod support;

use lockkeeper_testkit::{Etcd, MariaDb, Postgres, Redis, Server, ZooKeeper};
use std::time::{Duration, Instant};
use support::{Held, Place};

/// Starts the call while the server is away, waits until it says so, and starts the server.
fn starts_late(place: &Place, server: &Server, arguments: &[&str]) -> (i32, String) {
    server.stop();
    let mut run = Held::start(place.lockkeeper(arguments));
    run.hears("no connection to");
    server.restart();
    let output = run.output();
    let (status, errors) = run.end();
    assert_eq!(output, "ran\n", "{errors}");
    (status, errors)
}

#[test]
fn another_database_is_recognised_as_what_it_is() {
    let (place, postgres) = (Place::new(), Postgres::start());
    let server = format!("127.0.0.1:{}", postgres.port());
    for (scheme, product) in [("redis", "Redis"), ("zookeeper", "ZooKeeper")] {
        let (status, text) = place.status(["-e", &format!("{scheme}://{server}"), "ls"]);
        assert_eq!(status, 69, "{text}");
        assert!(text.contains(&format!("{server} answers PostgreSQL, not {product}")), "{text}");
    }
}

#[test]
fn a_wait_begins_when_the_server_is_there() {
    let place = Place::new();
    let redis = Redis::start();
    let postgres = Postgres::start();
    let mariadb = MariaDb::start();
    let etcd = Etcd::start();
    let zookeeper = ZooKeeper::start();
    let servers: [(&Server, String); 5] = [
        (&redis, redis.url()),
        (&postgres, postgres.url()),
        (&mariadb, mariadb.url()),
        (&etcd.servers()[0], etcd.url()),
        (&zookeeper.servers()[0], zookeeper.url()),
    ];
    for (server, url) in servers {
        let arguments = ["--engine", &url, "run", "--wait", "30s", "late", "--", "echo", "ran"];
        let (status, errors) = starts_late(&place, server, &arguments);
        assert_eq!(status, 0, "{url}: {errors}");
    }
}

#[test]
fn acquire_and_observe_wait_for_the_server_as_well() {
    let (place, redis) = (Place::new(), Redis::start());
    let url = redis.url();
    redis.stop();
    let mut acquire =
        Held::start(place.lockkeeper(["-e", &url, "acquire", "late", "--for", "10m", "--wait", "30s"]));
    let mut observe = Held::start(place.lockkeeper(["-e", &url, "elect", "late", "--observe"]));
    acquire.hears("no connection to");
    observe.hears("no connection to");
    redis.restart();
    let handle = acquire.output();
    let (status, errors) = acquire.end();
    assert_eq!(status, 0, "{errors}");
    assert!(observe.line().contains("late"));
    observe.kill();
    let (status, errors) = place.status(["-e", &url, "release", handle.trim()]);
    assert_eq!(status, 0, "{errors}");
    redis.stop();
    let arguments = ["-e", &url, "acquire", "late", "--for", "10m", "--wait", "1500ms", "-E", "0"];
    let (status, errors) = place.status(arguments);
    assert_eq!(status, 69, "{errors}");
}

#[test]
fn without_a_limit_the_wait_for_the_server_is_that_for_an_outage() {
    let (place, redis) = (Place::new(), Redis::start());
    let url = redis.url();
    let (status, errors) = starts_late(&place, &redis, &["-e", &url, "run", "late", "--", "echo", "ran"]);
    assert_eq!(status, 0, "{errors}");
    assert!(errors.is_empty(), "{errors}");
    redis.stop();
    let begun = Instant::now();
    let url = format!("{url}?outage_limit=2s");
    let (status, errors) = place.status(["-e", &url, "run", "late", "--", "echo", "ran"]);
    assert_eq!(status, 69, "{errors}");
    assert!(errors.contains("nothing listens on") && errors.contains("Redis"), "{errors}");
    assert!(begun.elapsed() >= Duration::from_millis(1500), "it gave up after {:?}", begun.elapsed());
}

#[test]
fn a_limit_that_passes_without_the_server_is_69() {
    let (place, redis) = (Place::new(), Redis::start());
    redis.stop();
    let arguments = ["-e", &redis.url(), "run", "--wait", "1500ms", "late", "--", "echo", "ran"];
    let (status, errors) = place.status(arguments);
    assert_eq!(status, 69, "{errors}");
    assert!(errors.contains("no connection to redis://127.0.0.1:"), "{errors}");
    assert!(errors.contains("trying for up to 1.5s"), "{errors}");
}

#[test]
fn a_wait_that_an_outage_ends_names_the_server() {
    let (place, redis) = (Place::new(), Redis::start());
    let url = format!("{}?outage_limit=1s", redis.url());
    let options = ["--engine", &url, "--ttl", "1s", "run", "late", "--"];
    let mut holder = Held::start(place.lockkeeper([&options[..], &["sh", "-c", support::HOLD]].concat()));
    assert_eq!(holder.line(), "holding");
    let mut waiter = Held::start(place.lockkeeper([&options[..], &["echo", "ran"]].concat()));
    waiter.hears("waiting for late");
    redis.stop();
    let (status, errors) = waiter.end();
    assert_eq!(status, 69, "{errors}");
    assert!(errors.contains(&format!("(redis://127.0.0.1:{})", redis.port())), "{errors}");
    holder.kill();
}

#[test]
fn no_wait_does_not_wait_for_the_server_either() {
    let (place, redis) = (Place::new(), Redis::start());
    redis.stop();
    let arguments = ["-e", &redis.url(), "run", "--no-wait", "late", "--", "echo", "ran"];
    let (status, errors) = place.status(arguments);
    assert_eq!(status, 69, "{errors}");
    assert!(!errors.contains("no connection to"), "{errors}");
}

#[test]
fn what_no_retry_can_mend_is_said_at_once() {
    let (place, postgres) = (Place::new(), Postgres::start());
    let url = postgres.url().replace("/postgres", "/nosuchdatabase");
    let (status, errors) = place.status(["-e", &url, "run", "late", "--", "echo", "ran"]);
    assert_eq!(status, 69, "{errors}");
    assert!(!errors.contains("no connection to"), "{errors}");
}
