//! Whatever is dropped, whenever: nothing is left behind, and the next one gets the lock.

use crate::bench::{Bench, is_free, soon_held};
use lockkeeper::{Error, Guard, Result, State};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Polls a future up to a number of times, then gives it up.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last poll is used up: drop it now, at this very await point.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn limited<F: Future>(polls: usize, future: F) -> Polls<F> {
    Polls { future: Box::pin(future), left: polls }
}

pub(super) async fn a_future_dropped_at_any_await_point_leaves_nothing(bench: Bench) {
    // The TTL is long: only a leave can free the lock.
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    for polls in 0.. {
        let done = limited(polls, keeper.mutex("dropped").lock()).await;
        let finished = done.is_some();
        drop(done);
        is_free(&keeper, "dropped").await;
        bench.until_idle(&keeper, "dropped").await;
        if finished {
            return;
        }
    }
}

pub(super) async fn a_wait_dropped_at_any_await_point_leaves_nothing(bench: Bench) {
    let (keeper, other) =
        (bench.keeper_with(bench.long_ttl()).await, bench.keeper_with(bench.long_ttl()).await);
    for polls in 1..12 {
        let holder = soon_held(keeper.mutex("waited").lock()).await;
        let mutex = other.mutex("waited");
        let wait = limited(polls, mutex.lock());
        // A wait that is not woken again is dropped by the time limit instead.
        let given_up: Option<Option<Result<Guard>>> =
            tokio::time::timeout(Duration::from_millis(30), wait).await.ok();
        assert!(given_up.flatten().is_none(), "the lock is held by another");
        holder.release().await.expect("a release");
        is_free(&keeper, "waited").await;
        bench.until_idle(&keeper, "waited").await;
    }
}

pub(super) async fn a_dropped_guard_frees_the_lock(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    for _ in 0..5 {
        drop(soon_held(keeper.mutex("let-go").lock()).await);
        is_free(&keeper, "let-go").await;
    }
}

pub(super) async fn a_release_dropped_half_way_still_frees_the_lock(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    for polls in 0..4 {
        let guard = soon_held(keeper.mutex("half-way").lock()).await;
        drop(limited(polls, guard.release()).await);
        is_free(&keeper, "half-way").await;
    }
}

pub(super) async fn a_guard_outlives_its_keeper_handle(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let ttl = keeper.ttl();
    let guard = soon_held(keeper.mutex("orphan").lock()).await;
    drop(keeper);
    let other = bench.keeper_with(bench.long_ttl()).await;
    let waited = bench.answer(async || other.mutex("orphan").lock_within(ttl * 2).await).await;
    assert!(waited.is_none(), "it is still renewed");
    assert_ne!(guard.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    drop(guard);
    is_free(&other, "orphan").await;
}

pub(super) async fn a_closed_keeper_frees_everything(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let other = bench.keeper_with(bench.long_ttl()).await;
    let mut guards = Vec::new();
    for number in 0..5 {
        guards.push(soon_held(keeper.mutex(format!("closing/{number}")).lock()).await);
    }
    keeper.clone().close().await;
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.state(), State::Lost);
        is_free(&other, &format!("closing/{number}")).await;
    }
    assert!(matches!(keeper.mutex("closing/0").lock().await, Err(Error::Invalid(_))));
}
