//! At any moment at most one holds: recorded histories, judged by the checker.

use crate::bench::{Bench, soon_held};
use crate::checker::{Promises, check};
use crate::history::{ClaimRecorder, Recorder, ReleaseOutcome};
use lockkeeper::{Clock, Demand, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub(super) fn now_ns() -> u64 {
    Clock::Boot.now().as_nanos()
}

/// Records that a claim is about to be sent. The recorder has a number for it; its real id is not known yet.
pub(super) fn asks(recorder: &Recorder, client: u32, demand: Demand) -> ClaimRecorder {
    let story = recorder.claim(client, 0, rand::random());
    let (weight, limit) = (demand.weight() as u32, demand.limit() as u32);
    story.invokes(now_ns(), weight, limit);
    story
}

/// Records the grant, holds for a few turns of the scheduler, and records the release.
pub(super) async fn holds_and_releases(story: &ClaimRecorder, guard: Guard) {
    let valid = guard.valid_for();
    let at = Clock::Boot.now();
    if let Ok(token) = guard.token() {
        story.is_granted(at.as_nanos(), token.0, at.plus(valid).as_nanos());
    }
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    story.invokes_release(now_ns());
    let outcome = match guard.release().await {
        Ok(()) => ReleaseOutcome::Released,
        Err(error) if error.is_lost() => ReleaseOutcome::NotHeld,
        Err(_) => ReleaseOutcome::Unknown,
    };
    story.release_is_done(now_ns(), outcome);
}

pub(super) fn judge(recorder: &Recorder) {
    let history = recorder.history();
    let violations = check(&history, &Promises::safety());
    assert!(violations.is_empty(), "{}", violations.iter().map(|v| format!("{v}\n")).collect::<String>());
}

pub(super) async fn one_holder_at_a_time_under_contention(bench: Bench) {
    let recorder = Recorder::new();
    let mut clients = Vec::new();
    for client in 0..6 {
        let keeper = bench.keeper().await;
        let recorder = recorder.clone();
        clients.push(tokio::spawn(async move {
            for _ in 0..15 {
                let story = asks(&recorder, client, Demand::Exclusive);
                let guard = soon_held(keeper.mutex("contended").lock()).await;
                holds_and_releases(&story, guard).await;
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
    judge(&recorder);
}

pub(super) async fn a_shared_counter_stays_exact(bench: Bench) {
    // Read, pause, write: loses counts unless the lock excludes.
    let counter = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (keeper, counter) = (bench.keeper().await, Arc::clone(&counter));
        clients.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = soon_held(keeper.mutex("counter").lock()).await;
                let read = counter.load(SeqCst);
                tokio::task::yield_now().await;
                counter.store(read + 1, SeqCst);
                guard.release().await.expect("a release");
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
    assert_eq!(counter.load(SeqCst), 80);
}

pub(super) async fn many_locks_at_once_do_not_disturb_each_other(bench: Bench) {
    let keeper = bench.keeper().await;
    let mut guards = Vec::new();
    for number in 0..50 {
        let guard = keeper.mutex(format!("many/{number}")).try_lock().await.expect("an answer");
        guards.push(guard.expect("a lock of its own"));
    }
    for number in 0..50 {
        assert!(keeper.mutex(format!("many/{number}")).try_lock().await.expect("an answer").is_none());
    }
    for guard in guards {
        guard.release().await.expect("a release");
    }
}
