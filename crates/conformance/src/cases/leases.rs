//! Renewal, fixed leases, and what keeps running while the user's executor does not.

use crate::bench::{Bench, PATIENCE, is_free, soon, soon_held};
use lockkeeper::{Error, LostReason, State};
use lockkeeper_core::engine::Clock;
use std::time::Duration;

pub(super) async fn a_fixed_lease_frees_itself(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let guard = soon_held(keeper.mutex("fixed").lease(Duration::from_millis(300)).lock()).await;
    assert!(guard.valid_for() <= Duration::from_millis(300));
    let error = soon("the lease ends", guard.lost()).await;
    assert!(matches!(error, Error::Lost { reason: LostReason::LeaseEnded, .. }), "{error}");
    is_free(&keeper, "fixed").await;
    assert!(guard.release().await.is_err(), "a release after the lease says so");
}

pub(super) async fn a_fixed_lease_longer_than_the_ttl_is_kept_to_its_end(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let lease = keeper.ttl() * 5 / 2;
    let start = Clock::Boot.now();
    let guard = soon_held(keeper.mutex("long-lease").lease(lease).lock()).await;
    let error = soon("the lease ends", guard.lost()).await;
    assert!(matches!(error, Error::Lost { reason: LostReason::LeaseEnded, .. }), "{error}");
    assert!(Clock::Boot.now().since(start) >= lease);
    is_free(&keeper, "long-lease").await;
}

pub(super) async fn a_hold_outlives_many_ttls(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("renewed").lock()).await;
    let other = bench.keeper_with(bench.short_ttl()).await;
    let waited = bench.answer(async || other.mutex("renewed").lock_within(keeper.ttl() * 3).await).await;
    assert!(waited.is_none(), "the hold is renewed");
    assert_ne!(guard.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    guard.release().await.expect("it was held all the time");
}

pub(super) async fn a_waiter_outlives_many_ttls(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("patience").lock()).await;
    let other = bench.keeper_with(bench.short_ttl()).await;
    let waiter = tokio::spawn(async move { soon_held(other.mutex("patience").lock()).await });
    tokio::time::sleep(keeper.ttl() * 3).await;
    assert!(!waiter.is_finished());
    guard.release().await.expect("a release");
    waiter.await.expect("the waiter").release().await.expect("a release");
}

pub(super) async fn a_blocked_executor_does_not_lose_the_lock(bench: Bench) {
    let connect = bench.connect(bench.short_ttl());
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let keeper = connect.connect().await.expect("a keeper");
            let guard = soon_held(keeper.mutex("blocked").lock()).await;
            // The only thread of this runtime does nothing for several TTLs.
            std::thread::sleep(keeper.ttl() * 3);
            let state = guard.state();
            guard.release().await.expect("it was held all the time");
            state
        })
    });
    let state =
        tokio::task::spawn_blocking(move || blocked.join()).await.expect("a thread").expect("no panic");
    assert_ne!(state, State::Lost, "in doubt perhaps, where servers fail, but ours");
}

/// Law 9: one batch per third of the TTL, whatever the number of claims.
pub(super) async fn all_claims_of_a_keeper_are_renewed_in_one_call(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(soon_held(keeper.mutex(format!("batch/{number}")).lock()).await);
    }
    let before = engine.calls().1;
    let start = Clock::Boot.now();
    bench.until("two rounds of renewal", async || engine.calls().1 >= before + 2).await;
    let rounds = engine.calls().1 - before;
    let thirds = Clock::Boot.now().since(start).as_secs_f64() / (keeper.ttl().as_secs_f64() / 3.0);
    assert!(rounds as f64 <= thirds + 2.0, "{rounds} calls in {thirds:.1} thirds of the TTL for 100 claims");
    assert!(Clock::Boot.now().since(start) < PATIENCE);
    for guard in guards {
        guard.release().await.expect("a release");
    }
}
