//! Locks held from one step to the next: acquire, renew, release, run --with; and turns: run --once-per.

mod support;

use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Held, Place, until};

/// An engine to run on.
struct On {
    place: Place,
    url: String,
    _server: Option<lockkeeper_testkit::Redis>,
}

impl On {
    /// The engines that keep a hold without its process in three ways: in files, in a database, at a server.
    fn each() -> Vec<Self> {
        let [file, sqlite, redis] = [(); 3].map(|()| Place::new());
        let server = lockkeeper_testkit::Redis::start();
        let (sqlite_url, redis_url) = (format!("sqlite:{}", sqlite.path("locks.db").display()), server.url());
        vec![
            Self { url: file.url(), place: file, _server: None },
            Self { url: sqlite_url, place: sqlite, _server: None },
            Self { url: redis_url, place: redis, _server: Some(server) },
        ]
    }

    fn lockkeeper(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.lockkeeper(arguments);
        command.env("LOCKKEEPER_URL", &self.url);
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.lockkeeper(arguments).output().unwrap()
    }

    fn status(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.output(arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// What a call that succeeds prints.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{}: {output:?}", self.url);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn is_free(&self, name: &str) -> bool {
        self.status(&["run", "-n", name, "--", "true"]).0 == 0
    }
}

#[test]
fn a_lock_is_held_from_one_step_to_the_next() {
    for on in On::each() {
        let handle = on.prints(&["acquire", "deploy/prod", "--for", "30m"]);
        assert!(handle.starts_with("lockkeeper1:") && !handle.contains(char::is_whitespace), "{handle}");
        assert!(!on.is_free("deploy/prod"), "{}", on.url);
        assert_eq!(on.status(&["acquire", "deploy/prod", "--for", "1m", "--no-wait"]).0, 75);
        let inside = "echo $LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN";
        let first = on.prints(&["run", "--with", &handle, "--", "sh", "-c", inside]);
        let token = first.strip_prefix("deploy/prod ").expect("the name").to_owned();
        assert!(handle.contains(&format!(":{token}:")), "{handle} has another token than {token}");
        assert!(!on.is_free("deploy/prod"), "{}: it stays held after a step", on.url);
        let renewed = on.prints(&["renew", &handle, "--for", "1h"]);
        assert_eq!(renewed.split(":2").next(), handle.split(":2").next(), "only the time differs");
        assert_eq!(on.prints(&["run", "--with", &handle, "--", "sh", "-c", inside]), first);
        assert_eq!(on.status(&["release", &renewed]), (0, String::new()));
        assert!(on.is_free("deploy/prod"), "{}", on.url);
        for arguments in [&["release", &handle][..], &["renew", &handle, "--for", "1m"]] {
            let (status, text) = on.status(arguments);
            assert_eq!(status, 76, "{}: {text}", on.url);
            assert!(text.contains("no longer has the claim"), "{text}");
        }
        assert_eq!(on.status(&["run", "--with", &handle, "--", "true"]).0, 76);
    }
}

#[test]
fn a_step_under_an_old_handle_does_not_undo_a_renewal() {
    let each: Vec<(On, String)> = On::each()
        .into_iter()
        .map(|on| {
            let old = on.prints(&["acquire", "a", "--for", "5s"]);
            on.prints(&["renew", &old, "--for", "1h"]);
            (on, old)
        })
        .collect();
    // Past the old handle's time.
    std::thread::sleep(Duration::from_secs(5));
    for (on, old) in each {
        on.prints(&["run", "--with", &old, "--", "true"]);
        assert!(!on.is_free("a"), "{}: it was renewed for an hour", on.url);
        let left = on.prints(&["show", "a", "--json"]);
        let left: serde_json::Value = serde_json::from_str(&left).unwrap();
        let left = left["claims"][0]["ttl_left_seconds"].as_f64().expect("a time");
        assert!(left > 3500.0, "{}: {left} s are left of an hour", on.url);
        assert_eq!(on.status(&["release", &old]).0, 0, "{}", on.url);
    }
}

#[test]
fn the_last_step_may_release() {
    let place = Place::new();
    let handle = String::from_utf8(place.output(["acquire", "a", "--for", "10m"]).stdout).unwrap();
    assert_eq!(place.status(["run", "--with", handle.trim(), "--release", "--", "sh", "-c", "exit 3"]).0, 3);
    place.assert_empty();
}

#[test]
fn a_hold_ends_when_its_time_is_over() {
    let place = Place::new();
    let start = Instant::now();
    assert!(place.output(["acquire", "a", "--for", "1s"]).status.success());
    assert_eq!(place.status(["run", "--wait", "30s", "a", "--", "true"]).0, 0);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A killed step does not cut the time short that the first one promised.
#[test]
fn a_killed_step_leaves_the_lock_held() {
    for on in On::each() {
        let handle = on.prints(&["--ttl", "1s", "acquire", "a", "--for", "10m"]);
        let mut step = Held::start(on.lockkeeper(&[
            "--ttl",
            "1s",
            "run",
            "--with",
            &handle,
            "--",
            "sh",
            "-c",
            support::HOLD,
        ]));
        assert_eq!(step.line(), "holding");
        step.kill();
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!on.is_free("a"), "{}", on.url);
        assert_eq!(on.status(&["release", &handle]).0, 0, "{}", on.url);
    }
}

#[test]
fn a_handle_comes_from_standard_input_or_a_variable_and_as_json() {
    let place = Place::new();
    let json: serde_json::Value =
        serde_json::from_slice(&place.output(["acquire", "a", "--for", "10m", "--json"]).stdout).unwrap();
    assert_eq!((&json["name"], &json["full_name"]), (&"a".into(), &"lockkeeper/a".into()));
    assert!(json["token"].is_u64() && json["until"].as_str().unwrap().ends_with('Z'), "{json}");
    let handle = json["handle"].as_str().unwrap();
    let mut renew = place.lockkeeper(["renew", "--for", "20m"]);
    assert!(renew.env("LOCKKEEPER_HANDLE", handle).output().unwrap().status.success());
    let mut release = Held::start(place.lockkeeper(["release", "-"]));
    release.say(handle);
    assert_eq!(release.finish(), 0);
    place.assert_empty();
}

#[test]
fn what_is_no_handle_of_this_engine_is_refused() {
    let place = Place::new();
    let handle = String::from_utf8(place.output(["acquire", "a", "--for", "10m"]).stdout).unwrap();
    let handle = handle.trim();
    let redis = handle.replacen(":file:", ":redis:", 1);
    for (arguments, why) in [
        (vec!["release", "deploy"], "not one of lockkeeper's"),
        (vec!["release", &handle[..30]], "bad handle"),
        (vec!["release", &redis], "is of redis"),
        (vec!["release", "--namespace", "shop", handle], "namespace"),
        (vec!["run", "--with", "x", "--", "true"], "not one of lockkeeper's"),
        (vec!["run", "--with", handle, "a", "--", "true"], "cannot be used with"),
        (vec!["acquire", "a", "--for", "1ms"], "30 days"),
        (vec!["acquire", "a"], "--for"),
        (vec!["run", "--retry-failed", "a", "--", "true"], "--once-per"),
        (vec!["run", "--once-per", "5m", "--wait", "1s", "a", "--", "true"], "cannot be used with"),
    ] {
        let (status, text) = place.status(&arguments);
        assert_eq!(status, 64, "{arguments:?}: {text}");
        assert!(text.contains(why), "{arguments:?}: {text}");
    }
    assert_eq!(place.status(["release", handle]).0, 0);
}

#[test]
fn of_three_calls_in_one_period_one_runs() {
    for on in On::each() {
        let turn = |name: &str| {
            let mut statuses = Vec::new();
            for _ in 0..3 {
                let (status, text) =
                    on.status(&["run", "--once-per", "5m", name, "--", "sh", "-c", "echo ran >> ran"]);
                if status == 75 {
                    assert!(text.contains("already ran") && text.contains("next turn comes in 4m"), "{text}");
                }
                statuses.push(status);
                std::thread::sleep(Duration::from_millis(300));
            }
            statuses
        };
        assert_eq!(turn("nightly"), [0, 75, 75], "{}", on.url);
        assert_eq!(std::fs::read_to_string(on.place.path("ran")).unwrap(), "ran\n", "{}", on.url);
        assert_eq!(on.status(&["run", "--once-per", "5m", "-E", "0", "nightly", "--", "false"]).0, 0);
    }
}

#[test]
fn the_next_period_has_a_turn_of_its_own() {
    let place = Place::new();
    let turn = || place.status(["run", "--once-per", "1s", "tick", "--", "true"]).0;
    let start = Instant::now();
    assert_eq!(turn(), 0);
    until("the next turn", || turn() == 0);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn a_command_that_outlasts_its_period_has_no_known_end() {
    let place = Place::new();
    let turn = ["run", "--once-per", "1s", "tick", "--"];
    let winner = place.start(&[&turn[..], &["sh", "-c", support::HOLD]].concat());
    until("the period is over", || place.show("tick")["claims"][0]["held_seconds"].as_f64() > Some(1.0));
    let (status, text) = place.status([&turn[..], &["true"]].concat());
    assert!(status == 75 && text.trim().ends_with(" at the earliest"), "{text}");
    assert_eq!(winner.finish(), 0);
}

#[test]
fn a_killed_winner_keeps_its_turn() {
    for on in On::each() {
        let arguments =
            ["--ttl", "1s", "run", "--once-per", "10m", "nightly", "--", "sh", "-c", support::HOLD];
        let mut winner = Held::start(on.lockkeeper(&arguments));
        assert_eq!(winner.line(), "holding");
        winner.kill();
        std::thread::sleep(Duration::from_millis(2500));
        let (status, text) = on.status(&["run", "--once-per", "10m", "nightly", "--", "true"]);
        assert_eq!(status, 75, "{}: {text}", on.url);
    }
}

#[test]
fn a_failed_command_gives_its_turn_back_if_asked_to() {
    for on in On::each() {
        let fails = ["run", "--once-per", "10m", "--retry-failed", "job", "--", "sh", "-c", "exit 3"];
        assert_eq!(on.status(&fails).0, 3);
        assert_eq!(on.status(&fails).0, 3, "{}: the turn was given back", on.url);
        assert_eq!(on.status(&["run", "--once-per", "10m", "--retry-failed", "job", "--", "true"]).0, 0);
        assert_eq!(on.status(&fails).0, 75, "{}: it has succeeded", on.url);
        let without = ["run", "--once-per", "10m", "other", "--", "sh", "-c", "exit 3"];
        assert_eq!((on.status(&without).0, on.status(&without).0), (3, 75), "{}", on.url);
    }
}
