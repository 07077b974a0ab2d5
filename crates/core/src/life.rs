//! One claim's life on the client's side: until when it is trusted, whether it is in doubt, how it ended.

use crate::claim::{Claim, ClaimId};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LostReason};
use crate::renewal::Renewals;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// What the client knows of its claim. Everything is judged by the clock at the moment of the question.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) claim: Arc<Claim>,
    clock: Clock,
    /// Set while the engine may have the claim, so that somebody must send a leave in the end.
    at_engine: AtomicBool,
    /// Nanoseconds on the clock; zero until the claim has joined.
    trusted_until: AtomicU64,
    /// Nanoseconds on the clock; the end of a fixed lease.
    lease_ends: AtomicU64,
    /// The last renewal failed.
    doubted: AtomicBool,
    ended: OnceLock<LostReason>,
    over: Notify,
}

/// How much earlier than the engine the client stops trusting: the tolerated difference of clock rates
/// (1 %, at least 2 ms), counted over one TTL.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(2))
}

impl Life {
    pub(crate) fn new(claim: Arc<Claim>, clock: Clock) -> Self {
        Self {
            claim,
            clock,
            at_engine: AtomicBool::new(false),
            trusted_until: AtomicU64::new(0),
            lease_ends: AtomicU64::new(u64::MAX),
            doubted: AtomicBool::new(false),
            ended: OnceLock::new(),
            over: Notify::new(),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn at_engine(&self) -> bool {
        self.at_engine.load(SeqCst)
    }

    fn set_at_engine(&self, there: bool) {
        self.at_engine.store(there, SeqCst);
    }

    /// Whether a leave is owed; whoever asks first sends it.
    pub(crate) fn take_leave(&self) -> bool {
        self.at_engine.swap(false, SeqCst)
    }

    /// Law 5: a join or renewal sent at this moment was good, so the claim is trusted for its TTL from then.
    pub(crate) fn confirmed(&self, sent: Moment, ttl: Duration) {
        let until = sent.plus(ttl).minus(margin(ttl));
        self.trusted_until.fetch_max(until.as_nanos(), SeqCst);
        self.doubted.store(false, SeqCst);
    }

    /// A renewal failed: uncertain, not lost, until the deadline.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, SeqCst);
    }

    pub(crate) fn doubted(&self) -> bool {
        self.doubted.load(SeqCst)
    }

    pub(crate) fn lease_ends(&self, moment: Moment) {
        self.lease_ends.store(moment.as_nanos(), SeqCst);
    }

    /// The TTL to ask for in a renewal sent now: no longer than a fixed lease lasts, plus the margin, so that the
    /// client's trust reaches just to the lease's end.
    pub(crate) fn ttl_from(&self, now: Moment) -> Duration {
        let lease_left = Moment::from_nanos(self.lease_ends.load(SeqCst)).since(now);
        self.claim.ttl.min(lease_left.saturating_add(margin(self.claim.ttl)))
    }

    /// Until when the claim may be trusted if no further renewal succeeds.
    pub(crate) fn deadline(&self) -> Moment {
        match self.trusted_until.load(SeqCst) {
            0 => Moment::NEVER,
            until => Moment::from_nanos(until.min(self.lease_ends.load(SeqCst))),
        }
    }

    /// Ends it; the first reason stays. Says whether this call was the first.
    pub(crate) fn end(&self, reason: LostReason) -> bool {
        let first = self.ended.set(reason).is_ok();
        if first {
            self.over.notify_waiters();
        }
        first
    }

    /// Whether it is over, looking at the clock now.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        if let Some(reason) = self.ended.get() {
            return Some(*reason);
        }
        if self.clock.now() < self.deadline() {
            return None;
        }
        let by_lease = self.deadline().as_nanos() == self.lease_ends.load(SeqCst);
        self.end(if by_lease { LostReason::LeaseEnded } else { LostReason::Expired });
        self.ended.get().copied()
    }

    /// Resolves when it is over.
    pub(crate) async fn when_lost(&self) -> LostReason {
        loop {
            let over = self.over.notified();
            if let Some(reason) = self.lost() {
                return reason;
            }
            over.await;
        }
    }

    pub(crate) fn error(&self, reason: LostReason) -> Error {
        Error::Lost { name: self.claim.name.to_string(), reason }
    }
}

/// What holds hang on beside their TTL, such as a connection: when it ends, they are lost at that moment,
/// for the engine frees them at that moment, too. Clones are the same lifeline.
#[derive(Debug, Clone, Default)]
pub struct Lifeline(Arc<Mutex<Tied>>);

#[derive(Debug, Default)]
struct Tied {
    ended: bool,
    lives: HashMap<ClaimId, Weak<Life>>,
}

impl Lifeline {
    /// A lifeline with nothing tied to it.
    pub fn new() -> Self {
        Self::default()
    }

    fn tied(&self) -> MutexGuard<'_, Tied> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every hold tied to it, and each that is tied to it later.
    pub fn end(&self) {
        let lives = {
            let mut tied = self.tied();
            tied.ended = true;
            std::mem::take(&mut tied.lives)
        };
        for life in lives.into_values().filter_map(|life| life.upgrade()) {
            life.end(LostReason::Gone);
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.tied().ended
    }

    /// The claim hangs on it no longer; to be called when it leaves.
    pub fn untie(&self, id: ClaimId) {
        self.tied().lives.remove(&id);
    }

    fn tie(&self, life: &Arc<Life>) {
        let mut tied = self.tied();
        if tied.ended {
            drop(tied);
            life.end(LostReason::Gone);
        } else {
            tied.lives.insert(life.claim.id, Arc::downgrade(life));
        }
    }
}

/// Two lifelines are equal if they are the same.
impl PartialEq for Lifeline {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Lifeline {}

/// One try to get a claim granted, as a mechanism sees it.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) life: Arc<Life>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) may_wait: bool,
}

impl Attempt {
    /// The claim.
    pub fn claim(&self) -> &Claim {
        &self.life.claim
    }

    /// Whether to wait if the claim does not fit now.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// To be called before the first byte is sent: from here on the engine may have the claim, and somebody
    /// will send a leave for it, whatever happens to this future (Law 4).
    pub fn sending(&self) {
        self.life.set_at_engine(true);
    }

    /// The engine is known not to have the claim; no leave is needed.
    pub fn absent(&self) {
        self.life.set_at_engine(false);
    }

    /// The engine has the claim, as of a request sent at this moment: renewal starts (Laws 5 and 9).
    pub fn joined(&self, sent: Moment) {
        self.life.confirmed(sent, self.life.claim.ttl);
        self.renewals.add(&self.life);
    }

    /// The claim is lost when the lifeline ends, too.
    pub fn tie(&self, lifeline: &Lifeline) {
        lifeline.tie(&self.life);
    }

    /// Resolves with the error to return when the claim died while it waited.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn lost(&self) -> Error {
        let reason = self.life.when_lost().await;
        self.life.error(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, Holder, KeeperId, LockName};

    fn life() -> Arc<Life> {
        let claim = Claim {
            id: ClaimId::random(),
            name: LockName::from_engine("x"),
            demand: Demand::Exclusive,
            holder: Arc::new(Holder::here("test")),
            keeper: KeeperId::random(),
            ttl: Duration::from_secs(10),
        };
        Arc::new(Life::new(Arc::new(claim), Clock::Boot))
    }

    #[test]
    fn what_hangs_on_a_lifeline_ends_with_it() {
        let (line, early, untied, late) = (Lifeline::new(), life(), life(), life());
        line.tie(&early);
        line.tie(&untied);
        line.untie(untied.claim.id);
        line.end();
        line.tie(&late);
        assert!(line.has_ended());
        assert_eq!(early.lost(), Some(LostReason::Gone));
        assert_eq!(untied.lost(), None);
        assert_eq!(late.lost(), Some(LostReason::Gone));
    }
}
