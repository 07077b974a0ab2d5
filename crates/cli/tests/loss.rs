//! A command whose lock is lost is ended, all of it, before anybody else may rely on the lock.

mod support;

use lockkeeper_testkit::{Etcd, Redis, Server};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use support::{LIVE_ON, Place, lives, until};

/// A shell line that says 'asked' when it is asked to end.
fn polite() -> String {
    format!("trap 'echo asked; exit 0' TERM; echo holding; {LIVE_ON}")
}

fn evict(place: &Place, name: &str) {
    let (status, text) = place.status(["evict", name, "--yes"]);
    assert_eq!(status, 0, "{text}");
}

#[test]
fn an_evicted_command_is_asked_to_end_and_the_status_is_76() {
    let place = Place::new();
    let mut held = place.start(&["run", "--ttl", "1s", "x", "--", "sh", "-c", &polite()]);
    evict(&place, "x");
    assert_eq!(held.line(), "asked");
    let (status, text) = held.end();
    assert_eq!(status, 76, "{text}");
    assert!(text.contains("lost the lock"), "{text}");
    place.assert_empty();
}

#[test]
fn a_command_that_will_not_end_is_killed_with_its_whole_group() {
    let place = Place::new();
    let line = "trap '' TERM; sleep 60 & echo holding; echo $$ $!; wait";
    let mut held = place.start(&["run", "--ttl", "1s", "x", "--", "sh", "-c", line]);
    let pids: Vec<u32> = held.line().split(' ').map(|pid| pid.parse().unwrap()).collect();
    evict(&place, "x");
    assert_eq!(held.end().0, 76);
    until("end of the whole group", || !pids.iter().any(|pid| lives(*pid)));
}

#[test]
fn stragglers_are_killed_after_the_command_itself_has_ended() {
    let place = Place::new();
    let line = format!("sh -c 'trap \"\" TERM; echo holding; {LIVE_ON}' & echo $!; wait");
    let mut held = place.start_waiting(&["run", "--ttl", "1s", "x", "--", "sh", "-c", &line]);
    let (one, other) = (held.line(), held.line());
    let straggler: u32 = if one == "holding" { other } else { one }.parse().unwrap();
    evict(&place, "x");
    assert_eq!(held.end().0, 76);
    until("end of the straggler", || !lives(straggler));
}

#[test]
fn on_lost_kill_does_not_ask() {
    let place = Place::new();
    let mut held =
        place.start(&["run", "--ttl", "1s", "--on-lost", "kill", "x", "--", "sh", "-c", &polite()]);
    evict(&place, "x");
    assert_eq!(held.line(), "", "killed without being asked");
    assert_eq!(held.end().0, 76);
}

#[test]
fn on_lost_ignore_warns_and_lets_the_command_go_on() {
    let place = Place::new();
    let line = "echo holding; read answer; exit 5";
    let mut held = place.start(&["run", "--ttl", "1s", "--on-lost", "ignore", "x", "--", "sh", "-c", line]);
    evict(&place, "x");
    held.hears("lost the lock");
    held.hears("runs on without the lock");
    held.say("\n");
    assert_eq!(held.finish(), 5);
}

#[test]
fn a_command_is_asked_to_end_while_the_lock_still_protects_it() {
    let place = Place::new();
    let seen = place.path("seen");
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    // The trap looks at the lock at the moment the command is asked to end.
    let line =
        format!("trap '{binary} show x --json > {}; exit 0' TERM; echo holding; {LIVE_ON}", seen.display());
    let held = place.start(&["run", "--lease", "5s", "x", "--", "sh", "-c", &line]);
    let (status, text) = held.end();
    assert_eq!(status, 124, "{text}");
    let lock: serde_json::Value = serde_json::from_slice(&std::fs::read(seen).unwrap()).unwrap();
    assert_eq!(lock["claims"][0]["standing"], "holds", "{lock}");
    place.assert_empty();
}

#[test]
fn after_a_stop_beyond_the_ttl_the_command_is_ended_and_the_status_is_76() {
    let place = Place::new();
    let line = format!("echo holding; echo $$; {LIVE_ON}");
    let mut held = place.start(&["run", "--ttl", "1s", "x", "--", "sh", "-c", &line]);
    let pid: u32 = held.line().parse().unwrap();
    held.signal(Signal::STOP);
    // Somebody else is granted: the hold is over for the engine.
    let mut next = place.hold(&["--ttl", "1s", "x"]);
    assert!(lives(pid));
    held.signal(Signal::CONT);
    let (status, text) = held.end();
    assert_eq!(status, 76, "{text}");
    until("end of the command", || !lives(pid));
    assert_eq!(place.standings("x"), ["holds"], "the new holder is not disturbed");
    next.say("\n");
    assert_eq!(next.finish(), 0);
    place.assert_empty();
}

#[test]
fn a_loss_that_ended_no_command_is_a_warning_and_the_status_is_the_commands() {
    let place = Place::new();
    // With the default TTL the next renewal is seconds away when the command ends.
    for (line, own) in [("exit 0", 0), ("exit 3", 3)] {
        let line = format!("echo holding; read answer; {line}");
        let mut held = place.start(&["run", "x", "--", "sh", "-c", &line]);
        evict(&place, "x");
        held.say("\n");
        let (status, text) = held.end();
        assert_eq!(status, own, "{text}");
        assert!(text.contains("lost the lock") && text.contains("ended by itself"), "{text}");
    }
}

#[test]
fn the_end_of_a_lease_is_no_loss() {
    let place = Place::new();
    let start = Instant::now();
    let mut held = place.start(&["run", "--lease", "6s", "--ttl", "2s", "x", "--", "sh", "-c", &polite()]);
    assert_eq!(held.line(), "asked");
    // Two seconds before the end of the lease, whatever the TTL.
    let asked = start.elapsed();
    assert!(asked >= Duration::from_millis(3900) && asked < Duration::from_millis(5500), "{asked:?}");
    let (status, text) = held.end();
    assert_eq!(status, 124, "{text}");
    assert!(text.contains("the lease ends in") && text.contains("its lease of 6.0s was over"), "{text}");
    assert!(!text.contains("lost"), "{text}");
    place.assert_empty();
}

#[test]
fn a_command_that_outstays_its_lease_is_killed_when_it_ends() {
    let place = Place::new();
    let line = format!("trap '' TERM; echo holding; {LIVE_ON}");
    let start = Instant::now();
    let held = place.start(&["run", "--lease", "1s", "x", "--", "sh", "-c", &line]);
    let (status, text) = held.end();
    assert_eq!(status, 124, "{text}");
    assert!(start.elapsed() >= Duration::from_millis(900) && !text.contains("lost"), "{text}");
    place.assert_empty();
}

#[test]
fn a_lease_may_end_without_the_command() {
    let place = Place::new();
    let line = "echo holding; read answer; exit 5";
    let arguments = ["run", "--lease", "500ms", "--on-lost", "ignore", "x", "--", "sh", "-c", line];
    let mut held = place.start(&arguments);
    held.hears("the lease has ended");
    held.hears("runs on without the lock");
    place.assert_empty();
    held.say("\n");
    let (status, text) = held.end();
    assert_eq!((status, text.as_str()), (5, ""));
}

#[test]
fn a_command_that_ends_within_its_lease_is_not_disturbed() {
    let place = Place::new();
    assert_eq!(place.status(["run", "--lease", "5s", "x", "--", "true"]), (0, String::new()));
}

/// A server that is stopped: its connections stay open, and nothing is answered.
fn ends_soon_though_the_engine_is_silent(url: &str, server: &Server) {
    let place = Place::new();
    let arguments = ["run", "-e", url, "--ttl", "6s", "x", "--", "sh", "-c", &polite()];
    let mut held = place.start(&arguments);
    server.pause();
    assert_eq!(held.line(), "asked");
    let asked = Instant::now();
    let (status, text) = held.end();
    server.resume();
    assert_eq!(status, 76, "{text}");
    assert!(asked.elapsed() < Duration::from_secs(4), "lingered for {:?}: {text}", asked.elapsed());
}

#[test]
fn after_a_loss_lockkeeper_ends_soon_though_the_engine_is_silent() {
    let redis = Redis::start();
    ends_soon_though_the_engine_is_silent(&redis.url(), &redis);
}

#[test]
fn after_a_loss_lockkeeper_ends_soon_though_etcd_is_silent() {
    let etcd = Etcd::start();
    ends_soon_though_the_engine_is_silent(&etcd.url(), &etcd.servers()[0]);
}

#[test]
fn a_signal_ends_a_release_that_the_engine_does_not_answer() {
    let (place, redis) = (Place::new(), Redis::start());
    let line = "echo holding; read answer; echo done; exit 3";
    let mut held = place.start(&["run", "-e", &redis.url(), "--ttl", "30s", "x", "--", "sh", "-c", line]);
    redis.pause();
    held.say("\n");
    assert_eq!(held.line(), "done");
    std::thread::sleep(Duration::from_millis(500));
    held.signal(Signal::TERM);
    let signalled = Instant::now();
    let (status, text) = held.end();
    redis.resume();
    assert_eq!(status, 3, "{text}");
    assert!(signalled.elapsed() < Duration::from_secs(1), "{:?}", signalled.elapsed());
    assert!(text.contains("free when its TTL is over"), "{text}");
}

#[test]
fn a_release_that_the_engine_does_not_answer_is_given_up() {
    let (place, redis) = (Place::new(), Redis::start());
    let line = "echo holding; read answer; echo done";
    let mut held = place.start(&["run", "-e", &redis.url(), "--ttl", "30s", "x", "--", "sh", "-c", line]);
    redis.pause();
    held.say("\n");
    assert_eq!(held.line(), "done");
    let ended = Instant::now();
    let (status, text) = held.end();
    redis.resume();
    assert_eq!(status, 0, "{text}");
    assert!(ended.elapsed() < Duration::from_secs(8), "{:?}", ended.elapsed());
}
