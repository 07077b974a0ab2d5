//! `elect`: a command while its candidate leads, and who leads.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use support::{LIVE_ON, Place, until};

/// A shell line that says when it leads and when it is asked to end.
fn leader() -> String {
    format!("trap 'echo asked; exit 0' TERM; echo holding; {LIVE_ON}")
}

fn candidate<'a>(line: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["elect", "x", "--ttl", "1s"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", line]);
    arguments
}

fn evict(place: &Place) {
    let (status, text) = place.status(["evict", "x", "--yes"]);
    assert_eq!(status, 0, "{text}");
}

#[test]
fn a_leader_that_loses_the_lead_ends_its_command_and_campaigns_again() {
    let place = Place::new();
    let line = leader();
    let mut candidate = place.start(&candidate(&line, &[]));
    for _ in 0..2 {
        evict(&place);
        assert_eq!(candidate.line(), "asked");
        candidate.hears("campaigning again");
        assert_eq!(candidate.line(), "holding", "it leads again");
    }
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.line(), "asked", "the signal is passed on");
    assert_eq!(candidate.end().0, 0, "the command's own status");
    place.assert_empty();
}

#[test]
fn once_exits_when_the_lead_is_lost() {
    let place = Place::new();
    let line = leader();
    let mut candidate = place.start(&candidate(&line, &["--once"]));
    evict(&place);
    assert_eq!(candidate.line(), "asked");
    let (status, text) = candidate.end();
    assert_eq!(status, 76, "{text}");
    place.assert_empty();
}

#[test]
fn a_candidate_that_is_told_to_end_while_it_loses_the_lead_does_not_campaign_again() {
    let place = Place::new();
    let line = format!("trap 'echo asked; read answer; exit 0' TERM; echo holding; {LIVE_ON}");
    let mut arguments = candidate(&line, &[]);
    arguments[3] = "6s";
    let mut candidate = place.start(&arguments);
    evict(&place);
    assert_eq!(candidate.line(), "asked");
    candidate.signal(Signal::TERM);
    candidate.say("\n");
    let (status, text) = candidate.end();
    assert_eq!(status, 76, "{text}");
    assert!(!text.contains("campaigning again"), "{text}");
}

#[test]
fn when_the_leader_dies_the_next_candidate_leads() {
    let place = Place::new();
    let first = place.start(&candidate(support::HOLD, &[]));
    let mut second = place.start_waiting(&candidate(support::HOLD, &[]));
    place.until_claims("x", 2);
    first.kill();
    assert_eq!(second.line(), "holding");
    assert_eq!(second.finish(), 0);
}

#[test]
fn a_campaign_without_the_lead_is_75_and_a_missing_command_is_64() {
    let place = Place::new();
    let leader = place.start(&candidate(support::HOLD, &["--holder", "the other one"]));
    for limit in [&["--no-wait"][..], &["--wait", "50ms"]] {
        let (status, text) = place.status(candidate("echo never", limit));
        assert_eq!(status, 75, "{text}");
        assert!(text.contains("the other one"), "{text}");
    }
    let (status, text) = place.status(["elect", "x"]);
    assert_eq!(status, 64);
    assert!(text.contains("--observe"), "{text}");
    let (status, _) = place.status(["elect", "x", "--observe", "--", "true"]);
    assert_eq!(status, 64);
    assert_eq!(leader.finish(), 0);
}

#[test]
fn an_observer_sees_every_leader_and_does_not_queue() {
    let place = Place::new();
    let mut lines = place.start_waiting(&["elect", "x", "--observe", "--ttl", "1s"]);
    let mut objects = place.start_waiting(&["elect", "x", "--observe", "--json", "--ttl", "1s"]);
    let mut next = || -> (String, Value) {
        (lines.line(), serde_json::from_str(&objects.line()).expect("an object per line"))
    };
    let (line, object) = next();
    assert!(line.ends_with("Z nobody x"), "{line}");
    assert_eq!(object["leader"], Value::Null, "{object}");
    for name in ["replica-1", "replica-2"] {
        let leader = place.start(&candidate(support::HOLD, &["--holder", name]));
        let (line, object) = next();
        assert!(line.contains(&format!(" leads x who=\"{name}\" ")), "{line}");
        assert_eq!(object["leader"]["who"], name, "{object}");
        assert_eq!(object["name"], "x");
        let token = object["leader"]["token"].as_u64().expect("a token");
        assert!(line.ends_with(&format!(" token={token}")), "{line}");
        assert_eq!(place.standings("x"), ["holds"], "nobody queues");
        assert_eq!(leader.finish(), 0);
        let (line, object) = next();
        assert!(line.ends_with("Z nobody x"), "{line}");
        assert!(object["leader"].is_null() && object["time"].is_string(), "{object}");
    }
    lines.signal(Signal::TERM);
    assert_eq!(lines.end().0, 143);
    drop(objects);
    until("nothing", || place.standings("x").is_empty());
}
