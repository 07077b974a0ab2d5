//! Holds that outlive their guard or their process, and locks with a TTL of their own.

use crate::bench::{Bench, is_free, soon, soon_held};
use crate::helper::Helper;
use futures_util::future::BoxFuture;
use lockkeeper::{Error, Guard, Handle, Keeper, Result, State};
use lockkeeper_core::engine::Clock;
use std::time::Duration;

/// A style whose locks end with a connection or a session refuses, and says what to do instead.
fn refused<T>(bench: &Bench, outcome: Result<T>) {
    let error = outcome.err().expect("the style says it cannot");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let (text, style) = (error.to_string(), bench.abilities());
    assert!(text.contains(style.engine) && text.contains(style.style), "it names the style: {text}");
    assert!(text.contains("'queue'") || text.contains("another keeper"), "it names the way out: {text}");
}

/// How long a case lets a hold outlast its owner: more than a TTL, so that the TTL does not explain it.
fn period(bench: &Bench) -> Duration {
    bench.short_ttl() * 3 / 2
}

async fn is_held(keeper: &Keeper, name: &str) -> bool {
    keeper.mutex(name).try_lock().await.expect("an answer").is_none()
}

/// Waits for the lock, and says how long that took from this moment on.
async fn free_after(
    keeper: &Keeper,
    name: &str,
    start: lockkeeper_core::engine::Moment,
) -> (Duration, Guard) {
    let next = soon_held(keeper.mutex(name).lock()).await;
    (Clock::Boot.now().since(start), next)
}

pub(super) async fn a_detached_hold_outlives_its_keeper_and_is_attached_by_another(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("detached").lock()).await;
    let token = guard.token().expect("it is held");
    let detached = guard.detach(period(&bench) * 10).await;
    if !bench.abilities().detach {
        refused(&bench, detached);
        is_free(&keeper, "detached").await;
        return;
    }
    let handle = detached.expect("a handle");
    keeper.close().await;
    let handle: Handle = handle.to_string().parse().expect("it reads back");
    let other = bench.keeper_with(bench.short_ttl()).await;
    tokio::time::sleep(other.ttl() * 2).await;
    assert!(is_held(&other, "detached").await, "the engine keeps it");
    let guard = soon("the hold", other.attach(&handle)).await.expect("it is there");
    assert_eq!(guard.token().expect("it is held"), token);
    tokio::time::sleep(other.ttl() * 2).await;
    assert_ne!(guard.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    assert!(is_held(&other, "detached").await, "it is renewed");
    guard.release().await.expect("a release");
    is_free(&other, "detached").await;
    let again = other.attach(&handle).await;
    assert!(matches!(again, Err(Error::Lost { .. })), "{again:?}");
}

/// Takes a part of a lock.
type Take = fn(Keeper) -> BoxFuture<'static, Result<Guard>>;

pub(super) async fn a_detached_reader_is_attached(bench: Bench) {
    let read: Take = |keeper| Box::pin(async move { keeper.rwlock("read").read().await });
    let write: Take = |keeper| Box::pin(async move { keeper.rwlock("read").write().await });
    a_part_is_detached_and_attached(bench, read, read, write).await;
}

pub(super) async fn a_detached_permit_is_attached(bench: Bench) {
    let two: Take = |keeper| Box::pin(async move { keeper.semaphore("slots", 3).acquire(2).await });
    let one: Take = |keeper| Box::pin(async move { keeper.semaphore("slots", 3).acquire(1).await });
    a_part_is_detached_and_attached(bench, two, one, two).await;
}

/// What fits beside the part is had, what does not waits for its release: while nobody renews it, and beyond the end of the
/// detached hold, because it is renewed again.
async fn a_part_is_detached_and_attached(bench: Bench, part: Take, beside: Take, over: Take) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(part(keeper.clone())).await;
    let token = guard.token().expect("it is held");
    let handle = guard.detach(bench.short_ttl() * 4).await.expect("a handle");
    keeper.close().await;
    let handle: Handle = handle.to_string().parse().expect("it reads back");
    let other = bench.keeper_with(bench.short_ttl()).await;
    let fits = soon_held(beside(other.clone())).await;
    let waiter = tokio::spawn(soon_held(over(bench.keeper_with(bench.long_ttl()).await)));
    tokio::time::sleep(other.ttl().mul_f64(1.25)).await;
    let guard = soon("the hold", other.attach(&handle)).await.expect("the engine keeps it");
    assert_eq!(guard.token().expect("it is held"), token);
    fits.release().await.expect("a release");
    tokio::time::sleep(handle.left() + other.ttl()).await;
    assert_ne!(guard.state(), State::Lost, "it is renewed");
    assert!(!waiter.is_finished(), "the attached part leaves no room");
    guard.release().await.expect("a release");
    let next = waiter.await.expect("the waiter");
    assert!(next.token().expect("it is held") > token);
    next.release().await.expect("a release");
    let again = other.attach(&handle).await;
    assert!(matches!(again, Err(Error::Lost { .. })), "{again:?}");
}

/// The waiter is woken by the engine's clock alone: there is nobody who would leave. It waits for a later end at first.
pub(super) async fn a_detached_hold_ends_in_time_and_the_next_is_granted(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("ends").lock()).await;
    let token = guard.token().expect("it is held");
    let handle = guard.detach(bench.long_ttl()).await.expect("a handle");
    let other = bench.keeper_with(bench.long_ttl()).await;
    let waiting = other.clone();
    let next = tokio::spawn(async move { soon_held(waiting.mutex("ends").lock()).await });
    if bench.abilities().fair {
        bench.until_waiting(&other, "ends", 1).await;
    }
    let guard = soon("the hold", keeper.attach(&handle)).await.expect("it is there");
    let start = Clock::Boot.now();
    guard.detach(period(&bench)).await.expect("a handle");
    keeper.close().await;
    let next = next.await.expect("the waiter");
    let after = Clock::Boot.now().since(start);
    assert!(after >= period(&bench).mul_f64(0.99), "it ended after {after:?}");
    assert!(next.token().expect("it is held") > token);
    next.release().await.expect("a release");
}

/// The engine says how long it keeps a hold, and to whom it gave which token.
pub(super) async fn an_old_handle_does_not_undo_a_renewal(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("renewed").lock()).await;
    let old = guard.detach(bench.long_ttl()).await.expect("a handle");
    let longer = bench.long_ttl() * 10;
    let guard = soon("the hold", keeper.attach(&old)).await.expect("it is there");
    guard.detach(longer).await.expect("a handle");
    let token = old.token().0;
    let forged = old.to_string().replacen(&format!(":{token}:"), &format!(":{}:", token + 1), 1);
    let refused = keeper.attach(&forged.parse().expect("it reads")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "another token: {refused:?}");
    let guard = soon("the hold", keeper.attach(&old)).await.expect("it is there");
    let left = guard.outlives();
    assert!(left > longer - bench.long_ttl() && left <= longer, "{left:?} are left of {longer:?}");
    guard.release().await.expect("a release");
}

pub(super) async fn a_hold_lasts_for_its_least_time(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let turn = keeper.mutex("turn").hold_at_least(period(&bench));
    if !bench.abilities().detach {
        refused(&bench, turn.lock().await);
        is_free(&keeper, "turn").await;
        return;
    }
    let other = bench.keeper_with(bench.long_ttl()).await;
    for is_released in [true, false] {
        let start = Clock::Boot.now();
        let guard = soon_held(turn.lock()).await;
        if is_released {
            guard.release().await.expect("a release");
        } else {
            drop(guard);
        }
        let (after, next) = free_after(&other, "turn", start).await;
        assert!(after >= period(&bench).mul_f64(0.99), "released {is_released}: it ended after {after:?}");
        next.release().await.expect("a release");
    }
    let long = keeper.mutex("turn").hold_at_least(bench.long_ttl());
    let guard = soon_held(long.lock()).await;
    guard.release_at_once().await.expect("a release");
    is_free(&other, "turn").await;
}

/// Not even a killed process frees it earlier.
pub(super) async fn a_killed_process_keeps_its_least_time(bench: Bench) {
    let least = period(&bench);
    let other = bench.keeper_with(bench.long_ttl()).await;
    let start = Clock::Boot.now();
    let (url, namespace) = (bench.url(), bench.namespace());
    let mut helper = Helper::start_with(url, namespace, "killed-turn", bench.short_ttl(), Some(least));
    helper.token();
    helper.kill();
    let (after, next) = free_after(&other, "killed-turn", start).await;
    assert!(after >= least.mul_f64(0.99), "it ended after {after:?}");
    next.release().await.expect("a release");
}

pub(super) async fn a_lock_may_have_a_ttl_of_its_own(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.long_ttl()).await;
    let own = keeper.mutex("own-ttl").ttl(bench.short_ttl());
    if !bench.abilities().detach {
        refused(&bench, own.lock().await);
        is_free(&keeper, "own-ttl").await;
        return;
    }
    let guard = soon_held(own.lock()).await;
    let usual = soon_held(keeper.mutex("usual").lock()).await;
    assert!(guard.valid_for() <= bench.short_ttl().mul_f64(1.5) && usual.valid_for() > bench.long_ttl() / 2);
    tokio::time::sleep(bench.short_ttl() * 3).await;
    assert_ne!(guard.state(), State::Lost, "it is renewed at the pace of its own TTL");
    // The long one, too: on a keeper with a short TTL.
    let short = bench.keeper_with(bench.short_ttl()).await;
    let long = soon_held(short.mutex("long").ttl(bench.long_ttl()).lock()).await;
    assert!(long.valid_for() > bench.long_ttl() / 2);
    engine.cut(true);
    let other = bench.keeper_with(bench.long_ttl()).await;
    let next = soon_held(other.mutex("own-ttl").lock()).await;
    assert_eq!(guard.state(), State::Lost);
    assert_ne!(usual.state(), State::Lost, "the others live for the keeper's TTL");
    assert_ne!(long.state(), State::Lost);
    engine.cut(false);
    next.release().await.expect("a release");
    long.release().await.expect("a release");
}
