//! Holds that outlive their guard: detached and attached, kept for a least time; and locks with a TTL of their own.

use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Memory, Place, Queue, QueueEngine, Renewal,
};
use lockkeeper_core::{
    Abilities, Demand, Error, Handle, Keeper, LockView, LostReason, MultiLock, Result, State, Wanted,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn keeper(locks: &Memory) -> Keeper {
    Keeper::builder().build(locks.connect()).unwrap()
}

/// How long until the lock is free, in whole seconds.
async fn free_after(locks: &Memory, name: &str) -> u64 {
    let (start, guard) = (Instant::now(), keeper(locks).mutex(name).lock().await.unwrap());
    let waited = start.elapsed();
    guard.release().await.unwrap();
    (waited + Duration::from_millis(500)).as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_detached_hold_outlives_its_keeper_and_ends_in_time() {
    let locks = Memory::on_tokio_clock();
    let owner = keeper(&locks);
    let guard = owner.mutex("m").lock().await.unwrap();
    let token = guard.token().unwrap();
    let handle = guard.detach(MINUTE).await.unwrap();
    owner.close().await;
    assert_eq!((handle.name(), handle.namespace(), handle.token()), ("m", "lockkeeper", token));
    assert!(handle.left() > MINUTE - 5 * SECOND && handle.left() <= MINUTE);
    assert_eq!(free_after(&locks, "m").await, 60);
    let error = keeper(&locks).attach(&handle).await.unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error}");
}

/// The memory engine, whose first renewal arrives late: behind later ones, if they do not wait for it.
struct LateRenewal {
    locks: Memory,
    was_sent: AtomicBool,
}

impl Queue for LateRenewal {
    fn abilities(&self) -> Abilities {
        self.locks.abilities()
    }
    fn clock(&self) -> Clock {
        self.locks.clock()
    }
    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }
    async fn join(&self, claim: &Claim) -> Result<Joined> {
        self.locks.join(claim).await
    }
    async fn changed(&self, claim: &Claim, place: Place, seen: Ahead) -> Result<Ahead> {
        self.locks.changed(claim, place, seen).await
    }
    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        if !self.was_sent.swap(true, SeqCst) {
            sleep(SECOND).await;
        }
        self.locks.keep(renewals).await
    }
    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.locks.leave(claim).await
    }
    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        self.locks.shrink(claim, to).await
    }
    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.locks.list(prefix, at_most).await
    }
    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.locks.evict(name, id).await
    }
    async fn close(&self) {}
}

/// What was requested before must not end it sooner.
#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_shorten_a_detached_hold() {
    for is_detached in [true, false] {
        let locks = Memory::on_tokio_clock();
        let late = LateRenewal { locks: locks.clone(), was_sent: false.into() };
        let owner = Keeper::builder().build(Arc::new(QueueEngine(late))).unwrap();
        let guard = owner.mutex("m").lock().await.unwrap();
        // The first round is sent after a third of the TTL, and arrives a second later.
        sleep(Duration::from_millis(3500)).await;
        if is_detached {
            let _handle = guard.detach(MINUTE).await.unwrap();
        } else {
            guard.release().await.unwrap();
            let least = owner.mutex("m").hold_at_least(MINUTE).lock().await.unwrap();
            least.release().await.unwrap();
        }
        let after = free_after(&locks, "m").await;
        assert!((59..=60).contains(&after), "free after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attached_hold_is_renewed_and_can_be_released() {
    let locks = Memory::on_tokio_clock();
    let (first, second) = (keeper(&locks), keeper(&locks));
    let handle = first.mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let guard = second.attach(&handle).await.unwrap();
    assert_eq!(guard.token().unwrap(), handle.token());
    assert!(guard.outlives() > MINUTE - 5 * SECOND);
    sleep(10 * MINUTE).await;
    assert_eq!(guard.state(), State::Held);
    assert!(first.mutex("m").try_lock().await.unwrap().is_none());
    assert!(second.attach(&handle).await.unwrap_err().to_string().contains("already"));
    guard.release().await.unwrap();
    assert_eq!(free_after(&locks, "m").await, 0);
}

/// A process that dies over an attached hold leaves what was promised before.
#[tokio::test(start_paused = true)]
async fn attaching_does_not_shorten_what_was_promised() {
    let locks = Memory::on_tokio_clock();
    let handle = keeper(&locks).mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let guard = keeper(&locks).attach(&handle).await.unwrap();
    sleep(5 * SECOND).await;
    // Nothing of it arrives any more, as if it had been killed.
    let left = std::mem::ManuallyDrop::new(guard).outlives();
    assert!(left > 50 * SECOND, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn two_keepers_with_one_handle_share_a_claim() {
    let locks = Memory::on_tokio_clock();
    let handle = keeper(&locks).mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let (one, other) = (keeper(&locks), keeper(&locks));
    let (first, second) = (one.attach(&handle).await.unwrap(), other.attach(&handle).await.unwrap());
    first.release().await.unwrap();
    assert!(second.lost().await.is_lost());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_detached_is_refused_and_released() {
    let locks = Memory::on_tokio_clock();
    let keeper = keeper(&locks);
    let several = keeper.all(["a", "m"]).lock().await.unwrap();
    assert!(several.detach(MINUTE).await.unwrap_err().to_string().contains("several"));
    let owner = keeper.owner();
    let outer = owner.mutex("m").lock().await.unwrap();
    let inner = owner.mutex("m").lock().await.unwrap();
    assert!(inner.detach(MINUTE).await.unwrap_err().to_string().contains("more than once"));
    assert_eq!(outer.state(), State::Held);
    outer.release().await.unwrap();
    let leased = keeper.mutex("m").lease(MINUTE).lock().await.unwrap();
    assert!(leased.detach(MINUTE).await.unwrap_err().to_string().contains("lease"));
    for bad in [Duration::ZERO, MINUTE * 100_000] {
        let guard = keeper.mutex("m").lock().await.unwrap();
        assert!(matches!(guard.detach(bad).await, Err(Error::Invalid(_))));
    }
    assert_eq!(free_after(&locks, "m").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_elsewhere_is_refused() {
    let locks = Memory::on_tokio_clock();
    let handle = keeper(&locks).mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let other = Keeper::builder().namespace("shop").build(locks.connect()).unwrap();
    assert!(other.attach(&handle).await.unwrap_err().to_string().contains("namespace 'lockkeeper'"));
    let redis = handle.to_string().replacen(":memory:", ":redis:", 1).parse().unwrap();
    assert!(keeper(&locks).attach(&redis).await.unwrap_err().to_string().contains("is of redis"));
}

#[tokio::test(start_paused = true)]
async fn a_detach_without_a_reply_is_lost_with_the_hold() {
    let locks = Memory::on_tokio_clock();
    let guard = keeper(&locks).mutex("m").lock().await.unwrap();
    locks.cut(true);
    assert!(guard.detach(MINUTE).await.unwrap_err().is_lost());
    locks.cut(false);
    assert!(free_after(&locks, "m").await <= 10);
}

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_for_its_least_time_however_it_ends() {
    let locks = Memory::on_tokio_clock();
    let turn = || keeper(&locks).mutex("m").hold_at_least(MINUTE);
    turn().lock().await.unwrap().release().await.unwrap();
    assert_eq!(free_after(&locks, "m").await, 60, "released");
    drop(turn().lock().await.unwrap());
    assert_eq!(free_after(&locks, "m").await, 60, "dropped");
    let closing = keeper(&locks);
    let _guard = closing.mutex("m").hold_at_least(MINUTE).lock().await.unwrap();
    closing.close().await;
    assert_eq!(free_after(&locks, "m").await, 60, "closed");
    // Nothing renews it any more, as if its process had been killed.
    let killed = std::mem::ManuallyDrop::new(turn().lock().await.unwrap());
    assert!(killed.outlives() > 55 * SECOND);
    locks.cut(true);
    sleep(59 * SECOND).await;
    locks.cut(false);
    assert!(keeper(&locks).mutex("m").try_lock().await.unwrap().is_none(), "killed");
}

#[tokio::test(start_paused = true)]
async fn after_its_least_time_a_hold_is_released_at_once() {
    let locks = Memory::on_tokio_clock();
    let keeper = keeper(&locks);
    let guard = keeper.mutex("m").hold_at_least(MINUTE).lock().await.unwrap();
    sleep(55 * SECOND).await;
    guard.release().await.unwrap();
    assert_eq!(free_after(&locks, "m").await, 5, "no longer than that, although renewals reached further");
    let guard = keeper.mutex("m").hold_at_least(MINUTE).lock().await.unwrap();
    sleep(3 * MINUTE).await;
    assert_eq!((guard.state(), guard.outlives()), (State::Held, Duration::ZERO));
    guard.release().await.unwrap();
    assert_eq!(free_after(&locks, "m").await, 0);
    let guard = keeper.mutex("m").hold_at_least(MINUTE).lock().await.unwrap();
    guard.release_at_once().await.unwrap();
    assert_eq!(free_after(&locks, "m").await, 0, "given back");
}

#[tokio::test(start_paused = true)]
async fn several_locks_stay_only_if_all_were_held() {
    let locks = Memory::on_tokio_clock();
    let (keeper, other) = (keeper(&locks), keeper(&locks));
    let held = other.mutex("b").lock().await.unwrap();
    let both = keeper.all(["a", "b"]).hold_at_least(MINUTE);
    assert!(both.try_lock().await.unwrap().is_none());
    assert_eq!(free_after(&locks, "a").await, 0, "given back, and not kept");
    held.release().await.unwrap();
    both.lock().await.unwrap().release().await.unwrap();
    assert_eq!((free_after(&locks, "b").await, free_after(&locks, "a").await), (60, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lock_may_have_a_ttl_of_its_own() {
    let locks = Memory::on_tokio_clock();
    let keeper = keeper(&locks);
    let long = keeper.mutex("long").ttl(MINUTE).lock().await.unwrap();
    let short = keeper.rwlock("short").ttl(SECOND).write().await.unwrap();
    let usual = keeper.mutex("usual").lock().await.unwrap();
    let both = MultiLock::new([Wanted::exclusive(&keeper, "x"), Wanted::exclusive(&keeper, "y")]);
    let multi = both.ttl(2 * SECOND).lock().await.unwrap();
    let permit = keeper.semaphore("permit", 2).ttl(3 * SECOND).acquire(1).await.unwrap();
    assert!(short.valid_for() < SECOND && long.valid_for() > 50 * SECOND);
    sleep(10 * MINUTE).await;
    for guard in [&long, &short, &usual, &multi, &permit] {
        assert_eq!(guard.state(), State::Held, "{guard:?}");
    }
    let start = Instant::now();
    locks.cut(true);
    for (guard, seconds) in [(short, 1), (multi, 2), (permit, 3), (usual, 10), (long, 60)] {
        guard.lost().await;
        let after = start.elapsed().as_secs_f64();
        let expected = f64::from(seconds);
        assert!(after <= expected && after > expected * 0.6, "{guard:?} of {expected} s after {after} s");
    }
}

/// A claim that is entered while the task sleeps for the sake of longer ones.
#[tokio::test(start_paused = true)]
async fn a_short_ttl_is_renewed_in_time_beside_long_ones() {
    let locks = Memory::on_tokio_clock();
    let keeper = Keeper::builder().ttl(MINUTE).build(locks.connect()).unwrap();
    let _long = keeper.mutex("long").lock().await.unwrap();
    sleep(5 * SECOND).await;
    for ttl in [SECOND / 2, 20 * SECOND, 50 * SECOND] {
        let short = keeper.mutex("short").ttl(ttl).lock().await.unwrap();
        for _ in 0..20 {
            sleep(ttl / 3).await;
            assert!(short.valid_for() > ttl / 2, "{:?} of {ttl:?} left", short.valid_for());
        }
        short.release().await.unwrap();
    }
    for bad in [Duration::from_millis(99), Duration::from_secs(86_401)] {
        assert!(matches!(keeper.mutex("bad").ttl(bad).lock().await, Err(Error::Invalid(_))));
    }
}

/// Those that wait are granted at the new end, not at the old one.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_detached_for_less_than_was_left_ends_in_time_for_a_waiter() {
    let locks = Memory::on_tokio_clock();
    let owner = keeper(&locks);
    let handle = owner.mutex("m").lock().await.unwrap().detach(100 * MINUTE).await.unwrap();
    let waiter = keeper(&locks);
    let waiting = tokio::spawn(async move { waiter.mutex("m").lock().await.unwrap() });
    sleep(MINUTE).await;
    let guard = owner.attach(&handle).await.unwrap();
    let start = Instant::now();
    let _handle = guard.detach(MINUTE).await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
}

/// A handle whose time is another one.
fn with_time(handle: &Handle, until: SystemTime) -> Handle {
    let (text, old) = (handle.to_string(), humantime::format_rfc3339_seconds(handle.until()).to_string());
    text.replace(&old, &humantime::format_rfc3339_seconds(until).to_string()).parse().unwrap()
}

/// The engine knows how long it keeps the hold; the handle's time is that of another machine, and of another renewal.
#[tokio::test(start_paused = true)]
async fn what_is_left_is_known_from_the_engine_and_not_from_the_handle() {
    let locks = Memory::on_tokio_clock();
    let handle = keeper(&locks).mutex("m").lock().await.unwrap().detach(30 * MINUTE).await.unwrap();
    let times = [handle.until() - 60 * MINUTE, handle.until() + 60 * MINUTE, handle.until()];
    for edited in times.map(|until| with_time(&handle, until)) {
        let guard = keeper(&locks).attach(&edited).await.unwrap();
        let left = guard.outlives();
        assert!(left > 29 * MINUTE && left <= 30 * MINUTE, "{left:?} by {edited}");
        guard.detach(left).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_handle_does_not_undo_a_renewal() {
    let locks = Memory::on_tokio_clock();
    let handle = keeper(&locks).mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let owner = keeper(&locks);
    let renewed = owner.attach(&handle).await.unwrap().detach(60 * MINUTE).await.unwrap();
    sleep(10 * MINUTE).await;
    let over = with_time(&handle, SystemTime::now() - 9 * MINUTE);
    let guard = owner.attach(&over).await.unwrap();
    let left = guard.outlives();
    assert!(left > 49 * MINUTE && left <= 50 * MINUTE, "{left:?}");
    guard.detach(left).await.unwrap();
    assert_eq!(free_after(&locks, "m").await.div_ceil(60), 50);
    assert!(owner.attach(&renewed).await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_handle_with_another_token_is_refused_and_harms_nobody() {
    let locks = Memory::on_tokio_clock();
    let keeper = keeper(&locks);
    let handle = keeper.mutex("m").lock().await.unwrap().detach(MINUTE).await.unwrap();
    let token = handle.token().0;
    for wrong in [token + 1, token - 1] {
        let text = handle.to_string().replacen(&format!(":{token}:"), &format!(":{wrong}:"), 1);
        let error = keeper.attach(&text.parse().unwrap()).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(text) if text.contains("token")), "{error}");
    }
    keeper.attach(&handle).await.unwrap().release().await.unwrap();
}
