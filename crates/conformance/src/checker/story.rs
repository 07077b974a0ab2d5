//! Gathers the events of each claim into its story, lock by lock.

use std::collections::{BTreeMap, HashMap};

use super::violation::{Breach, Party, Violation};
use crate::history::{Event, EventKind, History, ReleaseOutcome};

/// All that happened to one lock.
#[derive(Default)]
pub(super) struct LockStory<'history> {
    /// One story per claim, in the order in which the claims appear.
    pub(super) stories: Vec<Story>,
    /// What the resource behind the lock saw, in order of time.
    pub(super) effects: Vec<&'history Event>,
    by_claim: HashMap<u128, usize>,
}

/// What one client asked for.
#[derive(Clone, Copy)]
pub(super) struct Invoke {
    pub(super) at_ns: u64,
    pub(super) weight: u32,
    pub(super) limit: u32,
}

/// What it was given.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    pub(super) at_ns: u64,
    pub(super) token: u64,
}

/// To which weight a holder shrank.
#[derive(Clone, Copy)]
pub(super) struct Shrink {
    pub(super) at_ns: u64,
    pub(super) weight: u32,
}

/// Who was told 'released'.
#[derive(Clone, Copy)]
pub(super) struct Release {
    pub(super) at_ns: u64,
    pub(super) client: u32,
}

/// All that happened to one claim.
pub(super) struct Story {
    pub(super) lock: u32,
    pub(super) owner: Party,
    pub(super) invoke: Option<Invoke>,
    pub(super) queued_at_ns: Option<u64>,
    pub(super) grant: Option<Grant>,
    /// A later grant that gave another token.
    pub(super) second_grant: Option<Grant>,
    /// When the wait ended without a grant: unknown, cancelled or expired.
    pub(super) gave_up_at_ns: Option<u64>,
    /// When the claim was cancelled or expired: from then on no grant may come.
    pub(super) died_at_ns: Option<u64>,
    /// A grant that came nevertheless.
    pub(super) grant_after_death: Option<Grant>,
    pub(super) deadline_ns: u64,
    /// The earliest event after which the client no longer believes that it holds.
    pub(super) disbelieves_at_ns: u64,
    pub(super) shrinks: Vec<Shrink>,
    pub(super) release_invoked_at_ns: Option<u64>,
    pub(super) released: Vec<Release>,
}

/// Reads the history, in order of lock number.
pub(super) fn read(history: &History) -> impl Iterator<Item = LockStory<'_>> {
    let mut events: Vec<&Event> = history.events.iter().collect();
    // Stable, so that one client's events at equal times stay in the order in which it saw them.
    events.sort_by_key(|event| event.at_ns);
    let mut locks: BTreeMap<u32, LockStory<'_>> = BTreeMap::new();
    for event in events {
        let lock = locks.entry(event.lock).or_default();
        match event.kind {
            EventKind::Effect { .. } => lock.effects.push(event),
            _ => lock.story_of(event).take_in(event),
        }
    }
    locks.into_values()
}

impl LockStory<'_> {
    fn story_of(&mut self, event: &Event) -> &mut Story {
        let next = self.stories.len();
        let index = *self.by_claim.entry(event.claim).or_insert(next);
        if index == next {
            self.stories.push(Story::new(event));
        }
        &mut self.stories[index]
    }
}

impl Story {
    fn new(first: &Event) -> Story {
        Story {
            lock: first.lock,
            owner: Party { claim: first.claim, client: first.client },
            invoke: None,
            queued_at_ns: None,
            grant: None,
            second_grant: None,
            gave_up_at_ns: None,
            died_at_ns: None,
            grant_after_death: None,
            deadline_ns: 0,
            disbelieves_at_ns: u64::MAX,
            shrinks: Vec::new(),
            release_invoked_at_ns: None,
            released: Vec::new(),
        }
    }

    fn take_in(&mut self, event: &Event) {
        let at_ns = event.at_ns;
        match event.kind {
            EventKind::Invoke { weight, limit } => self.take_in_invoke(event.client, at_ns, weight, limit),
            EventKind::Queued => {
                self.queued_at_ns.get_or_insert(at_ns);
            }
            EventKind::Granted { token, deadline_ns } => {
                self.take_in_grant(Grant { at_ns, token }, deadline_ns)
            }
            EventKind::Renewed { deadline_ns } => self.take_in_renewal(at_ns, deadline_ns),
            EventKind::Shrunk { weight } => self.shrinks.push(Shrink { at_ns, weight }),
            EventKind::Lost => self.disbelieve(at_ns),
            EventKind::Unknown => self.give_up(at_ns),
            EventKind::Cancelled | EventKind::Expired => {
                self.give_up(at_ns);
                self.died_at_ns.get_or_insert(at_ns);
            }
            // A stranger's attempt says nothing about what the owner believes.
            EventKind::ReleaseInvoke if event.client == self.owner.client => {
                self.disbelieve(at_ns);
                self.release_invoked_at_ns.get_or_insert(at_ns);
            }
            EventKind::ReleaseDone { outcome: ReleaseOutcome::Released } => {
                self.released.push(Release { at_ns, client: event.client });
            }
            EventKind::ReleaseInvoke | EventKind::ReleaseDone { .. } | EventKind::Effect { .. } => {}
        }
    }

    fn take_in_invoke(&mut self, client: u32, at_ns: u64, weight: u32, limit: u32) {
        // A retry of the same claim asks for nothing new.
        if self.invoke.is_none() {
            self.owner.client = client;
            self.invoke = Some(Invoke { at_ns, weight, limit });
        }
    }

    fn take_in_grant(&mut self, grant: Grant, deadline_ns: u64) {
        if self.died_at_ns.is_some() {
            self.grant_after_death.get_or_insert(grant);
        }
        match self.grant {
            None => {
                self.grant = Some(grant);
                self.deadline_ns = deadline_ns;
            }
            // 'Already yours', with the same token, is the right answer to a retry.
            Some(first) if first.token == grant.token => {}
            Some(_) => {
                self.second_grant.get_or_insert(grant);
            }
        }
    }

    fn take_in_renewal(&mut self, at_ns: u64, deadline_ns: u64) {
        // A waiter is renewed too, but believes nothing; and a dead claim stays dead (Law 2).
        if self.grant.is_some() && at_ns < self.deadline_ns {
            self.deadline_ns = self.deadline_ns.max(deadline_ns);
        }
    }

    fn give_up(&mut self, at_ns: u64) {
        // Before the grant it ends the wait; a retry may still find the claim granted.
        match self.grant {
            None => {
                self.gave_up_at_ns.get_or_insert(at_ns);
            }
            Some(_) => self.disbelieve(at_ns),
        }
    }

    fn disbelieve(&mut self, at_ns: u64) {
        self.disbelieves_at_ns = self.disbelieves_at_ns.min(at_ns);
    }

    /// Accuses this claim.
    pub(super) fn breaks(&self, at_ns: u64, breach: Breach) -> Violation {
        Violation { at_ns, lock: self.lock, party: self.owner, breach }
    }

    /// When the client stops to believe that it holds.
    pub(super) fn belief_ends_at_ns(&self) -> u64 {
        self.disbelieves_at_ns.min(self.deadline_ns)
    }
}
