//! Locks as JSON: everything the tables show, for programs.

use crate::exit::{Failure, UNAVAILABLE};
use crate::location::full_name;
use lockkeeper::Keeper;
use lockkeeper::views::{ClaimView, LockView, Waits, deadlocks};
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// One lock.
#[derive(Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    full_name: String,
    engine: &'static str,
    style: &'static str,
    namespace: &'a str,
    claims: Vec<Claim<'a>>,
    /// The circles of processes that wait for each other in which somebody waits for this lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlocks: Option<Vec<Vec<Wait<'a>>>>,
}

/// One claim.
#[derive(Serialize)]
pub(crate) struct Claim<'a> {
    #[serde(flatten)]
    pub(crate) claim: ClaimView,
    /// The process of the outermost `lockkeeper run` around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u32>,
    /// Since when it holds or waits.
    since: Option<String>,
    /// The claims of which one must leave before anything changes for this one.
    waits_for: Vec<&'a str>,
}

impl<'a> Claim<'a> {
    /// The claim at this place of the lock's list.
    pub(crate) fn new(lock: &'a LockView, index: usize) -> Self {
        let ahead = lock.waits_for(index).into_iter();
        let waits_for = ahead.map(|ahead| lock.claims[ahead].id.as_str()).collect();
        Self { waits_for, ..Self::alone(&lock.claims[index]) }
    }

    /// A claim of whose lock nothing else is known.
    pub(crate) fn alone(claim: &ClaimView) -> Self {
        Self {
            claim: on_its_machine(claim),
            run: claim.holder.run(),
            since: claim.standing_for().and_then(since),
            waits_for: Vec::new(),
        }
    }
}

/// One process of a circle.
#[derive(Serialize)]
pub(crate) struct Wait<'a> {
    claim: &'a str,
    who: String,
    waits_for_lock: &'a str,
    behind_claim: &'a str,
    behind: String,
}

impl<'a> Lock<'a> {
    /// One lock, without the deadlocks: they take a look at all locks.
    pub(crate) fn new(keeper: &'a Keeper, lock: &'a LockView) -> Self {
        let abilities = keeper.abilities();
        Self {
            name: &lock.name,
            full_name: full_name(keeper, &lock.name),
            engine: abilities.engine,
            style: abilities.style,
            namespace: keeper.namespace(),
            claims: (0..lock.claims.len()).map(|index| Claim::new(lock, index)).collect(),
            deadlocks: None,
        }
    }

    /// One lock, with those of these deadlocks in which somebody waits for it.
    pub(crate) fn with_deadlocks(keeper: &'a Keeper, lock: &'a LockView, circles: &[Vec<Waits<'a>>]) -> Self {
        let concerned = circles.iter().filter(|circle| concerns(circle, &lock.name));
        let deadlocks = concerned.map(|circle| circle.iter().map(Wait::from).collect()).collect();
        Self { deadlocks: Some(deadlocks), ..Self::new(keeper, lock) }
    }

    /// Several locks, with the deadlocks among them.
    pub(crate) fn list(keeper: &'a Keeper, locks: &'a [LockView]) -> Vec<Self> {
        let circles = deadlocks(locks);
        locks.iter().map(|lock| Self::with_deadlocks(keeper, lock, &circles)).collect()
    }
}

/// Whether somebody in the circle waits for this lock.
pub(crate) fn concerns(circle: &[Waits<'_>], lock: &str) -> bool {
    circle.iter().any(|wait| wait.lock == lock)
}

/// The claim with a host that is the machine's name alone.
fn on_its_machine(claim: &ClaimView) -> ClaimView {
    let mut claim = claim.clone();
    claim.holder.host.truncate(claim.holder.machine().len());
    claim
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

/// An object on a line of its own.
pub(crate) fn line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(UNAVAILABLE, format!("could not write JSON: {error}")))?;
    Ok(text + "\n")
}

/// The time this long ago.
pub(crate) fn since(age: Duration) -> Option<String> {
    let time = SystemTime::now().checked_sub(age)?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}
