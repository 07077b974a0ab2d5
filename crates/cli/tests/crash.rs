//! Crashes and crowds: nothing is left behind, nobody is passed over, nothing is counted twice.

mod support;

use rustix::process::Signal;
use support::{Held, Place, until};

#[test]
fn a_waiter_that_is_told_to_end_leaves_nothing() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::USR1, 138)]
    {
        let place = Place::new();
        let holder = place.hold(&["x"]);
        let waiter = place.start_waiting(&["run", "x", "--", "echo", "never"]);
        place.until_claims("x", 2);
        waiter.signal(signal);
        assert_eq!(waiter.end().0, status);
        assert_eq!(place.standings("x"), ["holds"]);
        assert_eq!(holder.finish(), 0);
        place.assert_empty();
    }
}

#[test]
fn a_waiter_for_several_locks_that_is_told_to_end_leaves_nothing() {
    let place = Place::new();
    let holder = place.hold(&["b"]);
    let waiter = place.start_waiting(&["run", "a", "b", "--", "echo", "never"]);
    place.until_claims("b", 2);
    assert_eq!(place.standings("a"), ["holds"]);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().0, 143);
    assert!(place.standings("a").is_empty());
    assert_eq!(holder.finish(), 0);
    place.assert_empty();
}

#[test]
fn a_waiter_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let waiter = place.start_waiting(&["run", "x", "--", "echo", "never"]);
    place.until_claims("x", 2);
    waiter.kill();
    until("one claim", || place.standings("x") == ["holds"]);
    assert_eq!(holder.finish(), 0);
    place.assert_empty();
}

#[test]
fn when_the_holder_is_killed_the_first_of_five_waiters_runs_next() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let order = place.path("order");
    let waiters: Vec<Held> = (1..=5)
        .map(|number| {
            let line = format!("echo {number} >> {}", order.display());
            let waiter = place.start_waiting(&["run", "x", "--", "sh", "-c", &line]);
            place.until_claims("x", number + 1);
            waiter
        })
        .collect();
    holder.kill();
    for waiter in waiters {
        assert_eq!(waiter.finish(), 0);
    }
    assert_eq!(std::fs::read_to_string(order).unwrap(), "1\n2\n3\n4\n5\n");
    place.assert_empty();
    assert_eq!(place.output(["ls"]).stdout, b"NAME  AS  HOLD  WAIT  FOR  HELD BY\n", "no ghost");
}

/// 64 processes, each 200 times: read, add one, write, with nothing but the lock to protect it.
#[test]
fn sixty_four_processes_count_to_12800() {
    let place = Place::new();
    let counter = place.path("counter");
    std::fs::write(&counter, "0\n").unwrap();
    let add = format!("read n < {0}; echo $((n + 1)) > {0}", counter.display());
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let many = format!("for i in $(seq 200); do {binary} run counter -- sh -c '{add}' || exit 1; done");
    let workers: Vec<_> = (0..64)
        .map(|_| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &many]).env("LOCKKEEPER_URL", place.url()).spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(counter).unwrap(), "12800\n");
    place.assert_empty();
}
