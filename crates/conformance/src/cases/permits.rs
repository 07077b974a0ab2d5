//! Semaphores: never more than the limit, in order, and no lost wake-up.

use super::exclusion::a_moment;
use crate::bench::{Bench, soon_held};
use crate::history::Recorder;
use lockkeeper::Error;
use lockkeeper::views::Demand;

pub(super) async fn never_more_than_the_limit(bench: Bench) {
    let recorder = Recorder::new();
    let mut clients = Vec::new();
    for client in 0..6 {
        let (keeper, recorder) = (bench.keeper().await, recorder.clone());
        clients.push(tokio::spawn(async move {
            for round in 0..10 {
                let want = (round + client) % 3 + 1;
                let story = recorder.asks(client, 0, Demand::Permits { want, of: 4 });
                let guard = soon_held(keeper.semaphore("slots", 4).acquire(want)).await;
                story.gets(Ok(Some(guard)), a_moment()).await;
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
    recorder.judged();
}

pub(super) async fn several_permits_at_once(bench: Bench) {
    let keeper = bench.keeper().await;
    let slots = keeper.semaphore("weights", 4);
    let three = soon_held(slots.acquire(3)).await;
    assert!(slots.try_acquire(2).await.expect("an answer").is_none());
    let one = slots.try_acquire(1).await.expect("an answer").expect("one is left");
    assert!(slots.try_acquire(1).await.expect("an answer").is_none());
    three.release().await.expect("a release");
    let more = slots.try_acquire(3).await.expect("an answer").expect("three are free again");
    one.release().await.expect("a release");
    more.release().await.expect("a release");
    for wrong in [0, 5] {
        assert!(matches!(slots.acquire(wrong).await, Err(Error::Invalid(_))));
    }
}

pub(super) async fn a_large_want_is_not_overtaken_by_small_ones(bench: Bench) {
    let keeper = bench.keeper().await;
    let two = soon_held(keeper.semaphore("patient", 3).acquire(2)).await;
    let large = tokio::spawn({
        let keeper = keeper.clone();
        async move { soon_held(keeper.semaphore("patient", 3).acquire(3)).await }
    });
    bench.until_waiting(&keeper, "patient", 1).await;
    let small = keeper.semaphore("patient", 3).try_acquire(1).await.expect("an answer");
    assert!(small.is_none(), "the large want would starve");
    two.release().await.expect("a release");
    large.await.expect("the large want").release().await.expect("a release");
}

/// a and b hold, c and me wait; a leaves, c holds; c leaves: I must be woken although b, my neighbour's neighbour, is
/// still there.
pub(super) async fn no_wake_up_is_lost_when_the_first_and_the_third_leave(bench: Bench) {
    // The TTL is long: only a wake-up can help.
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let slots = || keeper.semaphore("abc", 2);
    let a = soon_held(slots().acquire(1)).await;
    let b = soon_held(slots().acquire(1)).await;
    let wait = || {
        let slots = slots();
        tokio::spawn(async move { soon_held(slots.acquire(1)).await })
    };
    let c = wait();
    bench.until_waiting(&keeper, "abc", 1).await;
    let me = wait();
    bench.until_waiting(&keeper, "abc", 2).await;
    a.release().await.expect("a release");
    c.await.expect("c").release().await.expect("a release");
    me.await.expect("me").release().await.expect("a release");
    b.release().await.expect("a release");
}

pub(super) async fn everybody_must_agree_on_the_number(bench: Bench) {
    let keeper = bench.keeper().await;
    let guard = soon_held(keeper.semaphore("agreed", 3).acquire(1)).await;
    let other = keeper.semaphore("agreed", 4).acquire(1).await;
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    guard.release().await.expect("a release");
    bench.until_idle(&keeper, "agreed").await;
    let other = soon_held(keeper.semaphore("agreed", 4).acquire(4)).await;
    other.release().await.expect("a release");
}
