//! Crashes and contention: nothing is left behind, nobody is passed over, nothing is counted twice.

mod support;

use rustix::process::Signal;
use std::process::{Child, Command, Stdio};
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
    assert_eq!(place.output(["ls"]).stdout, b"NAME  AS  HOLD  WAIT  FOR  WAITED  HELD BY\n", "no ghost");
}

/// How often each of the 64 processes starts the binary. 200 shows the whole 12,800 and takes a minute or two.
fn starts_each() -> u32 {
    std::env::var("LOCKKEEPER_TEST_STARTS").ok().and_then(|number| number.parse().ok()).unwrap_or(4)
}

/// Starts 64 processes beside each other and waits for all.
fn sixty_four(mut process: impl FnMut() -> Command) {
    let workers: Vec<Child> = (0..64).map(|_| process().spawn().unwrap()).collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
}

/// Read, add one, write, with nothing but `lockkeeper run` to protect it.
#[test]
fn sixty_four_processes_count_under_run_without_losing_one() {
    let place = Place::new();
    let counter = place.path("counter");
    std::fs::write(&counter, "0\n").unwrap();
    let add = format!("read n < {0}; echo $((n + 1)) > {0}", counter.display());
    let (binary, starts) = (env!("CARGO_BIN_EXE_lockkeeper"), starts_each());
    let line = format!("for i in $(seq {starts}); do {binary} run counter -- sh -c '{add}' || exit 1; done");
    sixty_four(|| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).env("LOCKKEEPER_URL", place.url());
        shell
    });
    assert_eq!(std::fs::read_to_string(counter).unwrap(), format!("{}\n", 64 * starts));
    place.assert_empty();
}

/// The same with the library in each process, which is quicker than 12,800 starts.
#[test]
fn sixty_four_processes_count_to_12800() {
    let place = Place::new();
    let counter = place.path("counter");
    std::fs::write(&counter, "0").unwrap();
    sixty_four(|| {
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", "one_process_of_sixty_four"]).stdout(Stdio::null());
        itself.env("LOCKKEEPER_URL", place.url()).env("LOCKKEEPER_TEST_COUNTER", &counter);
        itself
    });
    assert_eq!(std::fs::read_to_string(counter).unwrap(), "12800");
    place.assert_empty();
}

/// One of the 64: does nothing unless it is told which file to count in.
#[test]
fn one_process_of_sixty_four() {
    let Some(counter) = std::env::var_os("LOCKKEEPER_TEST_COUNTER") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let keeper = lockkeeper::connect(std::env::var("LOCKKEEPER_URL").unwrap()).await.unwrap();
        for _ in 0..200 {
            let guard = keeper.mutex("counter").lock().await.unwrap();
            let number: u32 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
            std::fs::write(&counter, (number + 1).to_string()).unwrap();
            guard.release().await.unwrap();
        }
        keeper.close().await;
    });
}
