//! At any moment at most one holds: recorded histories, judged by the checker.

use crate::bench::{Bench, soon_held};
use crate::history::Recorder;
use lockkeeper::views::Demand;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How long clients hold: a few turns of the scheduler.
pub(super) async fn a_moment() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn one_holder_at_a_time_under_contention(bench: Bench) {
    let recorder = Recorder::new();
    let mut clients = Vec::new();
    for client in 0..6 {
        let keeper = bench.keeper().await;
        let recorder = recorder.clone();
        clients.push(tokio::spawn(async move {
            for _ in 0..15 {
                let story = recorder.asks(client, 0, Demand::Exclusive);
                let guard = soon_held(keeper.mutex("contended").lock()).await;
                story.gets(Ok(Some(guard)), a_moment()).await;
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
    recorder.judged();
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
