//! Replies that are lost after their effect, requests sent twice, delays.

use crate::bench::{Bench, is_free, soon, soon_held};
use lockkeeper::State;

pub(super) async fn a_lost_reply_of_an_acquire_leaves_nothing(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.long_ttl()).await;
    engine.lose_acquires(1);
    let error = keeper.mutex("reply").try_lock().await.expect_err("the reply is lost");
    assert!(error.is_temporary());
    is_free(&keeper, "reply").await;
    bench.until_idle(&keeper, "reply").await;
}

/// A wait joins again, and does not wait for the claim that it left behind.
pub(super) async fn a_wait_outlives_a_lost_reply(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.long_ttl()).await;
    engine.lose_acquires(2);
    soon_held(keeper.mutex("again").lock()).await.release().await.expect("a release");
    bench.until_idle(&keeper, "again").await;
}

pub(super) async fn a_lost_reply_of_a_renewal_is_only_uncertain(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("doubt").lock()).await;
    engine.lose_renewals(1);
    let renewed = engine.calls().1 + 2;
    bench.until("the renewal is tried again", async || engine.calls().1 >= renewed).await;
    bench.until("the doubt is gone", async || guard.state() == State::Held).await;
    guard.release().await.expect("it was held all the time");
}

pub(super) async fn a_lost_reply_of_a_release_still_frees(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.long_ttl()).await;
    let guard = soon_held(keeper.mutex("freed").lock()).await;
    engine.lose_releases(1);
    soon("the release is sent again", guard.release()).await.expect("the first one has freed it");
    is_free(&keeper, "freed").await;
}

/// Law 4: a second join finds its place, a second leave finds nothing. (The wrapper asserts both.)
pub(super) async fn duplicated_requests_change_nothing(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    engine.duplicate(true);
    for _ in 0..5 {
        let guard = soon_held(keeper.mutex("twice").lock()).await;
        let lock = bench.look(&keeper, "twice").await.expect("the lock is in use");
        assert_eq!(lock.claims.len(), 1, "one claim, though it joined twice");
        guard.release().await.expect("a release");
    }
    let guard = soon_held(keeper.mutex("twice").lock()).await;
    let renewed = engine.calls().1 + 2;
    bench.until("renewals sent twice", async || engine.calls().1 >= renewed).await;
    assert_ne!(guard.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    engine.duplicate(false);
    guard.release().await.expect("a release");
}

pub(super) async fn delayed_renewals_do_not_lose_the_lock(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("slow").lock()).await;
    engine.delay(keeper.ttl() / 12);
    let lost = tokio::time::timeout(keeper.ttl() * 3, guard.lost()).await;
    assert!(lost.is_err(), "lost although every renewal came in time: {lost:?}");
    engine.delay(std::time::Duration::ZERO);
    soon("a release", guard.release()).await.expect("it was held all the time");
}
