//! One claim's life on the client's side: until when it is trusted, whether it is in doubt, how it ended.

mod lifeline;
mod outliving;

pub use lifeline::Lifeline;

use crate::acquire::Stay;
use crate::claim::Claim;
use crate::clock::{Clock, Moment};
use crate::error::{Error, LostReason};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{self, OneMore};
use outliving::Outliving;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Who calls: a task of tokio, or a thread that runs none.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    Task(tokio::task::Id),
    Thread(std::thread::ThreadId),
}

impl Task {
    fn current() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}

/// What the client knows of its claim. Everything is judged by the clock at the moment of the call.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) claim: Claim,
    clock: Clock,
    /// Set while the engine may have the claim, so that somebody must send a leave in the end.
    at_engine: AtomicBool,
    /// Nanoseconds on the clock; zero until the claim has joined.
    trusted_until: AtomicU64,
    /// Nanoseconds on the clock; the end of a fixed lease.
    lease_ends: AtomicU64,
    /// Nanoseconds on the clock; zero until the claim was granted, and for one that was attached.
    granted_at: AtomicU64,
    /// The caller has it as a hold.
    is_hold: AtomicBool,
    /// The task that took it.
    taken_by: Mutex<Option<Task>>,
    /// Its part of the number of holds, until it ends.
    held: Mutex<Option<OneMore>>,
    /// The engine has replied to the claim, in time.
    has_replied: AtomicBool,
    /// Somebody asks for it to be released.
    asked: AtomicBool,
    /// The last renewal failed, or the last request of a claim that waits.
    doubted: AtomicBool,
    /// The lifeline it hangs on is in doubt.
    cut: AtomicBool,
    /// Nanoseconds of its TTL that its lifeline does not count on.
    reserve: AtomicU64,
    outliving: Mutex<Outliving>,
    ended: OnceLock<LostReason>,
    /// It is over, somebody asks for it, or a renewal was confirmed that somebody waits for.
    changed: Notify,
}

/// How much earlier than the engine the client stops trusting: the tolerated difference of clock rates
/// (1 %, at least 2 ms), counted over one TTL.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(2))
}

impl Life {
    pub(crate) fn new(claim: Claim, clock: Clock) -> Self {
        Self {
            claim,
            clock,
            at_engine: AtomicBool::new(false),
            trusted_until: AtomicU64::new(0),
            lease_ends: AtomicU64::new(u64::MAX),
            granted_at: AtomicU64::new(0),
            is_hold: AtomicBool::new(false),
            taken_by: Mutex::default(),
            held: Mutex::default(),
            has_replied: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            reserve: AtomicU64::new(0),
            outliving: Mutex::default(),
            ended: OnceLock::new(),
            changed: Notify::new(),
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

    /// Whether a leave is owed; the first caller sends it.
    pub(crate) fn take_leave(&self) -> bool {
        self.at_engine.swap(false, SeqCst)
    }

    /// How much earlier than its TTL's end the claim is no longer trusted.
    fn early(&self, ttl: Duration) -> Duration {
        margin(ttl) + Duration::from_nanos(self.reserve.load(SeqCst))
    }

    /// Law 5: a join or renewal sent at this moment was good, so the claim is trusted for its TTL from then.
    pub(crate) fn confirmed(&self, sent: Moment, ttl: Duration) {
        let until = sent.plus(ttl).minus(self.early(ttl));
        self.trusted_until.fetch_max(until.as_nanos(), SeqCst);
        if self.clock.now() < until {
            self.has_replied.store(true, SeqCst);
        }
        self.doubted.store(false, SeqCst);
    }

    /// The engine has the claim for this TTL, as of a request sent at this moment, and it hangs on this lifeline, too.
    pub(crate) fn joined(self: &Arc<Self>, sent: Moment, ttl: Duration, lifeline: Option<&Lifeline>) {
        self.set_at_engine(true);
        if let Some(lifeline) = lifeline {
            lifeline.tie(self);
        }
        self.confirmed(sent, ttl);
    }

    /// The engine has granted the claim at this moment.
    pub(crate) fn granted_at(&self, moment: Moment) {
        self.granted_at.store(moment.as_nanos(), SeqCst);
    }

    /// How long ago the claim was granted, as long as the engine may not know it: a claim that is trusted for longer than its TTL
    /// after that has been renewed since.
    fn held_for(&self, now: Moment) -> Option<Duration> {
        let nanos = self.granted_at.load(SeqCst);
        let held_for = (nanos != 0).then(|| now.since(Moment::from_nanos(nanos)));
        held_for.filter(|held_for| *held_for <= self.claim.ttl)
    }

    /// The caller has the claim as a hold: from here on its end is a loss to it.
    pub(crate) fn granted(&self, held: OneMore) {
        *self.taken_by() = Some(Task::current());
        self.is_hold.store(true, SeqCst);
        *self.held() = Some(held);
    }

    fn held(&self) -> MutexGuard<'_, Option<OneMore>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller gives the hold up, or has lost it.
    pub(crate) fn let_go(&self) {
        self.held().take();
    }

    pub(crate) fn is_hold(&self) -> bool {
        self.is_hold.load(SeqCst)
    }

    /// Whether the task that runs now took the hold.
    pub(crate) fn is_taken_by_this_task(&self) -> bool {
        *self.taken_by() == Some(Task::current())
    }

    /// Its task waits behind it on purpose.
    pub(crate) fn forget_task(&self) {
        *self.taken_by() = None;
    }

    fn taken_by(&self) -> MutexGuard<'_, Option<Task>> {
        self.taken_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine has replied, though the claim is not there.
    pub(crate) fn replied(&self) {
        self.has_replied.store(true, SeqCst);
        self.doubted.store(false, SeqCst);
    }

    /// Whether the engine has replied to the claim: granted, queued or refused it, and said so in time.
    pub(crate) fn has_replied(&self) -> bool {
        self.has_replied.load(SeqCst)
    }

    /// A renewal, or a request of a claim that waits, failed: uncertain, not lost, until the deadline.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, SeqCst);
    }

    pub(crate) fn doubted(&self) -> bool {
        self.doubted.load(SeqCst) || self.cut.load(SeqCst)
    }

    pub(crate) fn lease_ends(&self, moment: Moment) {
        self.lease_ends.store(moment.as_nanos(), SeqCst);
    }

    /// How much is left of a fixed lease; `None` without one.
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        match self.lease_ends.load(SeqCst) {
            u64::MAX => None,
            ends => Some(Moment::from_nanos(ends).since(self.clock.now())),
        }
    }

    /// The TTL to ask for in a renewal sent now: no longer than a fixed lease lasts, plus what is not counted on, so
    /// that the client's trust reaches just to the lease's end.
    pub(crate) fn ttl_from(&self, now: Moment) -> Duration {
        let lease_left = Moment::from_nanos(self.lease_ends.load(SeqCst)).since(now);
        self.claim.ttl.min(lease_left.saturating_add(self.early(self.claim.ttl)))
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
            self.changed.notify_waiters();
            self.let_go();
        }
        first
    }

    /// Whether it is over, looking at the clock now.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_at(self.clock.now())
    }

    /// Whether it is over, if this is the present moment.
    pub(crate) fn lost_at(&self, now: Moment) -> Option<LostReason> {
        if let Some(reason) = self.ended.get() {
            return Some(*reason);
        }
        if now < self.deadline() {
            return None;
        }
        let by_lease = self.deadline().as_nanos() == self.lease_ends.load(SeqCst);
        self.end(if by_lease { LostReason::LeaseEnded } else { LostReason::Expired });
        self.ended.get().copied()
    }

    /// Resolves when it is over.
    pub(crate) async fn when_lost(&self) -> LostReason {
        loop {
            let changed = self.changed.notified();
            if let Some(reason) = self.lost() {
                return reason;
            }
            changed.await;
        }
    }

    /// Somebody asks for the claim to be released, by a message or in the reply to a renewal: the first one counts.
    pub(crate) fn ask(&self) {
        if !self.asked.swap(true, SeqCst) {
            telemetry::asked(&self.claim);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(SeqCst)
    }

    /// Resolves when somebody asks for the claim to be released.
    pub(crate) async fn when_asked(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_asked() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn error(&self, reason: LostReason) -> Error {
        Error::Lost { name: self.claim.name.to_string(), reason }
    }
}

/// One try to get a claim granted, as a mechanism sees it.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) stay: Stay,
    /// When it began, which is just before the first byte is sent.
    pub(crate) asked: Moment,
    pub(crate) may_wait: bool,
}

impl Attempt {
    /// The claim.
    pub fn claim(&self) -> &Claim {
        &self.stay.life.claim
    }

    /// Whether to wait if the claim does not fit now.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether to send the same claim again after a temporary error: as long as enough of its TTL is left, counted from the first
    /// send. A try that does not wait gives up sooner.
    pub(crate) fn may_retry(&self, sent: Moment, tries: u32) -> bool {
        let now = self.stay.life.clock().now();
        if self.may_wait { now.since(sent) < self.claim().ttl / 2 } else { tries < crate::queue::TRIES }
    }

    /// To be called before the first byte is sent: from here on the engine may have the claim, and somebody
    /// will send a leave for it, whatever happens to this future (Law 4).
    pub fn sending(&self) {
        self.stay.life.set_at_engine(true);
    }

    /// The engine is known not to have the claim; no leave is needed.
    pub fn absent(&self) {
        self.stay.life.set_at_engine(false);
    }

    /// The engine has replied that it does not have the claim, which waits.
    pub(crate) fn refused(&self) {
        self.absent();
        self.stay.life.replied();
    }

    /// The engine has replied to something else while it keeps the request of the claim, which waits.
    pub fn replied(&self) {
        self.stay.life.replied();
    }

    /// A request of the wait has failed, and may succeed later.
    pub fn failed(&self) {
        self.stay.life.doubt();
    }

    /// The engine has the claim, as of a request sent at this moment, and it hangs on this lifeline, too: renewal
    /// starts (Laws 5 and 9).
    pub fn joined(&self, sent: Moment, lifeline: Option<&Lifeline>) {
        let life = &self.stay.life;
        life.joined(sent, life.claim.ttl, lifeline);
        self.stay.keeper.0.renewals.add(life);
    }

    /// Resolves with the error to return when the claim died while it waited.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn lost(&self) -> Error {
        let reason = self.stay.life.when_lost().await;
        self.stay.life.error(reason)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::claim::ClaimId;
    use crate::claim::KeeperId;
    use crate::name::LockName;
    use crate::{Demand, Holder};

    pub(crate) fn life() -> Arc<Life> {
        let claim = Claim {
            id: ClaimId::random(),
            name: LockName::from_engine("x"),
            demand: Demand::Exclusive,
            holder: Arc::new(Holder::here("test")),
            keeper: KeeperId::random(),
            ttl: Duration::from_secs(10),
        };
        Arc::new(Life::new(claim, Clock::Boot))
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

    #[test]
    fn one_claim_is_lost_and_the_others_on_its_lifeline_are_not() {
        let (line, freed, other) = (Lifeline::new(), life(), life());
        line.tie(&freed);
        line.tie(&other);
        line.end_one(freed.claim.id);
        line.end_one(ClaimId::random());
        assert_eq!((freed.lost(), other.lost()), (Some(LostReason::Gone), None));
    }

    #[test]
    fn one_claim_is_asked_for_and_the_others_on_its_lifeline_are_not() {
        let (line, asked, other) = (Lifeline::new(), life(), life());
        line.tie(&asked);
        line.tie(&other);
        line.ask_one(asked.claim.id);
        line.ask_one(ClaimId::random());
        assert_eq!((asked.is_asked(), other.is_asked(), asked.lost()), (true, false, None));
        line.end_one(asked.claim.id);
        assert!(asked.lost().is_some(), "it is still tied");
    }

    #[test]
    fn a_lifelines_doubt_is_its_claims_doubt_until_it_is_over() {
        let (line, early, late) = (Lifeline::new(), life(), life());
        line.tie(&early);
        line.doubt();
        line.tie(&late);
        early.confirmed(Clock::Boot.now(), early.claim.ttl);
        assert!(early.doubted() && late.doubted(), "a renewal's reply from before the cut does not end it");
        line.trust();
        assert!(!early.doubted() && !late.doubted());
    }

    #[test]
    fn a_reserve_shortens_the_trust_and_not_a_fixed_lease() {
        let (line, tied, now) = (Lifeline::with_reserve(Duration::from_secs(4)), life(), Clock::Boot.now());
        line.tie(&tied);
        tied.confirmed(now, tied.claim.ttl);
        assert_eq!(tied.deadline().since(now), Duration::from_millis(5900));
        let lease = now.plus(Duration::from_secs(2));
        let leased = life();
        leased.lease_ends(lease);
        line.tie(&leased);
        leased.confirmed(now, leased.ttl_from(now));
        assert_eq!(leased.deadline(), lease, "what is asked for reaches to the lease's end");
    }
}
