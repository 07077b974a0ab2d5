//! watch: a line or an object for every change.

mod support;

use serde_json::Value;
use std::process::Stdio;
use support::{Held, Place, wait};

#[test]
fn watch_prints_a_line_for_every_change_when_piped() {
    let place = Place::new();
    let mut watch = Held::start(place.lockkeeper(["watch", "job", "--every", "20ms"]));
    let holder = place.hold(&["job/1", "--holder", "ann"]);
    let line = watch.line();
    assert!(line.contains(" holds job/1 who=\"ann\"") && line.contains("token="), "{line}");
    let waiter = place.start_waiting(&["run", "job/1", "--holder", "bob", "--", "sh", "-c", support::HOLD]);
    let waits = watch.line();
    assert!(waits.contains(" waits job/1 who=\"bob\"") && waits.contains(" waited="), "{waits}");
    assert_eq!(holder.finish(), 0);
    let left = watch.line();
    assert!(left.contains(" left job/1 who=\"ann\"") && left.contains(" held="), "{left}");
    let granted = watch.line();
    assert!(granted.contains(" holds job/1 who=\"bob\"") && granted.contains(" held="), "{granted}");
    assert_eq!(waiter.finish(), 0);
    assert!(watch.line().contains(" left job/1 who=\"bob\""));
}

#[test]
fn watch_prints_an_object_for_every_change() {
    let place = Place::new();
    let mut watch = Held::start(place.lockkeeper(["watch", "--json", "--every", "20ms"]));
    let mut change = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    let holder = place.hold(&["job", "--holder", "ann"]);
    let holds = change();
    assert_eq!((&holds["event"], &holds["name"]), (&"holds".into(), &"job".into()), "{holds}");
    let claim = &holds["claim"];
    assert_eq!((&claim["who"], &claim["pid"]), (&"ann".into(), &holder.pid().into()), "{holds}");
    assert!(
        claim["held_seconds"].is_f64() && claim["token"].is_u64() && holds["time"].is_string(),
        "{holds}"
    );
    let waiter = place.start_waiting(&["run", "job", "--holder", "bob", "--", "true"]);
    let waits = change();
    assert_eq!((&waits["event"], &waits["claim"]["who"]), (&"waits".into(), &"bob".into()), "{waits}");
    assert!(waits["claim"]["age_seconds"].is_f64(), "{waits}");
    assert_eq!(waits["claim"]["waits_for"][0], claim["id"], "{waits}");
    assert_eq!(holder.finish(), 0);
    let left = change();
    assert_eq!((&left["event"], &left["claim"]["id"]), (&"left".into(), &claim["id"]), "{left}");
    assert_eq!(waiter.finish(), 0);
}

#[test]
fn watch_ends_when_its_reader_has_gone() {
    let place = Place::new();
    let mut command = place.lockkeeper(["watch", "--every", "20ms"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(watch.stdout.take());
    assert!(wait(&mut watch).success());
}
