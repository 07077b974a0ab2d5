//! Renewal: one task per keeper keeps all its claims alive and ends those that were not confirmed in time.

use crate::claim::ClaimId;
use crate::clock::{Alarm, Clock, Moment};
use crate::departure::Departures;
use crate::engine::{Engine, Kept, Renewal};
use crate::error::LostReason;
use crate::life::Life;
use crate::name::LockName;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::Telemetry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The claims of one keeper that are to be kept alive: waiters and holders alike (Law 9).
#[derive(Debug)]
pub(crate) struct Renewals {
    registry: Mutex<Registry>,
    pub(crate) wake: Notify,
}

#[derive(Debug)]
struct Registry {
    lives: HashMap<ClaimId, Arc<Life>>,
    /// When the task will look again by itself. A claim is entered without waking it if that is soon enough,
    /// so that a quick lock and release costs no switch of threads.
    looks_at: Moment,
    /// How often it renews, as planned last.
    every: Duration,
    /// The shortest TTL of the claims that were entered since, for which the task was woken; they may have left again before
    /// it looks.
    entered: Option<Duration>,
    /// Somebody waits for the next round.
    is_urgent: bool,
    closed: bool,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        let registry = Registry {
            lives: HashMap::new(),
            looks_at: Moment::NEVER,
            every: Duration::ZERO,
            entered: None,
            is_urgent: false,
            closed: false,
        };
        Self { registry: Mutex::new(registry), wake: Notify::new() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim; or looks again at one whose deadline has come nearer.
    pub(crate) fn add(&self, life: &Arc<Life>) {
        let mut registry = self.registry();
        registry.lives.entry(life.claim.id).or_insert_with(|| Arc::clone(life));
        let ttl = life.claim.ttl;
        let late = registry.looks_at == Moment::NEVER
            || registry.looks_at > life.deadline()
            || ttl / 3 < registry.every;
        if late {
            registry.entered = Some(registry.entered.map_or(ttl, |entered| entered.min(ttl)));
        }
        drop(registry);
        if late {
            self.wake.notify_one();
        }
    }

    /// Renews all claims as soon as the present round is over.
    pub(crate) fn renew_now(&self) {
        self.registry().is_urgent = true;
        self.wake.notify_one();
    }

    /// Whether this keeper renews the claim.
    pub(crate) fn contains(&self, id: ClaimId) -> bool {
        self.registry().lives.contains_key(&id)
    }

    /// A hold of this lock.
    pub(crate) fn hold_of(&self, name: &LockName) -> Option<Arc<Life>> {
        let registry = self.registry();
        let mut holds = registry.lives.values().filter(|life| life.is_hold() && life.claim.name == *name);
        holds.next().cloned()
    }

    /// Stops renewing a claim. Always before its leave is sent.
    pub(crate) fn remove(&self, life: &Life) {
        self.registry().lives.remove(&life.claim.id);
    }

    /// Stops everything; returns what was still alive.
    pub(crate) fn close(&self) -> Vec<Arc<Life>> {
        let mut registry = self.registry();
        registry.closed = true;
        let lives = std::mem::take(&mut registry.lives);
        drop(registry);
        self.wake.notify_one();
        lives.into_values().collect()
    }

    /// What to do next: the claims to watch and when to look again; `None` when the keeper is closed.
    pub(crate) fn plan(&self, tick: Moment, now: Moment, ttl: Duration) -> Option<Plan> {
        let mut registry = self.registry();
        if registry.closed {
            return None;
        }
        // A claim that has left again counts as well: a loop of quick locks would else wake this task each time.
        let entered = registry.entered.take();
        let shortest = registry.lives.values().map(|life| life.claim.ttl).chain(entered).min();
        let ttl = shortest.unwrap_or(ttl);
        let is_urgent = std::mem::take(&mut registry.is_urgent);
        let tick = match shortest {
            _ if is_urgent => now,
            Some(ttl) => tick.min(now.plus(ttl / 3)),
            None => tick,
        };
        registry.every = ttl / 3;
        let deadline = registry.lives.values().map(|life| life.deadline()).min().unwrap_or(Moment::NEVER);
        registry.looks_at = tick.min(deadline);
        Some(Plan { tick, looks_at: registry.looks_at, ttl })
    }

    pub(crate) fn snapshot(&self) -> Vec<Arc<Life>> {
        self.registry().lives.values().cloned().collect()
    }
}

pub(crate) struct Plan {
    tick: Moment,
    pub(crate) looks_at: Moment,
    /// The shortest TTL of all claims, which sets the pace.
    ttl: Duration,
}

/// A renewal that was sent.
pub(crate) struct Sent {
    pub(crate) life: Arc<Life>,
    pub(crate) ttl: Duration,
    /// What it confirms, beside that the claim is there.
    pub(crate) change: u32,
}

/// The renewal task of one keeper.
pub(crate) struct Rounds {
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) departures: Departures,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) clock: Clock,
    pub(crate) ttl: Duration,
}

/// How a round of renewals went.
enum Round {
    /// There was nothing to renew, so there is nothing to look at before the next claim.
    Idle,
    Confirmed,
    Failed,
}

impl Rounds {
    /// Runs until the keeper is closed: renews everything each third of the TTL, and a failed round again at
    /// once with a short time limit until the deadlines pass.
    pub(crate) async fn run(self) {
        let alarm = Alarm::new(self.clock);
        let mut tick = Moment::NEVER;
        let mut has_failed = false;
        while let Some(plan) = self.renewals.plan(tick, self.clock.now(), self.ttl) {
            let ttl = plan.ttl;
            tick = plan.tick;
            tokio::select! {
                () = self.renewals.wake.notified() => {}
                () = alarm.at(plan.looks_at) => {}
            }
            self.end_overdue();
            let now = self.clock.now();
            if now < tick {
                continue;
            }
            let limit = if has_failed { ttl / 10 } else { ttl / 4 };
            let round = self.round(&alarm, now.plus(limit)).await;
            has_failed = matches!(round, Round::Failed);
            tick = match round {
                Round::Idle => Moment::NEVER,
                Round::Confirmed => now.plus(ttl / 3),
                Round::Failed => self.clock.now().plus(retry_pause(ttl)),
            };
        }
    }

    /// One batch for all claims. The deadlines are watched while it is under way.
    async fn round(&self, alarm: &Alarm, give_up_at: Moment) -> Round {
        let lives = self.renewals.snapshot();
        if lives.is_empty() {
            return Round::Idle;
        }
        let sent = self.clock.now();
        let (renewals, changes): (Vec<Renewal>, Vec<u32>) =
            lives.iter().map(|life| life.renewal(sent)).unzip();
        let mut reply = self.engine.renew(&renewals);
        let outcome = loop {
            let deadline =
                lives.iter().filter(|life| life.lost().is_none()).map(|life| life.deadline()).min();
            tokio::select! {
                outcome = &mut reply => break outcome,
                () = alarm.at(give_up_at.min(deadline.unwrap_or(Moment::NEVER))) => self.end_overdue(),
            }
            if self.clock.now() >= give_up_at {
                self.telemetry.renewal_failed(lives.len(), &"no reply in time");
                lives.iter().for_each(|life| life.doubt());
                return Round::Failed;
            }
        };
        match outcome {
            Ok(kept) => {
                let sent_at = kept.as_of.unwrap_or(sent);
                let ttls = renewals.iter().map(|renewal| renewal.ttl);
                let sent = lives.into_iter().zip(ttls).zip(changes);
                let sent = sent.map(|((life, ttl), change)| Sent { life, ttl, change });
                self.confirm(sent, &kept, sent_at);
                Round::Confirmed
            }
            Err(error) => {
                self.telemetry.renewal_failed(lives.len(), &error);
                lives.iter().for_each(|life| life.doubt());
                Round::Failed
            }
        }
    }

    pub(crate) fn confirm(&self, sent: impl Iterator<Item = Sent>, kept: &Kept, as_of: Moment) {
        let [dead, asked] = [&kept.dead, &kept.asked].map(|ids| ids.iter().collect::<HashSet<&ClaimId>>());
        let now = self.clock.now();
        for Sent { life, ttl, change } in sent {
            if dead.contains(&life.claim.id) {
                self.finish(&life, LostReason::Gone);
            } else {
                let left = life.deadline().since(now);
                let lease_ends = life.lease_left().is_some_and(|lease| lease <= left);
                self.telemetry.renewed(&life.claim, left, lease_ends);
                // A renewal requests less only when a fixed lease ends sooner, which ends the trust by itself, or when it is
                // the last of a claim that nobody here trusts any longer.
                life.confirmed(as_of, ttl.max(life.claim.ttl));
                life.confirm(change);
                if asked.contains(&life.claim.id) {
                    life.ask();
                }
            }
        }
    }

    /// Fires the lost signal of every claim whose deadline has passed, whether or not the engine replies.
    pub(crate) fn end_overdue(&self) {
        for life in self.renewals.snapshot() {
            if let Some(reason) = life.lost() {
                self.finish(&life, reason);
            }
        }
    }

    /// A claim that is over is not renewed again (Law 2) and leaves, in case the engine still has it. One that
    /// was removed in the meantime has been released: that is no loss.
    fn finish(&self, life: &Arc<Life>, reason: LostReason) {
        if self.renewals.registry().lives.remove(&life.claim.id).is_some() {
            life.end(reason);
            if life.is_hold() {
                self.telemetry.lost(&life.claim, reason);
            }
            self.departures.send(life);
        }
    }
}

/// 'At once', but not in a busy loop against an engine that refuses at once.
fn retry_pause(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::tests::life;

    #[test]
    fn a_claim_that_was_removed_is_gone_and_the_others_stay() {
        let renewals = Renewals::new();
        let [first, second, third, never] = [life(), life(), life(), life()];
        for life in [&first, &second, &third, &second] {
            renewals.add(life);
        }
        let known = || {
            [&first, &second, &third, &never]
                .map(|life| renewals.registry().lives.contains_key(&life.claim.id))
        };
        assert_eq!((renewals.snapshot().len(), known()), (3, [true, true, true, false]));
        for gone in [&first, &first, &never] {
            renewals.remove(gone);
        }
        assert_eq!((renewals.snapshot().len(), known()), (2, [false, true, true, false]));
        renewals.remove(&third);
        renewals.add(&first);
        assert_eq!((renewals.snapshot().len(), known()), (2, [true, true, false, false]));
    }

    #[test]
    fn a_lock_that_is_gone_before_the_task_looks_wakes_it_only_once() {
        let (renewals, ttl) = (Renewals::new(), Duration::from_secs(10));
        let quick_lock = || {
            let life = life();
            life.confirmed(Clock::Boot.now(), life.claim.ttl);
            renewals.add(&life);
            renewals.remove(&life);
            renewals.registry().entered.take().is_some()
        };
        assert!(quick_lock(), "the task sleeps for ever, so it must be woken");
        renewals.registry().entered = Some(ttl);
        let plan = renewals.plan(Moment::NEVER, Clock::Boot.now(), ttl).expect("it is open");
        assert_eq!(plan.looks_at, plan.tick);
        assert_ne!(plan.tick, Moment::NEVER);
        assert!(!quick_lock(), "it will look soon enough by itself");
    }
}
