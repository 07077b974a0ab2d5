//! What is shown of locks: who holds, who waits, in order.

use crate::claim::{Demand, Holder, Token};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// One lock in use: who holds it, who waits, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockView {
    /// The lock.
    pub name: String,
    /// Its claims in queue order; the holders come first.
    pub claims: Vec<ClaimView>,
}

/// Whether a claim holds or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Standing {
    /// It holds.
    Holds,
    /// It waits.
    Waits,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Waits => "waits",
        })
    }
}

/// One claim as the engine has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClaimView {
    /// Our id, or another client's name for its claim.
    pub id: String,
    /// Whether it holds or waits.
    pub standing: Standing,
    /// How much it wants.
    #[serde(serialize_with = "as_text")]
    pub demand: Demand,
    /// Who stands behind it.
    #[serde(flatten)]
    pub holder: Holder,
    /// The fencing token, of a claim that holds.
    pub token: Option<Token>,
    /// How long ago it joined, where the engine knows.
    #[serde(serialize_with = "as_seconds", rename = "age_seconds")]
    pub age: Option<Duration>,
    /// How long ago it was granted, of a claim that holds and where the engine knows: a claim that had to wait may show
    /// none before its first renewal as a hold, and then `age` is the most it can be.
    #[serde(serialize_with = "as_seconds", rename = "held_seconds")]
    pub held_for: Option<Duration>,
    /// How long it lives without another renewal, where the engine knows.
    #[serde(serialize_with = "as_seconds", rename = "ttl_left_seconds")]
    pub ttl_left: Option<Duration>,
    /// Made by another client than lockkeeper.
    pub foreign: bool,
}

impl ClaimView {
    /// One of ours, of which the engine knows nothing more; the methods of the same names add the rest.
    pub fn new(id: impl Into<String>, standing: Standing, demand: Demand, holder: Holder) -> Self {
        Self {
            id: id.into(),
            standing,
            demand,
            holder,
            token: None,
            age: None,
            held_for: None,
            ttl_left: None,
            foreign: false,
        }
    }

    /// With this fencing token.
    #[must_use]
    pub fn token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// It joined this long ago.
    #[must_use]
    pub fn age(self, age: Option<Duration>) -> Self {
        Self { age, ..self }
    }

    /// It was granted this long ago.
    #[must_use]
    pub fn held_for(self, held_for: Option<Duration>) -> Self {
        Self { held_for, ..self }
    }

    /// It lives this long without another renewal.
    #[must_use]
    pub fn ttl_left(self, ttl_left: Option<Duration>) -> Self {
        Self { ttl_left, ..self }
    }

    /// Whether another client than lockkeeper made it.
    #[must_use]
    pub fn foreign(self, foreign: bool) -> Self {
        Self { foreign, ..self }
    }

    /// How long it has been in its standing: held since the grant, or waited since the join; `None` where the engine does not
    /// know. Of a claim that has just been granted after a wait that may be, and then [`age`](Self::age) is the most.
    pub fn standing_for(&self) -> Option<Duration> {
        match self.standing {
            Standing::Holds => self.held_for,
            Standing::Waits => self.age,
        }
    }
}

impl LockView {
    /// Of claims whose standings are known, the holders first.
    pub fn new(name: impl Into<String>, claims: Vec<ClaimView>) -> Self {
        Self { name: name.into(), claims }
    }

    /// Builds the view from claims in queue order: the rule decides who holds.
    ///
    /// Standings given are overwritten, and a waiter's token and time of grant are removed: they mean nothing before it.
    pub fn from_queue(name: impl Into<String>, mut claims: Vec<ClaimView>) -> Self {
        let weights: Vec<u64> = claims.iter().map(|claim| claim.demand.weight()).collect();
        let limit = claims.first().map_or(0, |claim| claim.demand.limit());
        let held = crate::grant::holders(&weights, limit);
        for (index, claim) in claims.iter_mut().enumerate() {
            let holds = index < held;
            claim.standing = if holds { Standing::Holds } else { Standing::Waits };
            claim.token = claim.token.filter(|_| holds);
            claim.held_for = claim.held_for.filter(|_| holds);
        }
        Self { name: name.into(), claims }
    }

    /// The view of a lock whose claims are there only while they hold: each joined when it was granted.
    pub(crate) fn held_since_joined(mut self) -> Self {
        for claim in &mut self.claims {
            claim.held_for = claim.held_for.or(claim.age);
        }
        self
    }

    /// Whom the claim at this place of the list waits for, by the rule: nothing changes for it until one of
    /// these leaves. Their places in the list, the nearest first; empty if it holds.
    pub fn waits_for(&self, index: usize) -> Vec<usize> {
        let Some(claim) = self.claims.get(index).filter(|claim| claim.standing == Standing::Waits) else {
            return Vec::new();
        };
        let ahead: Vec<u64> = self.claims[..index].iter().map(|claim| claim.demand.weight()).collect();
        crate::grant::blockers(&ahead, claim.demand.weight(), claim.demand.limit())
    }

    /// The claims that hold.
    pub fn holders(&self) -> impl Iterator<Item = &ClaimView> {
        self.claims.iter().filter(|claim| claim.standing == Standing::Holds)
    }

    /// The claims that wait, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = &ClaimView> {
        self.claims.iter().filter(|claim| claim.standing == Standing::Waits)
    }
}

fn as_text<S: serde::Serializer>(demand: &Demand, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(demand)
}

fn as_seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&time.as_secs_f64()),
        None => serializer.serialize_none(),
    }
}
