//! Not waiting, and waiting for a limited time.

use crate::bench::{Bench, PATIENCE, soon, soon_held};
use crate::events::Events;
use std::time::Duration;
use tracing::instrument::WithSubscriber as _;

pub(super) async fn a_free_lock_is_had_at_once(bench: Bench) {
    let keeper = bench.keeper().await;
    for _ in 0..3 {
        let guard = keeper.mutex("free").try_lock().await.expect("an answer").expect("the lock");
        guard.release().await.expect("a release");
    }
}

pub(super) async fn a_held_lock_is_not_waited_for(bench: Bench) {
    let (holder, other) = (bench.keeper().await, bench.keeper().await);
    let guard = soon_held(holder.mutex("held").lock()).await;
    assert!(soon("an answer", other.mutex("held").try_lock()).await.expect("an answer").is_none());
    assert!(soon("an answer", holder.mutex("held").try_lock()).await.expect("an answer").is_none());
    guard.release().await.expect("a release");
    assert!(other.mutex("held").try_lock().await.expect("an answer").is_some());
}

pub(super) async fn a_try_leaves_nothing_behind(bench: Bench) {
    let (holder, other, third) = (bench.keeper().await, bench.keeper().await, bench.keeper().await);
    for _ in 0..10 {
        let guard = soon_held(holder.mutex("ghost").lock()).await;
        assert!(other.mutex("ghost").try_lock().await.expect("an answer").is_none());
        guard.release().await.expect("a release");
        let guard = third.mutex("ghost").try_lock().await.expect("an answer");
        guard.expect("no ghost of the one who tried").release().await.expect("a release");
    }
}

pub(super) async fn a_timed_wait_ends_without_the_lock(bench: Bench) {
    let (holder, other, third) = (bench.keeper().await, bench.keeper().await, bench.keeper().await);
    let guard = soon_held(holder.mutex("timed").lock()).await;
    let waited =
        bench.answer(async || other.mutex("timed").lock_within(Duration::from_millis(50)).await).await;
    assert!(waited.is_none());
    guard.release().await.expect("a release");
    let guard = third.mutex("timed").try_lock().await.expect("an answer");
    assert!(guard.is_some(), "the one who gave up has left a ghost");
}

pub(super) async fn a_timed_wait_gets_a_lock_that_is_freed_in_time(bench: Bench) {
    let (holder, other) = (bench.keeper().await, bench.keeper().await);
    let guard = soon_held(holder.mutex("in-time").lock()).await;
    let waiter = tokio::spawn(async move { other.mutex("in-time").lock_within(PATIENCE).await });
    if bench.abilities().fair {
        bench.until_waiting(&holder, "in-time", 1).await;
    }
    guard.release().await.expect("a release");
    let guard = waiter.await.expect("a waiter").expect("an answer").expect("the lock");
    guard.release().await.expect("a release");
}

/// A second lock of a name that the same task holds would wait for ever; an event says so, and `holds` to a caller that got nothing.
pub(super) async fn a_task_that_waits_for_itself_is_told(bench: Bench) {
    let (keeper, other) = (bench.keeper().await, bench.keeper().await);
    let guard = soon_held(keeper.mutex("own").lock()).await;
    let told = async |keeper: &lockkeeper::Keeper, limit: Option<Duration>| {
        let (events, mutex) = (Events::default(), keeper.mutex("own"));
        let got = bench.answer(async || match limit {
            Some(limit) => mutex.lock_within(limit).with_subscriber(events.clone()).await,
            None => mutex.try_lock().with_subscriber(events.clone()).await,
        });
        assert!(got.await.is_none(), "it is held");
        events.contain("this task holds the lock already")
    };
    let limit = Some(Duration::from_millis(300));
    assert!(told(&keeper, limit).await && told(&keeper, None).await, "an event says so");
    assert!(!told(&other, limit).await && !told(&other, None).await, "the other keeper does not hold it");
    assert_eq!((keeper.holds("own").ok(), other.holds("own").ok()), (Some(true), Some(false)));
    guard.release().await.expect("a release");
    assert_eq!(keeper.holds("own").ok(), Some(false));
}
