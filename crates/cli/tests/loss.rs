//! A command whose lock is lost is ended, all of it, before anybody else may rely on the lock.

mod support;

use rustix::process::Signal;
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
    assert_eq!(status, 76, "{text}");
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
fn a_loss_that_nobody_noticed_in_time_is_told_at_the_end() {
    let place = Place::new();
    // With the default TTL the next renewal is seconds away when the command ends.
    let mut held = place.start(&["run", "x", "--", "sh", "-c", "echo holding; read answer; exit 0"]);
    evict(&place, "x");
    held.say("\n");
    let (status, text) = held.end();
    assert_eq!(status, 76, "{text}");
}
