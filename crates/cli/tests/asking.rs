//! `evict --ask`: a holder is asked before force, and says what it does.

mod support;

use lockkeeper_testkit::{MariaDb, Postgres};
use support::{LIVE_ON, Place};

/// A shell line that says 'asked' when it gets TERM, and ends then.
fn polite() -> String {
    format!("trap 'echo asked; exit 7' TERM; echo holding; {LIVE_ON}")
}

#[test]
fn a_command_that_is_asked_for_its_lock_gets_term_and_its_status_stays() {
    let place = Place::new();
    let mut held = place.start(&["run", "--ttl", "1s", "x", "--", "sh", "-c", &polite()]);
    let (status, text) = place.status(["evict", "x", "--ask"]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(held.line(), "asked");
    let (status, text) = held.end();
    assert_eq!(status, 7, "the command's own: {text}");
    assert!(text.contains("somebody asks for the lock: sending TERM"), "{text}");
    place.assert_empty();
}

#[test]
fn a_leader_that_is_asked_resigns_and_does_not_campaign_again() {
    let place = Place::new();
    let leader = place.start(&["elect", "--ttl", "1s", "x", "--", "sh", "-c", &polite()]);
    assert_eq!(place.status(["evict", "lockkeeper/x", "--ask"]).0, 0);
    assert_eq!(leader.end().0, 7);
    place.assert_empty();
}

#[test]
fn a_holder_that_goes_on_is_only_removed_by_force() {
    let place = Place::new();
    let held = place.start(&[
        "run",
        "--ttl",
        "1s",
        "--on-ask",
        "ignore",
        "x",
        "--holder",
        "ann",
        "--",
        "sh",
        "-c",
        support::HOLD,
    ]);
    let (status, text) = place.status(["evict", "x", "--ask", "--wait", "10ms"]);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("may not know yet: it renews every 3.3s"), "{text}");
    let (status, text) = place.status(["--ttl", "1s", "evict", "x", "--ask", "--wait", "1500ms"]);
    assert_eq!(status, 1, "{text}");
    assert!(!text.contains("may not know"), "it has had the time for a renewal: {text}");
    assert!(text.contains("still there after 1.5s: ann") && text.contains("--then-force"), "{text}");
    let (status, text) = place.status(["evict", "x", "--ask", "--wait", "1s", "--then-force"]);
    assert_eq!(status, 64, "force needs a confirmation: {text}");
    let (status, text) = place.status(["evict", "x", "--ask", "--wait", "1s", "--then-force", "--yes"]);
    assert_eq!(status, 0, "{text}");
    let (status, text) = held.end();
    assert_eq!(status, 76, "{text}");
    assert!(text.contains("the command runs on, as --on-ask ignore says"), "{text}");
    place.assert_empty();
}

#[test]
fn only_with_ask_there_is_something_to_wait_for() {
    let place = Place::new();
    for option in [&["--then-force"][..], &["--wait", "1s"]] {
        let arguments = [&["evict", "x", "--yes"], option].concat();
        let (status, text) = place.status(arguments);
        assert_eq!(status, 64, "{text}");
        assert!(text.contains("--ask"), "{text}");
    }
}

#[test]
fn an_eviction_that_ends_other_locks_says_so_before() {
    let place = Place::new();
    let warns = |url: &str| {
        let held =
            place.start(&["-e", url, "run", "--on-lost", "ignore", "x", "--", "sh", "-c", support::HOLD]);
        // MariaDB shows a hold after a moment only.
        support::until("the hold is shown", || {
            place.output(["-e", url, "show", "x"]).stdout.starts_with(b"#")
        });
        let (status, text) = place.status(["-e", url, "evict", "x", "--yes"]);
        assert_eq!(status, 0, "{text}");
        held.finish();
        text.contains("and with it other locks of the same process")
    };
    let (mariadb, postgres) = (MariaDb::start(), Postgres::start());
    assert!(warns(&format!("{}?style=advisory", mariadb.url())));
    assert!(!warns(&format!("{}?style=session", mariadb.url())));
    assert!(!warns(&format!("{}?style=advisory", postgres.url())));
}
