//! The fair mechanism and the keeper on a queue whose replies are lost or late.

use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Memory, Place, Queue, QueueEngine, Renewal,
};
use lockkeeper_core::{Abilities, Demand, Error, Keeper, LockView, Result, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The memory engine, with replies of `join` and `changed` that get lost after their effect, or come late, and renewals that
/// are never answered.
struct Unreliable {
    locks: Memory,
    lose_joins: AtomicUsize,
    lose_looks: AtomicUsize,
    reply_after: Duration,
    swallows_renewals: Arc<AtomicBool>,
}

/// How long a wait outlives an engine that does not reply.
const OUTAGE_LIMIT: Duration = Duration::from_secs(5);

impl Unreliable {
    fn on(locks: &Memory) -> Self {
        Self {
            locks: locks.clone(),
            lose_joins: 0.into(),
            lose_looks: 0.into(),
            reply_after: Duration::ZERO,
            swallows_renewals: Arc::default(),
        }
    }

    fn keeper(self) -> Keeper {
        let builder = Keeper::builder().ttl(Duration::from_secs(1)).outage_limit(OUTAGE_LIMIT);
        builder.build(Arc::new(QueueEngine(self))).unwrap()
    }
}

fn loses(left: &AtomicUsize) -> Result<()> {
    match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
        Ok(_) => Err(Error::temporary("unreliable", "receive the reply", "lost on purpose")),
        Err(_) => Ok(()),
    }
}

impl Queue for Unreliable {
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
        let joined = self.locks.join(claim).await?;
        tokio::time::sleep(self.reply_after).await;
        loses(&self.lose_joins)?;
        Ok(joined)
    }
    async fn changed(&self, claim: &Claim, place: Place, seen: Ahead) -> Result<Ahead> {
        loses(&self.lose_looks)?;
        self.locks.changed(claim, place, seen).await
    }
    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        if self.swallows_renewals.load(SeqCst) {
            std::future::pending::<()>().await;
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

#[tokio::test]
async fn a_join_whose_reply_is_lost_is_sent_again_and_finds_its_place() {
    let locks = Memory::new();
    let engine = Unreliable::on(&locks);
    engine.lose_joins.store(2, SeqCst);
    let keeper = engine.keeper();
    let guard = keeper.mutex("m").lock().await.unwrap();
    assert_eq!(keeper.inspect("m").await.unwrap()[0].claims.len(), 1);
    guard.release().await.unwrap();
    assert!(keeper.inspect("m").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_join_without_a_reply_is_an_error_and_leaves_nothing() {
    let locks = Memory::on_tokio_clock();
    let engine = Unreliable::on(&locks);
    engine.lose_joins.store(usize::MAX, SeqCst);
    let keeper = engine.keeper();
    let start = tokio::time::Instant::now();
    assert!(keeper.mutex("m").try_lock().await.unwrap_err().is_temporary());
    assert!(start.elapsed() < OUTAGE_LIMIT, "a try does not wait for it");
    assert!(keeper.mutex("m").lock().await.unwrap_err().is_temporary());
    assert!(start.elapsed() > OUTAGE_LIMIT, "a wait goes on for a while: {:?}", start.elapsed());
    let limit = Duration::from_secs(2);
    assert!(keeper.mutex("m").lock_within(limit).await.unwrap_err().is_temporary(), "it did not time out");
    let other = Keeper::builder().build(locks.connect()).unwrap();
    other.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// An outage longer than the TTL ends the claim, but not the wait.
#[tokio::test(start_paused = true)]
async fn a_wait_outlives_an_outage_and_its_claim() {
    let locks = Memory::on_tokio_clock();
    let [holder, keeper] = [(); 2].map(|()| Keeper::builder().build(locks.connect()).unwrap());
    let guard = holder.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move { keeper.mutex("m").lock().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    locks.cut(true);
    guard.lost().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!waiting.is_finished(), "it waits for less than a minute");
    locks.cut(false);
    let granted = waiting.await.unwrap().unwrap();
    assert_eq!(granted.state(), State::Held);
}

#[tokio::test]
async fn a_waiter_survives_looks_that_fail() {
    let locks = Memory::new();
    let holder = Keeper::builder().build(locks.connect()).unwrap();
    let guard = holder.mutex("m").lock().await.unwrap();
    let engine = Unreliable::on(&locks);
    engine.lose_looks.store(5, SeqCst);
    let keeper = engine.keeper();
    let waiter = tokio::spawn(async move { keeper.mutex("m").lock().await });
    while holder.inspect("m").await.unwrap()[0].claims.len() < 2 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Law 5: the reply took 400 ms of the TTL, so at most 600 ms of trust are left.
#[tokio::test]
async fn trust_is_counted_from_the_send_not_from_the_reply() {
    let locks = Memory::new();
    let engine = Unreliable { reply_after: Duration::from_millis(400), ..Unreliable::on(&locks) };
    let guard = engine.keeper().mutex("m").lock().await.unwrap();
    assert!(guard.valid_for() <= Duration::from_millis(600), "{:?}", guard.valid_for());
}

#[tokio::test]
async fn a_grant_that_came_after_its_own_deadline_is_not_believed() {
    let locks = Memory::on_tokio_clock();
    tokio::time::pause();
    let engine = Unreliable { reply_after: Duration::from_secs(2), ..Unreliable::on(&locks) };
    let late = engine.keeper().mutex("m").lock().await;
    assert!(late.as_ref().is_err_and(Error::is_temporary), "{late:?}");
}

/// It never replied, so nobody knows whether the lock is held.
#[tokio::test(start_paused = true)]
async fn a_limit_that_passes_before_the_first_reply_is_an_error() {
    let locks = Memory::on_tokio_clock();
    let engine = Unreliable { reply_after: Duration::from_secs(3600), ..Unreliable::on(&locks) };
    let keeper = engine.keeper();
    let late = keeper.mutex("m").lock_within(Duration::from_secs(2)).await;
    assert!(late.as_ref().is_err_and(Error::is_temporary), "{late:?}");
    let short = keeper.mutex("m").lock_within(Duration::from_millis(10)).await;
    assert!(short.as_ref().is_ok_and(Option::is_none), "{short:?}");
}

/// Renewals fail for a while, then succeed: uncertain in between, never lost.
#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_ttl_is_survived() {
    let locks = Memory::on_tokio_clock();
    let keeper = Keeper::builder().ttl(Duration::from_secs(10)).build(locks.connect()).unwrap();
    let guard = keeper.mutex("m").lock().await.unwrap();
    for _ in 0..20 {
        locks.cut(true);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(guard.state(), State::Uncertain);
        locks.cut(false);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(guard.state(), State::Held);
    }
}

/// The lost signal comes at the deadline, before the engine lets anybody else in.
#[tokio::test(start_paused = true)]
async fn the_lost_signal_comes_before_the_expiry() {
    let locks = Memory::on_tokio_clock();
    let keeper = Keeper::builder().ttl(Duration::from_secs(10)).build(locks.connect()).unwrap();
    let guard = keeper.mutex("m").lock().await.unwrap();
    let start = tokio::time::Instant::now();
    locks.cut(true);
    guard.lost().await;
    let after = start.elapsed();
    assert!(after < Duration::from_secs(10), "the engine keeps the claim until then: {after:?}");
    assert!(after > Duration::from_secs(9), "and it is trusted as long as possible: {after:?}");
}

/// The deadline is watched while a renewal is under way that nobody answers.
#[tokio::test(start_paused = true)]
async fn the_lost_signal_comes_in_time_while_a_renewal_is_unanswered() {
    let locks = Memory::on_tokio_clock();
    let engine = Unreliable::on(&locks);
    let silence = Arc::clone(&engine.swallows_renewals);
    let keeper = Keeper::builder().ttl(Duration::from_secs(10)).build(Arc::new(QueueEngine(engine))).unwrap();
    let guard = keeper.mutex("m").lock().await.unwrap();
    let start = tokio::time::Instant::now();
    silence.store(true, SeqCst);
    guard.lost().await;
    let after = start.elapsed();
    assert!(after > Duration::from_secs(9) && after < Duration::from_secs(10), "{after:?}");
}

/// A leave that found nobody is sent again, and does not wait for the claim's end.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_during_an_outage_leaves_after_it() {
    let locks = Memory::on_tokio_clock();
    let [holder, other] = [(); 2].map(|()| Keeper::builder().build(locks.connect()).unwrap());
    let guard = holder.mutex("m").lock().await.unwrap();
    locks.cut(true);
    drop(guard);
    tokio::time::sleep(Duration::from_millis(300)).await;
    locks.cut(false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(other.mutex("m").try_lock().await.unwrap().is_some(), "it still stands until its TTL is over");
}
