//! A look at a queue: names give the weight ahead, and only the blockers among them are opened. Only here no server looks.

use crate::claim_file::{self, ClaimName};
use crate::gate::Inside;
use crate::shard::Shard;
use lockkeeper_core::engine::{Ahead, Claim, Clock, Moment, grant};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::time::Duration;

/// How long a claim is left alone after it expired: more than two processors' clocks can differ.
pub(crate) const GRACE: Duration = Duration::from_millis(1);

/// What another claim turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has left, or was dead and has been removed.
    Gone,
    /// It has no head yet: it is being made, or its maker died over it. Only inside the gate this can be decided.
    Unfinished,
    /// Its owner lives, or has detached it.
    Alive(claim_file::Content),
}

/// Opens a claim and finds out whether it lives. A dead one is removed: its owner's lock is gone, so the owner
/// is; or it has expired, so that its owner finds it removed (Law 2).
pub(crate) fn inspect(shard: &Shard, name: &ClaimName) -> Result<Verdict, Errno> {
    let file_name = name.file_name();
    let file = match shard.open_file(&file_name, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(Verdict::Gone),
        opened => opened?,
    };
    // Before the read, so that a renewal that was finished in time has been written when we read.
    let now = Clock::Boot.now();
    let Some(content) = claim_file::read(&file)? else { return Ok(Verdict::Unfinished) };
    if content.expires_at.plus(GRACE) > now {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => return Ok(Verdict::Alive(content)),
            locked => locked?,
        }
        // Again, since its owner may have detached it after the first read and before our lock.
        let now = Clock::Boot.now();
        let Some(content) = claim_file::read(&file)? else { return Ok(Verdict::Unfinished) };
        let ends_at = content.expires_at.min(content.survives_until);
        if ends_at.plus(GRACE) > now {
            return Ok(Verdict::Alive(claim_file::Content { expires_at: ends_at, ..content }));
        }
    }
    shard.remove(&file_name)?;
    Ok(Verdict::Gone)
}

/// Like [`inspect`], for a caller inside the gate: an unfinished claim's maker is dead, for otherwise it would be
/// here. (If it was stopped here and the gate replaced, it will not count its claim.)
///
/// The gate must be the right one, or the claim may just be made inside the one that is.
pub(crate) fn inspect_inside(inside: &Inside<'_>, name: &ClaimName) -> Result<Verdict, Errno> {
    let verdict = inspect(inside.shard, name)?;
    if verdict == Verdict::Unfinished && inside.is_the_gate()? {
        inside.shard.remove(&name.file_name())?;
        return Ok(Verdict::Gone);
    }
    Ok(verdict)
}

/// A claim that blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    pub(crate) name: ClaimName,
    pub(crate) weight: u64,
    /// It has no head, and a caller inside the gate may remove it.
    pub(crate) unfinished: bool,
    /// When to look again without a wake-up.
    pub(crate) look_at: Moment,
}

/// What is ahead of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) ahead: Ahead,
    /// Empty if the claim fits.
    pub(crate) blockers: Vec<Blocker>,
}

/// The claims ahead of a place in the queue of one lock, oldest first.
pub(crate) fn ahead_of(claims: &[ClaimName], hash: u64, place: u64) -> Vec<ClaimName> {
    let mut ahead: Vec<ClaimName> =
        claims.iter().filter(|other| other.hash == hash && other.place < place).copied().collect();
    ahead.sort_unstable_by_key(|other| other.place);
    ahead
}

/// Weighs what is ahead, and makes sure of the blockers: each lives, is of this lock (and not of another with
/// the same hash) and has not shrunk.
///
/// `judge` is [`inspect`], or [`inspect_inside`] for a caller inside the gate.
pub(crate) fn weigh(
    claim: &Claim,
    ahead: &[ClaimName],
    judge: impl Fn(&ClaimName) -> Result<Verdict, Errno>,
) -> Result<Look, Errno> {
    let mut weights: Vec<u64> = ahead.iter().map(|other| other.demand.weight()).collect();
    let mut sure: Vec<Option<Blocker>> = vec![None; ahead.len()];
    let (mine, limit) = (claim.demand.weight(), claim.demand.limit());
    loop {
        let indices = grant::blockers(&weights, mine, limit);
        let Some(unsure) = indices.iter().copied().find(|index| sure[*index].is_none()) else {
            let blockers = indices.iter().filter_map(|index| sure[*index].take()).collect();
            return Ok(Look { ahead: Ahead(weights.iter().sum()), blockers });
        };
        match weigh_one(&ahead[unsure], claim, judge(&ahead[unsure])?) {
            Some(blocker) => {
                weights[unsure] = blocker.weight;
                sure[unsure] = Some(blocker);
            }
            None => weights[unsure] = 0,
        }
    }
}

/// The weight of one claim as its file says; `None` if it does not count.
fn weigh_one(name: &ClaimName, claim: &Claim, verdict: Verdict) -> Option<Blocker> {
    let soon = Clock::Boot.now().plus(Duration::from_millis(20));
    match verdict {
        Verdict::Gone => None,
        Verdict::Unfinished => {
            Some(Blocker { name: *name, weight: name.demand.weight(), unfinished: true, look_at: soon })
        }
        Verdict::Alive(content) if content.name != claim.name.as_str() => None,
        Verdict::Alive(content) => {
            let demand = content.demand.unwrap_or(name.demand);
            let look_at = match content.expires_at {
                Moment::NEVER => soon,
                expires_at => expires_at.plus(GRACE),
            };
            Some(Blocker { name: *name, weight: demand.weight(), unfinished: false, look_at })
        }
    }
}

/// Whether a blocker still stands as it was seen. Checked again after a watch was set on it, for what
/// happened before the watch wakes nobody.
pub(crate) fn still_stands(shard: &Shard, claim: &Claim, seen: &Blocker) -> Result<bool, Errno> {
    let now = weigh_one(&seen.name, claim, inspect(shard, &seen.name)?);
    Ok(now.is_some_and(|blocker| blocker.weight == seen.weight))
}
