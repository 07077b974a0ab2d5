//! Losing a lock: the signal comes before anybody else can hold it, and the loser harms nobody.

use crate::bench::{Bench, soon, soon_held};
use crate::events::Events;
use lockkeeper::{Error, Keeper, State};
use lockkeeper_core::engine::Clock;
use tracing::instrument::WithSubscriber as _;

/// Evicts the holder of a lock. Another keeper's hold may be shown a moment after its grant only.
pub(super) async fn evict_holder(bench: &Bench, keeper: &Keeper, name: &str) {
    bench.until("the hold is shown", async || bench.look(keeper, name).await.is_some()).await;
    let lock = bench.look(keeper, name).await.expect("the lock is in use");
    let holder = lock.holders().next().expect("a holder").id.clone();
    assert!(keeper.evict(name, &holder).await.expect("an answer"), "the holder was there");
}

pub(super) async fn an_evicted_hold_is_lost_and_frees_the_lock(bench: Bench) {
    let (keeper, other) =
        (bench.keeper_with(bench.short_ttl()).await, bench.keeper_with(bench.long_ttl()).await);
    let guard = soon_held(keeper.mutex("evicted").lock()).await;
    evict_holder(&bench, &other, "evicted").await;
    let next = soon_held(other.mutex("evicted").lock()).await;
    assert!(soon("the lost signal", guard.lost()).await.is_lost());
    assert_eq!(guard.state(), State::Lost);
    assert!(guard.token().is_err());
    assert_ne!(next.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    assert!(!other.evict("evicted", &guard.claim()).await.expect("an answer"), "it is not there any more");
}

pub(super) async fn releasing_a_lost_guard_harms_nobody(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let lost = soon_held(keeper.mutex("late").lock()).await;
    evict_holder(&bench, &keeper, "late").await;
    let next = soon_held(keeper.mutex("late").lock()).await;
    let released = lost.release().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    assert!(keeper.mutex("late").try_lock().await.expect("an answer").is_none(), "the next one still holds");
    next.release().await.expect("its hold was not touched");
}

pub(super) async fn an_eviction_leaves_the_keepers_other_lock_alone(bench: Bench) {
    let (keeper, operator) =
        (bench.keeper_with(bench.short_ttl()).await, bench.keeper_with(bench.long_ttl()).await);
    let evicted = soon_held(keeper.mutex("evicted").lock()).await;
    let other = soon_held(keeper.mutex("other").lock()).await;
    evict_holder(&bench, &operator, "evicted").await;
    soon("the lost signal", evicted.lost()).await;
    if bench.abilities().evict_ends_others {
        soon("the loss of the other one, as is said before", other.lost()).await;
        return;
    }
    soon("renewals", tokio::time::sleep(bench.short_ttl() * 2)).await;
    assert_ne!(other.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    assert!(operator.mutex("other").try_lock().await.expect("an answer").is_none());
    other.release().await.expect("its hold was not touched");
}

pub(super) async fn lost_fires_before_the_next_grant_when_renewals_are_cut(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("cut").lock()).await;
    let other = bench.keeper_with(bench.long_ttl()).await;
    let next = tokio::spawn(async move {
        let guard = soon_held(other.mutex("cut").lock()).await;
        (Clock::Boot.now(), guard)
    });
    engine.cut(true);
    bench.until("the hold is in doubt", async || guard.state() != State::Held).await;
    soon("the lost signal", guard.lost()).await;
    let lost_at = Clock::Boot.now();
    assert_eq!(guard.state(), State::Lost);
    engine.cut(false);
    let (granted_at, next) = next.await.expect("the next one");
    assert!(lost_at <= granted_at, "lost {:?} after the next grant", lost_at.since(granted_at));
    next.release().await.expect("a release");
}

pub(super) async fn a_claim_that_is_not_renewed_expires(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("expires").lock()).await;
    engine.cut(true);
    let other = bench.keeper_with(bench.long_ttl()).await;
    let next = soon_held(other.mutex("expires").lock()).await;
    assert_eq!(guard.state(), State::Lost);
    assert_ne!(next.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    engine.cut(false);
}

/// Law 2.
pub(super) async fn a_late_renewal_does_not_revive(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("late").lock()).await;
    bench.until("a renewal was sent", async || engine.calls().1 > 0).await;
    engine.cut(true);
    let other = bench.keeper_with(bench.long_ttl()).await;
    evict_holder(&bench, &other, "late").await;
    let next = soon_held(other.mutex("late").lock()).await;
    // A server that fails may take more than one renewal to find it out, but no renewal may revive the claim.
    bench
        .until("the evicted claim is found dead", async || {
            engine.replay_last_renewal().await.is_ok_and(|kept| kept.dead.len() == 1)
        })
        .await;
    assert!(soon("the lost signal", guard.lost()).await.is_lost());
    let lock = bench.look(&other, "late").await.expect("the lock is in use");
    let holders: Vec<_> = lock.holders().map(|claim| claim.id.clone()).collect();
    assert_eq!(holders, [next.claim()], "only the next one holds");
    engine.cut(false);
}

pub(super) async fn work_under_protection_is_cancelled_on_loss(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("protected").lock()).await;
    assert_eq!(guard.protect(async { 7 }).await.expect("held"), 7);
    evict_holder(&bench, &keeper, "protected").await;
    let work = soon("the work is cancelled", guard.protect(std::future::pending::<()>())).await;
    assert!(matches!(work, Err(Error::Lost { .. })));
}

/// A waiter never held, so it loses nothing: it joins again, at the back, and says so.
pub(super) async fn an_evicted_waiter_joins_again(bench: Bench) {
    evict_the_first_of_two_waiters(bench).await;
}

pub(super) async fn a_wait_that_joins_again_says_so(bench: Bench) {
    let events = evict_the_first_of_two_waiters(bench).await;
    assert!(events.contain("joining again at the back of the queue"), "an event says so");
}

/// What it wrote, after both have had their turns.
async fn evict_the_first_of_two_waiters(bench: Bench) -> Events {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let holder = soon_held(keeper.mutex("queue").lock()).await;
    let (events, mut waiters) = (Events::default(), Vec::new());
    for waiting in 1..=2 {
        let mutex = keeper.mutex("queue");
        let wait = async move { mutex.lock().await };
        waiters.push(tokio::spawn(wait.with_subscriber(events.clone())));
        bench.until_waiting(&keeper, "queue", waiting).await;
    }
    let ids = async || {
        let lock = bench.look(&keeper, "queue").await.expect("the lock is in use");
        lock.waiters().map(|waiter| waiter.id.clone()).collect::<Vec<_>>()
    };
    let [evicted, next]: [String; 2] = ids().await.try_into().expect("two waiters");
    assert!(keeper.evict("queue", &evicted).await.expect("an answer"));
    let is_back = async || {
        let now = ids().await;
        now.len() == 2 && !now.contains(&evicted)
    };
    bench.until("the waiter is back with another claim", is_back).await;
    assert_eq!(ids().await[0], next, "who was behind it is ahead of it now");
    holder.release().await.expect("the holder is not touched");
    for waiter in waiters.into_iter().rev() {
        let granted = soon("the waiter's turn", waiter).await.expect("no panic").expect("a grant");
        granted.release().await.expect("a release");
    }
    events
}
