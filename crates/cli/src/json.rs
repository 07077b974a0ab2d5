//! Locks as JSON: everything the tables show, for programs.

use crate::location::full_name;
use lockkeeper::{ClaimView, Keeper, LockView, Waits, deadlocks};
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// One lock.
#[derive(Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    full_name: String,
    claims: Vec<Claim<'a>>,
    /// The circles of processes that wait for each other in which somebody waits for this lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlocks: Option<Vec<Vec<Wait<'a>>>>,
}

#[derive(Serialize)]
struct Claim<'a> {
    #[serde(flatten)]
    claim: &'a ClaimView,
    since: Option<String>,
    /// The claims of which one must leave before anything changes for this one.
    waits_for: Vec<&'a str>,
}

/// One process of a circle.
#[derive(Serialize)]
struct Wait<'a> {
    claim: &'a str,
    who: String,
    waits_for_lock: &'a str,
    behind_claim: &'a str,
    behind: String,
}

impl<'a> Lock<'a> {
    /// One lock, without the deadlocks: they take a look at all locks.
    pub(crate) fn new(keeper: &Keeper, lock: &'a LockView) -> Self {
        let claims = lock.claims.iter().enumerate().map(|(index, claim)| Claim {
            claim,
            since: claim.age.and_then(since),
            waits_for: lock
                .waits_for(index)
                .into_iter()
                .map(|ahead| lock.claims[ahead].id.as_str())
                .collect(),
        });
        Self {
            name: &lock.name,
            full_name: full_name(keeper, &lock.name),
            claims: claims.collect(),
            deadlocks: None,
        }
    }

    /// Several locks, with the deadlocks among them.
    pub(crate) fn list(keeper: &Keeper, locks: &'a [LockView]) -> Vec<Self> {
        let circles = deadlocks(locks);
        let of = |lock: &LockView| {
            let concerned = circles.iter().filter(|circle| circle.iter().any(|wait| wait.lock == lock.name));
            concerned.map(|circle| circle.iter().map(Wait::from).collect()).collect()
        };
        locks.iter().map(|lock| Self { deadlocks: Some(of(lock)), ..Self::new(keeper, lock) }).collect()
    }
}

impl<'a> From<&Waits<'a>> for Wait<'a> {
    fn from(wait: &Waits<'a>) -> Self {
        Self {
            claim: &wait.claim.id,
            who: wait.claim.holder.to_string(),
            waits_for_lock: wait.lock,
            behind_claim: &wait.behind.id,
            behind: wait.behind.holder.to_string(),
        }
    }
}

/// The time this long ago.
pub(crate) fn since(age: Duration) -> Option<String> {
    let time = SystemTime::now().checked_sub(age)?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}
