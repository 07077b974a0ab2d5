//! A slow checker for small histories: it asks every claim at every moment, and shares no code with the sweeps.

use std::collections::BTreeSet;

use lockkeeper_conformance::checker::{Breach, Promises, Violation};
use lockkeeper_conformance::history::{Event, EventKind, History, ReleaseOutcome};

/// What is wrong, by its name, and the lock and claim it shows at.
pub(crate) type Finding = (&'static str, u32, u128);

/// What the sweeps found, in the oracle's words.
pub(crate) fn findings(violations: &[Violation]) -> BTreeSet<Finding> {
    let finding = |violation: &Violation| (name(&violation.breach), violation.lock, violation.party.claim);
    violations.iter().map(finding).collect()
}

fn name(breach: &Breach) -> &'static str {
    match breach {
        Breach::GrantedUnasked => "granted unasked",
        Breach::GrantedTwice { .. } => "granted twice",
        Breach::GrantedAfterDeath { .. } => "granted after death",
        Breach::Overlap { .. } => "overlap",
        Breach::MixedLimits { .. } => "mixed limits",
        Breach::DuplicateToken { .. } => "duplicate token",
        Breach::TokenWentBack { .. } => "token went back",
        Breach::Overtaken { .. } => "overtaken",
        Breach::ReleasedByStranger { .. } => "released by stranger",
        Breach::ReleasedUnheld => "released unheld",
        Breach::ReleasedTwice { .. } => "released twice",
        Breach::ReleasedAfterSuccessor { .. } => "released after successor",
        Breach::StuckWaiter { .. } => "stuck waiter",
        Breach::NeverEnded { .. } => "never ended",
        Breach::StaleEffect { .. } => "stale effect",
        other => panic!("the oracle does not know {other:?}"),
    }
}

/// Everything that is wrong with a history whose times are small numbers.
pub(crate) fn judge(history: &History, promises: &Promises) -> BTreeSet<Finding> {
    let mut events = history.events.clone();
    events.sort_by_key(|event| event.at_ns);
    let keys: BTreeSet<(u32, u128)> = events.iter().map(|event| (event.lock, event.claim)).collect();
    let mut found = BTreeSet::new();
    for &(lock, id) in &keys {
        let ids = keys.iter().filter(|key| key.0 == lock);
        let claims: Vec<Claim> = ids.map(|&(lock, id)| Claim::of(&events, lock, id)).collect();
        let claim = claims.iter().find(|claim| claim.id == id).expect("the claim is one of its lock's");
        let case = Case { claim, all: &claims, events: &events, promises };
        let wrong = CHECKS.iter().filter(|(_, check)| check(&case));
        found.extend(wrong.map(|&(name, _)| (name, lock, id)));
    }
    found
}

type Check = fn(&Case<'_>) -> bool;

const CHECKS: [(&str, Check); 15] = [
    ("granted unasked", |case| case.claim.grant().is_some() && case.claim.invoke().is_none()),
    ("granted twice", |case| case.granted_twice()),
    ("granted after death", |case| case.granted_after_death()),
    ("overlap", |case| case.overlap()),
    ("mixed limits", |case| case.mixed_limits()),
    ("duplicate token", |case| case.duplicate_token()),
    ("token went back", |case| case.token_went_back()),
    ("overtaken", |case| case.overtaken()),
    ("released by stranger", |case| case.claim.released().any(|client| client != case.claim.owner())),
    ("released unheld", |case| case.released_unheld()),
    ("released twice", |case| case.claim.released().count() > 1),
    ("released after successor", |case| case.released_after_successor()),
    ("stuck waiter", |case| case.stuck()),
    ("never ended", |case| case.never_ended()),
    ("stale effect", |case| case.stale_effect()),
];

/// One claim's events, in order of time.
struct Claim {
    lock: u32,
    id: u128,
    events: Vec<Event>,
}

#[derive(Clone, Copy)]
struct Asked {
    at: u64,
    weight: u32,
    limit: u32,
}

#[derive(Clone, Copy)]
struct Granted {
    index: usize,
    at: u64,
    token: u64,
    deadline: u64,
}

impl Claim {
    fn of(events: &[Event], lock: u32, id: u128) -> Claim {
        let own = |event: &&Event| event.lock == lock && event.claim == id;
        Claim { lock, id, events: events.iter().filter(own).copied().collect() }
    }

    fn invoke(&self) -> Option<Asked> {
        self.events.iter().find_map(|event| match event.kind {
            EventKind::Invoke { weight, limit } => Some(Asked { at: event.at_ns, weight, limit }),
            _ => None,
        })
    }

    /// Who asked; of a claim that never did, the first one seen with it. Effects are the resource's.
    fn owner(&self) -> u32 {
        let invoke = self.events.iter().find(|event| matches!(event.kind, EventKind::Invoke { .. }));
        let first = || self.events.iter().find(|event| !matches!(event.kind, EventKind::Effect { .. }));
        invoke.or_else(first).unwrap_or(&self.events[0]).client
    }

    fn grants(&self) -> impl Iterator<Item = Granted> {
        self.events.iter().enumerate().filter_map(|(index, event)| match event.kind {
            EventKind::Granted { token, deadline_ns } => {
                Some(Granted { index, at: event.at_ns, token, deadline: deadline_ns })
            }
            _ => None,
        })
    }

    fn grant(&self) -> Option<Granted> {
        self.grants().next()
    }

    fn asked_and_granted(&self) -> Option<(Asked, Granted)> {
        self.invoke().zip(self.grant())
    }

    fn released(&self) -> impl Iterator<Item = u32> {
        let done = EventKind::ReleaseDone { outcome: ReleaseOutcome::Released };
        self.events.iter().filter(move |event| event.kind == done).map(|event| event.client)
    }

    fn release_invoked(&self) -> Option<u64> {
        let own = |event: &&Event| event.kind == EventKind::ReleaseInvoke && event.client == self.owner();
        self.events.iter().find(own).map(|event| event.at_ns)
    }

    /// Whether its client has every right to believe, at this moment, that it holds.
    fn believes(&self, now: u64) -> bool {
        let Some((_, grant)) = self.asked_and_granted() else { return false };
        let mut deadline = grant.deadline;
        let past = || self.events.iter().enumerate().filter(|(_, event)| event.at_ns <= now);
        for (index, event) in past() {
            if let EventKind::Renewed { deadline_ns } = event.kind
                && index > grant.index
                && event.at_ns < deadline
            {
                deadline = deadline.max(deadline_ns);
            }
        }
        grant.at <= now && now < deadline && !past().any(|(index, event)| self.ends_belief(index, event))
    }

    fn ends_belief(&self, index: usize, event: &Event) -> bool {
        let after_grant = self.grant().is_some_and(|grant| index > grant.index);
        match event.kind {
            EventKind::Lost => true,
            EventKind::ReleaseInvoke => event.client == self.owner(),
            EventKind::Unknown | EventKind::Cancelled | EventKind::Expired => after_grant,
            _ => false,
        }
    }

    /// What it holds at this moment.
    fn held(&self, now: u64) -> u32 {
        if !self.believes(now) {
            return 0;
        }
        let shrunk = self.events.iter().filter_map(|event| match event.kind {
            EventKind::Shrunk { weight } if event.at_ns <= now => Some(weight),
            _ => None,
        });
        shrunk.chain(self.invoke().map(|asked| asked.weight)).min().unwrap_or(0)
    }

    fn smallest_weight(&self) -> u32 {
        let shrunk = self.events.iter().filter_map(|event| match event.kind {
            EventKind::Shrunk { weight } => Some(weight),
            _ => None,
        });
        shrunk.chain(self.invoke().map(|asked| asked.weight)).min().unwrap_or(0)
    }

    fn certainly_held(&self) -> Option<(Asked, Granted)> {
        self.asked_and_granted().filter(|(_, grant)| self.believes(grant.at))
    }

    fn wait_ended(&self) -> Option<u64> {
        let ends = |event: &&Event| match event.kind {
            EventKind::ReleaseInvoke => event.client == self.owner(),
            EventKind::Granted { .. }
            | EventKind::Lost
            | EventKind::Unknown
            | EventKind::Cancelled
            | EventKind::Expired => true,
            _ => false,
        };
        self.events.iter().find(ends).map(|event| event.at_ns)
    }
}

/// One claim among all those of its lock.
struct Case<'history> {
    claim: &'history Claim,
    all: &'history [Claim],
    events: &'history [Event],
    promises: &'history Promises,
}

impl Case<'_> {
    fn granted_twice(&self) -> bool {
        self.claim.grant().is_some_and(|first| self.claim.grants().any(|grant| grant.token != first.token))
    }

    fn granted_after_death(&self) -> bool {
        let death = |event: &Event| matches!(event.kind, EventKind::Cancelled | EventKind::Expired);
        let died = self.claim.events.iter().position(death);
        died.is_some_and(|died| self.claim.grants().any(|grant| grant.index > died))
    }

    /// Those who believe at the moment of this claim's grant, and were granted before it.
    fn beside(&self, now: u64) -> impl Iterator<Item = &Claim> {
        let earlier = move |other: &&Claim| {
            let place = |claim: &Claim| claim.grant().map(|grant| (grant.at, claim.id));
            other.believes(now) && place(other) < place(self.claim)
        };
        self.all.iter().filter(earlier)
    }

    fn overlap(&self) -> bool {
        self.claim.certainly_held().is_some_and(|(asked, grant)| {
            let others: u32 = self.beside(grant.at).map(|other| other.held(grant.at)).sum();
            others + self.claim.held(grant.at) > asked.limit
        })
    }

    fn mixed_limits(&self) -> bool {
        self.claim.certainly_held().is_some_and(|(asked, grant)| {
            let place = |other: &&Claim| other.grant().map(|grant| (grant.at, other.id));
            let oldest = self.beside(grant.at).min_by_key(place).and_then(Claim::invoke);
            oldest.is_some_and(|oldest| oldest.limit != asked.limit)
        })
    }

    fn duplicate_token(&self) -> bool {
        self.claim.asked_and_granted().is_some_and(|(_, grant)| {
            self.all.iter().filter(|other| other.invoke().is_some()).any(|other| {
                let same =
                    |its: Granted| its.token == grant.token && (its.at, other.id) < (grant.at, self.claim.id);
                other.grant().is_some_and(same)
            })
        })
    }

    fn token_went_back(&self) -> bool {
        let Some((asked, grant)) = self.claim.asked_and_granted() else { return false };
        let larger =
            |other: &&Claim| other.asked_and_granted().is_some_and(|(_, its)| its.token > grant.token);
        self.all.iter().filter(larger).any(|other| {
            let replied_before = other.grant().is_some_and(|its| its.at < asked.at);
            replied_before || self.held_after(other)
        })
    }

    fn held_after(&self, other: &Claim) -> bool {
        let Some((asked, grant)) = self.claim.certainly_held() else { return false };
        let Some((its_asked, its)) = other.certainly_held() else { return false };
        let conflict = asked.weight + its_asked.weight > asked.limit;
        conflict && its.at < grant.at && !other.believes(grant.at)
    }

    fn overtaken(&self) -> bool {
        let Some((asked, grant)) = self.claim.certainly_held() else { return false };
        let queued = self.claim.events.iter().find(|event| event.kind == EventKind::Queued);
        let Some(queued) = queued.filter(|_| self.promises.fifo) else { return false };
        let passes = |other: &&Claim| other.certainly_held().is_some_and(|(its, _)| its.at > queued.at_ns);
        self.all.iter().filter(passes).any(|other| {
            let from = other.grant().map_or(u64::MAX, |its| its.at);
            (from..grant.at).any(|now| self.held_by_all(now) + asked.weight > asked.limit)
        })
    }

    fn held_by_all(&self, now: u64) -> u32 {
        self.all.iter().map(|claim| claim.held(now)).sum()
    }

    fn released_unheld(&self) -> bool {
        let gave_up = |event: &Event| {
            matches!(event.kind, EventKind::Unknown | EventKind::Cancelled | EventKind::Expired)
        };
        self.claim.released().count() > 0
            && self.claim.grant().is_none()
            && !self.claim.events.iter().any(gave_up)
    }

    fn released_after_successor(&self) -> bool {
        let Some((asked, grant)) = self.claim.asked_and_granted() else { return false };
        let Some(invoked) = self.claim.release_invoked() else { return false };
        let by_owner = self.claim.released().any(|client| client == self.claim.owner());
        let stale = invoked > 0 && !self.claim.believes(invoked - 1);
        let succeeds = |other: &Claim| {
            other.certainly_held().is_some_and(|(its_asked, its)| {
                let conflict = self.claim.smallest_weight() + its_asked.weight > asked.limit;
                conflict && grant.at < its.at && its.at < invoked
            })
        };
        by_owner && stale && self.all.iter().any(succeeds)
    }

    fn stuck(&self) -> bool {
        let Some(bound) = self.promises.liveness_bound else { return false };
        let Some(asked) = self.claim.invoke() else { return false };
        let end = self.events.iter().map(|event| event.at_ns).max().unwrap_or(0);
        let until = self.claim.wait_ended().unwrap_or(end);
        let mut free_for = 0;
        for now in asked.at.max(self.promises.healed_at_ns)..until {
            free_for = if self.all.iter().any(|claim| claim.believes(now)) { 0 } else { free_for + 1 };
            if u128::from(free_for as u64) > bound.as_nanos() {
                return true;
            }
        }
        false
    }

    fn never_ended(&self) -> bool {
        let judged = self.promises.liveness_bound.is_some() && self.claim.invoke().is_some();
        judged && self.claim.wait_ended().is_none() && !self.stuck()
    }

    fn stale_effect(&self) -> bool {
        let accepted = |event: &Event| match event.kind {
            EventKind::Effect { token, accepted: true } => Some((event.at_ns, token)),
            _ => None,
        };
        let all = || self.events.iter().filter(|event| event.lock == self.claim.lock).filter_map(accepted);
        let mut own = self.claim.events.iter().filter_map(accepted);
        own.any(|(at, token)| all().any(|(earlier, larger)| earlier < at && larger > token))
    }
}
