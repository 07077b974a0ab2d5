//! Several processes: killed at any moment, stopped at any moment, counting together.

use crate::support::{Helper, Locks, STUCK, connect, program};
use lockkeeper::{Connect, Token};
use rustix::process::Signal;
use std::time::Duration;

/// Pauses that fall on any moment of a lock and release, the same in each run.
fn moments(rounds: u64) -> impl Iterator<Item = Duration> {
    (0..rounds).map(|round| Duration::from_nanos(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000))
}

#[tokio::test]
async fn a_process_killed_at_any_moment_leaves_no_ghost() {
    let locks = Locks::new();
    let keeper = connect(&locks.url()).await;
    let mut last = Token(0);
    let mut rounds_with_a_dead_claim = 0;
    for pause in moments(300) {
        let mut helper = Helper::start(program("hammer 10000", &locks.url()));
        assert_eq!(helper.receive(), "ready");
        std::thread::sleep(pause);
        helper.kill();
        rounds_with_a_dead_claim += usize::from(!locks.leftovers().is_empty());
        assert!(keeper.inspect("").await.unwrap().is_empty(), "a ghost is shown");
        let guard = keeper.mutex("m").try_lock().await.unwrap().expect("a ghost holds the lock");
        assert!(guard.token().unwrap() > last);
        last = guard.token().unwrap();
        guard.release().await.unwrap();
        assert_eq!(locks.leftovers(), [""; 0]);
    }
    assert!(
        rounds_with_a_dead_claim > 30,
        "only {rounds_with_a_dead_claim} were killed while they had a claim"
    );
}

#[tokio::test]
async fn a_process_stopped_at_any_moment_does_not_stop_the_others() {
    let locks = Locks::new();
    // The helper's claims expire soon after it is stopped. Our own must not, even on a machine that is busy.
    let ttl = Duration::from_secs(4);
    let keeper = Connect::to(locks.url()).ttl(ttl).connect().await.unwrap();
    let mut helper = Helper::start(program("hammer 200", &locks.url()));
    assert_eq!(helper.receive(), "ready");
    let mut last = Token(0);
    for pause in moments(40) {
        helper.signal(Signal::STOP);
        for _ in 0..2 {
            let guard = tokio::time::timeout(STUCK, keeper.mutex("m").lock()).await.expect("stuck").unwrap();
            assert!(guard.token().unwrap() > last);
            last = guard.token().unwrap();
            guard.release().await.unwrap();
        }
        helper.signal(Signal::CONT);
        std::thread::sleep(pause);
    }
    helper.kill();
}

#[test]
fn many_processes_that_add_to_one_number_lose_no_addition() {
    let locks = Locks::new();
    let number = locks.outside().join("number");
    std::fs::write(&number, "0").unwrap();
    let task = format!("count {}", number.display());
    let helpers: Vec<_> = (0..16).map(|_| Helper::start(program(&task, &locks.url()))).collect();
    for mut helper in helpers {
        assert_eq!(helper.receive(), "done");
        helper.finish();
    }
    assert_eq!(std::fs::read_to_string(&number).unwrap(), "3200");
    assert_eq!(locks.leftovers(), [""; 0]);
}

#[tokio::test]
async fn when_the_holder_is_killed_the_first_waiter_is_next() {
    let locks = Locks::new();
    let keeper = connect(&locks.url()).await;
    let mut holder = Helper::start(program("hold m", &locks.url()));
    assert_eq!(holder.receive(), "waiting");
    assert!(holder.receive().starts_with("held "));
    let mut waiters = Vec::new();
    for expected in 1..=5 {
        let mut waiter = Helper::start(program("hold m", &locks.url()));
        assert_eq!(waiter.receive(), "waiting");
        let queued = async {
            while keeper.inspect("m").await.unwrap()[0].waiters().count() < expected {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(STUCK, queued).await.expect("the waiter does not appear");
        waiters.push(waiter);
    }
    holder.kill();
    for mut waiter in waiters {
        assert!(waiter.receive().starts_with("held "));
        waiter.kill();
    }
    assert!(keeper.inspect("").await.unwrap().is_empty(), "a ghost is shown");
}
