//! `lockkeeper torture` lets faults loose on an engine, says what held, and leaves nothing behind.

#![cfg(feature = "torture")]

mod support;

use lockkeeper_testkit::Redis;
use serde_json::Value;
use support::Place;

#[test]
fn what_held_is_said_in_words() {
    let place = Place::new();
    let output = place.output(["torture", "--only", "kill", "--rounds", "1", "--seed", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in [
        "file queue, TTL 2s, seed 5: 1 fault; its network",
        "held   kill: a process was killed",
        "Every promise held",
    ] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
}

#[test]
fn the_network_of_a_server_is_cut() {
    let (place, redis) = (Place::new(), Redis::start());
    // With a long TTL, so that what a busy machine delays is no loss.
    let engine = ["torture", "--engine", &redis.url(), "--ttl", "4s"];
    let output = place.output(engine.iter().chain(&["--only", "cut", "--rounds", "1", "--json"]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = &report["faults"][0];
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!((&report["engine"], &verdict["fault"]), (&Value::from("redis"), &Value::from("cut")));
    assert!(verdict["holds"].as_u64().unwrap() > 0 && verdict["strikes"] == 1, "{report}");
}

#[test]
fn the_verdicts_are_json_for_programs_and_no_lock_is_left() {
    let place = Place::new();
    let output = place.output(["torture", "--only", "pause", "--rounds", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = &report["faults"][0];
    assert_eq!((&report["held"], &verdict["fault"]), (&Value::from(true), &Value::from("pause")));
    assert!(verdict["holds"].as_u64().unwrap() > 0 && verdict["strikes"] == 1, "{report}");
    let left = place.output(["ls", "--namespace", "", "--json"]);
    assert_eq!(String::from_utf8(left.stdout).unwrap().trim(), "[]");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let place = Place::new();
    for (arguments, status, word) in [
        (vec!["torture", "--only", "cut"], 64, "cut"),
        (vec!["torture", "--only", "flood"], 64, "flood"),
        (vec!["torture", "--namespace", "mine"], 64, "namespace"),
        (vec!["torture", "--engine", "memory:"], 64, "one process"),
        (vec!["torture", "--engine", "redis://127.0.0.1:1"], 69, "redis"),
    ] {
        let (code, error) = place.status(&arguments);
        assert_eq!(code, status, "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}
