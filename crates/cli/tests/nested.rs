//! Runs inside runs, as real processes: what a command claims belongs to the run around it.

mod support;

use lockkeeper_testkit::Redis;
use serde_json::Value;
use support::{Held, Place, until};

/// Two runs, each inside its own, that take two locks in opposite orders.
fn crossed(place: &Place, url: &str) {
    let run = |outer: &str, inner: &str| {
        let line = format!("echo holding; read go; exec \"$0\" run {inner} -- true");
        let mut command =
            place.lockkeeper(["run", outer, "--", "sh", "-c", &line, env!("CARGO_BIN_EXE_lockkeeper")]);
        command.env("LOCKKEEPER_URL", url);
        let mut held = Held::start(command);
        assert_eq!(held.line(), "holding");
        held
    };
    let text = |arguments: &[&str]| {
        let output = place.lockkeeper(arguments).env("LOCKKEEPER_URL", url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut watch = Held::start({
        let mut command = place.lockkeeper(["watch", "--every", "20ms"]);
        command.env("LOCKKEEPER_URL", url);
        command
    });
    let (mut one, mut other) = (run("a", "b"), run("b", "a"));
    assert!(!text(&["ls"]).contains("deadlock?"), "nobody waits yet");
    one.say("\n");
    other.say("\n");
    until("ls shows the deadlock", || text(&["ls"]).contains("deadlock?"));
    while !watch.line().contains("deadlock? ") {}
    let shown = text(&["show", "a"]);
    assert!(shown.contains("waits for a behind") && shown.contains("waits for b behind"), "{shown}");
    let lock: Value = serde_json::from_str(&text(&["show", "a", "--json"])).unwrap();
    assert_eq!(lock["deadlocks"][0].as_array().unwrap().len(), 2, "{lock}");
    let (outer, waits) = (&lock["claims"][0], &lock["claims"][1]);
    assert_eq!((&outer["run"], &waits["run"]), (&Value::Null, &other.pid().into()), "{lock}");
    assert_eq!(outer["host"], waits["host"], "{lock}");
    one.kill();
    other.kill();
}

#[test]
fn crossed_runs_are_a_deadlock_on_files() {
    let place = Place::new();
    crossed(&place, &place.url());
}

#[test]
fn crossed_runs_are_a_deadlock_on_redis() {
    let redis = Redis::start();
    crossed(&Place::new(), &format!("redis://127.0.0.1:{}", redis.port()));
}
