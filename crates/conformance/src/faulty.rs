//! An engine that fails on demand: loses replies after their effect, delays, duplicates, cuts off.

use lockkeeper::views::{Abilities, Demand, LockView};
use lockkeeper::{Error, Result, Token};
use lockkeeper_core::engine::{
    Attached, Attempt, BoxFuture, Claim, ClaimId, Clock, Engine, Grant, Kept, Left, LockName, Renewal,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Wraps an engine; healthy until told otherwise. Counts the calls that reach the engine.
pub struct Faulty {
    inner: Arc<dyn Engine>,
    /// Renewals and releases fail without reaching the engine.
    cut: AtomicBool,
    /// This number of replies are lost after their effect.
    lose_acquires: AtomicUsize,
    lose_renewals: AtomicUsize,
    lose_releases: AtomicUsize,
    /// Every request is sent twice.
    duplicate: AtomicBool,
    delay: Mutex<Duration>,
    seen: Mutex<Vec<Renewal>>,
    acquires: AtomicUsize,
    renewals: AtomicUsize,
    releases: AtomicUsize,
    inspections: AtomicUsize,
}

impl Faulty {
    /// Wraps an engine.
    pub fn wrap(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            cut: false.into(),
            lose_acquires: 0.into(),
            lose_renewals: 0.into(),
            lose_releases: 0.into(),
            duplicate: false.into(),
            delay: Mutex::default(),
            seen: Mutex::default(),
            acquires: 0.into(),
            renewals: 0.into(),
            releases: 0.into(),
            inspections: 0.into(),
        })
    }

    /// Renewals and releases no longer reach the engine (or do again).
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, SeqCst);
    }

    /// Loses the next `replies` replies of acquires, after their effect.
    pub fn lose_acquires(&self, replies: usize) {
        self.lose_acquires.store(replies, SeqCst);
    }

    /// Loses the next `replies` replies of renewals, after their effect.
    pub fn lose_renewals(&self, replies: usize) {
        self.lose_renewals.store(replies, SeqCst);
    }

    /// Loses the next `replies` replies of releases, after their effect.
    pub fn lose_releases(&self, replies: usize) {
        self.lose_releases.store(replies, SeqCst);
    }

    /// Sends every request twice from now on (or once again).
    pub fn duplicate(&self, duplicate: bool) {
        self.duplicate.store(duplicate, SeqCst);
    }

    /// Delays every renewal and release.
    pub fn delay(&self, delay: Duration) {
        *self.delay.lock().expect("no panic under this lock") = delay;
    }

    /// Sends the last batch of renewals again, as a delayed packet would.
    pub async fn replay_last_renewal(&self) -> Result<Kept> {
        let renewals = self.seen.lock().expect("no panic under this lock").clone();
        assert!(!renewals.is_empty(), "nothing was renewed yet");
        self.inner.renew(&renewals).await
    }

    /// How many acquires, renewals and releases have reached the engine.
    pub fn calls(&self) -> (usize, usize, usize) {
        (self.acquires.load(SeqCst), self.renewals.load(SeqCst), self.releases.load(SeqCst))
    }

    /// How often the locks were listed.
    pub fn inspections(&self) -> usize {
        self.inspections.load(SeqCst)
    }

    async fn hold_up(&self, doing: &'static str) -> Result<()> {
        let delay = *self.delay.lock().expect("no panic under this lock");
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.cut.load(SeqCst) { Err(lost_reply(doing)) } else { Ok(()) }
    }
}

fn lost_reply(doing: &'static str) -> Error {
    Error::temporary("faulty", doing, "the reply was lost on purpose")
}

/// Whether to lose this reply; counts down.
fn takes(left: &AtomicUsize) -> bool {
    left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl lockkeeper_core::engine::sealed::Sealed for Faulty {}

impl Engine for Faulty {
    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn ttl(&self, asked: Duration) -> Duration {
        self.inner.ttl(asked)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, Result<Option<Grant>>> {
        Box::pin(async move {
            self.acquires.fetch_add(1, SeqCst);
            let grant = self.inner.acquire(attempt).await?;
            if self.duplicate.load(SeqCst) {
                let again = self.inner.acquire(attempt).await?;
                assert_eq!(grant, again, "a second join of the same claim must find the same place (Law 4)");
            }
            if takes(&self.lose_acquires) { Err(lost_reply("acquire")) } else { Ok(grant) }
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Result<Kept>> {
        Box::pin(async move {
            *self.seen.lock().expect("no panic under this lock") = renewals.to_vec();
            self.hold_up("renew").await?;
            self.renewals.fetch_add(1, SeqCst);
            let mut kept = self.inner.renew(renewals).await?;
            if self.duplicate.load(SeqCst) {
                kept = self.inner.renew(renewals).await?;
            }
            if takes(&self.lose_renewals) { Err(lost_reply("renew")) } else { Ok(kept) }
        })
    }

    fn attach<'a>(&'a self, renewal: &'a Renewal, token: Token) -> BoxFuture<'a, Result<Option<Attached>>> {
        self.inner.attach(renewal, token)
    }

    fn detached(&self, claim: &Claim) {
        self.inner.detached(claim);
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Left>> {
        Box::pin(async move {
            self.hold_up("release").await?;
            self.releases.fetch_add(1, SeqCst);
            let left = self.inner.release(claim).await?;
            if self.duplicate.load(SeqCst) {
                assert_eq!(
                    self.inner.release(claim).await?,
                    Left::NotThere,
                    "a second leave finds nothing (Law 4)"
                );
            }
            if takes(&self.lose_releases) { Err(lost_reply("release")) } else { Ok(left) }
        })
    }

    fn shrink<'a>(&'a self, claim: &'a Claim, to: Demand) -> BoxFuture<'a, Result<()>> {
        self.inner.shrink(claim, to)
    }

    fn inspect<'a>(&'a self, prefix: &'a str, at_most: usize) -> BoxFuture<'a, Result<Vec<LockView>>> {
        self.inspections.fetch_add(1, SeqCst);
        self.inner.inspect(prefix, at_most)
    }

    fn evict<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        self.inner.evict(name, id)
    }

    fn ask<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        self.inner.ask(name, id)
    }

    fn evict_foreign<'a>(&'a self, name: &'a LockName, claim: &'a str) -> BoxFuture<'a, Result<bool>> {
        self.inner.evict_foreign(name, claim)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
