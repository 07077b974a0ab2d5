//! Renewal: one task per keeper keeps all its claims alive and ends those that were not confirmed in time.

use crate::claim::ClaimId;
use crate::clock::{Alarm, Clock, Moment};
use crate::departure::Departures;
use crate::engine::{Engine, Renewal};
use crate::error::LostReason;
use crate::life::Life;
use crate::telemetry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The claims of one keeper that are to be kept alive: waiters and holders alike (Law 9).
#[derive(Debug)]
pub(crate) struct Renewals {
    registry: Mutex<Registry>,
    wake: Notify,
}

#[derive(Debug)]
struct Registry {
    lives: HashMap<ClaimId, Arc<Life>>,
    /// When the task will look again by itself. A claim is entered without waking it if that is soon enough,
    /// so that a quick lock and release costs no switch of threads.
    looks_at: Moment,
    /// A claim was entered for which the task was woken; it may have left again before the task looks.
    entered: bool,
    closed: bool,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        let registry =
            Registry { lives: HashMap::new(), looks_at: Moment::NEVER, entered: false, closed: false };
        Self { registry: Mutex::new(registry), wake: Notify::new() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim; or looks again at one whose deadline has come nearer.
    pub(crate) fn add(&self, life: &Arc<Life>) {
        let mut registry = self.registry();
        registry.lives.entry(life.claim.id).or_insert_with(|| Arc::clone(life));
        let late = registry.looks_at == Moment::NEVER || registry.looks_at > life.deadline();
        registry.entered |= late;
        drop(registry);
        if late {
            self.wake.notify_one();
        }
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
    fn plan(&self, tick: Moment, now: Moment, every: Duration) -> Option<Plan> {
        let mut registry = self.registry();
        if registry.closed {
            return None;
        }
        // A claim that has left again counts as well: a loop of quick locks would else wake this task each time.
        let entered = std::mem::take(&mut registry.entered);
        let tick = if registry.lives.is_empty() && !entered { tick } else { tick.min(now.plus(every)) };
        let deadline = registry.lives.values().map(|life| life.deadline()).min().unwrap_or(Moment::NEVER);
        registry.looks_at = tick.min(deadline);
        Some(Plan { tick, looks_at: registry.looks_at })
    }

    fn snapshot(&self) -> Vec<Arc<Life>> {
        self.registry().lives.values().cloned().collect()
    }
}

struct Plan {
    tick: Moment,
    looks_at: Moment,
}

/// The renewal task of one keeper.
pub(crate) struct Rounds {
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) departures: Departures,
    pub(crate) engine: Arc<dyn Engine>,
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
        let every = self.ttl / 3;
        let mut tick = Moment::NEVER;
        let mut limit = self.ttl / 4;
        while let Some(plan) = self.renewals.plan(tick, self.clock.now(), every) {
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
            (tick, limit) = match self.round(&alarm, now.plus(limit)).await {
                Round::Idle => (Moment::NEVER, self.ttl / 4),
                Round::Confirmed => (now.plus(every), self.ttl / 4),
                Round::Failed => (self.clock.now().plus(retry_pause(self.ttl)), self.ttl / 10),
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
        let renewals: Vec<Renewal> = lives
            .iter()
            .map(|life| Renewal { claim: Arc::new(life.claim.clone()), ttl: life.ttl_from(sent) })
            .collect();
        let mut reply = self.engine.renew(&renewals);
        let outcome = loop {
            let deadline =
                lives.iter().filter(|life| life.lost().is_none()).map(|life| life.deadline()).min();
            tokio::select! {
                outcome = &mut reply => break outcome,
                () = alarm.at(give_up_at.min(deadline.unwrap_or(Moment::NEVER))) => self.end_overdue(),
            }
            if self.clock.now() >= give_up_at {
                telemetry::renewal_failed(lives.len(), &"no reply in time");
                lives.iter().for_each(|life| life.doubt());
                return Round::Failed;
            }
        };
        match outcome {
            Ok(kept) => {
                self.confirm(&lives, &kept.dead, kept.as_of.unwrap_or(sent));
                Round::Confirmed
            }
            Err(error) => {
                telemetry::renewal_failed(lives.len(), &error);
                lives.iter().for_each(|life| life.doubt());
                Round::Failed
            }
        }
    }

    fn confirm(&self, lives: &[Arc<Life>], dead: &[ClaimId], as_of: Moment) {
        let dead: std::collections::HashSet<&ClaimId> = dead.iter().collect();
        let now = self.clock.now();
        for life in lives {
            if dead.contains(&life.claim.id) {
                self.finish(life, LostReason::Gone);
            } else {
                let left = life.deadline().since(now);
                let lease_ends = life.lease_left().is_some_and(|lease| lease <= left);
                telemetry::renewed(&life.claim, left, lease_ends);
                // A renewal requests less only when a fixed lease ends sooner, which ends the trust by itself.
                life.confirmed(as_of, life.claim.ttl);
            }
        }
    }

    /// Fires the lost signal of every claim whose deadline has passed, whether or not the engine replies.
    fn end_overdue(&self) {
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
                telemetry::lost(&life.claim, reason);
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
        let (renewals, every) = (Renewals::new(), Duration::from_secs(3));
        let quick_lock = || {
            let life = life();
            life.confirmed(Clock::Boot.now(), life.claim.ttl);
            renewals.add(&life);
            renewals.remove(&life);
            std::mem::take(&mut renewals.registry().entered)
        };
        assert!(quick_lock(), "the task sleeps for ever, so it must be woken");
        renewals.registry().entered = true;
        let plan = renewals.plan(Moment::NEVER, Clock::Boot.now(), every).expect("it is open");
        assert_eq!(plan.looks_at, plan.tick);
        assert_ne!(plan.tick, Moment::NEVER);
        assert!(!quick_lock(), "it will look soon enough by itself");
    }
}
