//! Joining: the one verb that needs the gate, so that order is the order of joining (Law 1). Apart from `queue`
//! for its length.

use crate::claim_file::{ClaimName, hash_of};
use crate::error::{ENGINE, from_errno};
use crate::gate::{self, Busy, Entrance, Inside};
use crate::look::{self, Verdict};
use crate::own_claim::OwnClaim;
use crate::queue::Files;
use crate::shard::Shard;
use lockkeeper_core::engine::{Claim, Clock, Joined, Moment, Place};
use lockkeeper_core::{Error, Result, Token};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const DOING: &str = "join the queue";

/// How often to begin anew when the directory or the gate is removed meanwhile.
const NEW_BEGINNINGS: u32 = 20;

/// What came of one try.
enum Try {
    Joined(Joined),
    /// Somebody else is inside the gate.
    Busy(Arc<Shard>, Busy),
    /// The directory or the gate was replaced meanwhile; nothing was left behind.
    Replaced,
}

/// Joins, or finds the place of a claim that has joined.
///
/// Everything between adding the claim and remembering it happens without an await, so a future that is dropped has
/// either joined, and `leave` knows the claim, or has not.
pub(crate) async fn join(files: &Files, claim: &Claim) -> Result<Joined> {
    let mut timeout = StopTimeout::new(claim.ttl);
    for _ in 0..NEW_BEGINNINGS {
        loop {
            match try_join(files, claim)? {
                Try::Joined(joined) => return Ok(joined),
                Try::Replaced => break,
                Try::Busy(shard, busy) => {
                    if timeout.is_over(busy) {
                        let failed = |errno| from_errno(DOING, &shard.path, errno);
                        gate::set_aside(&shard, busy).map_err(failed)?;
                    }
                    Clock::Boot.sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }
    Err(Error::temporary(ENGINE, DOING, "the directory is being removed again and again"))
}

/// How long one and the same process may be inside the gate before it counts as stopped.
struct StopTimeout {
    limit: Duration,
    seen: Option<(Busy, Moment)>,
}

impl StopTimeout {
    fn new(ttl: Duration) -> Self {
        let limit = (ttl / 4).clamp(Duration::from_millis(25), Duration::from_secs(2));
        Self { limit, seen: None }
    }

    fn is_over(&mut self, busy: Busy) -> bool {
        let now = Clock::Boot.now();
        match self.seen {
            Some((same, since)) if same == busy => now.since(since) >= self.limit,
            _ => {
                self.seen = Some((busy, now));
                false
            }
        }
    }
}

fn try_join(files: &Files, claim: &Claim) -> Result<Try> {
    let hash = hash_of(claim.name.as_str());
    let shard = files.shards.of(hash).map_err(|errno| from_errno(DOING, &files.shards.config.root, errno))?;
    match try_join_in(files, claim, hash, &shard) {
        Ok(Try::Replaced) | Err(Failure::System(Errno::NOENT | Errno::STALE)) => {
            files.shards.forget(hash, &shard);
            Ok(Try::Replaced)
        }
        Ok(tried) => Ok(tried),
        Err(Failure::System(errno)) => Err(from_errno(DOING, &shard.path, errno)),
        Err(Failure::Refused(error)) => Err(error),
    }
}

enum Failure {
    System(Errno),
    Refused(Error),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

fn try_join_in(files: &Files, claim: &Claim, hash: u64, shard: &Arc<Shard>) -> Result<Try, Failure> {
    let mut inside = match gate::enter(shard)? {
        Entrance::Inside(inside) => inside,
        Entrance::Busy(busy) => return Ok(Try::Busy(Arc::clone(shard), busy)),
    };
    let claims = shard.claims()?;
    if let Some(own) = files.own(claim.id) {
        return find_place(files, claim, &own, &inside, &claims);
    }
    sweep(&inside, hash, &claims);
    // Nobody joins while we are inside, so what is in the queue now is all that will ever be ahead.
    let ahead = look::ahead_of(&claims, hash, u64::MAX);
    check_shape(&inside, claim, &ahead)?;
    let highest = || claims.iter().map(|other| other.place).max().unwrap_or(0);
    let place = inside.take_place(highest)?;
    let name = ClaimName { place, hash, demand: claim.demand, id: claim.id };
    let own = OwnClaim::create(shard, claim, name, ahead.is_empty())?;
    if !inside.is_the_gate()? {
        drop(own);
        inside.abandon();
        return Ok(Try::Replaced);
    }
    let look = look::weigh(claim, &ahead, |other| look::inspect_inside(&inside, other))?;
    // Still inside, so that a second join of the same claim finds it.
    files.remember(own);
    drop(inside);
    Ok(Try::Joined(Joined { place: Place(place), token: Token(place), ahead: look.ahead, lifeline: None }))
}

/// A second join of the same claim finds its place (Law 4).
fn find_place(
    files: &Files,
    claim: &Claim,
    own: &OwnClaim,
    inside: &Inside<'_>,
    claims: &[ClaimName],
) -> Result<Try, Failure> {
    if !own.stands()? || !own.shard.is_in_place()? {
        files.forget(claim.id);
        let _ = own.leave();
        return Err(Failure::Refused(claim.gone()));
    }
    let place = own.name.place;
    let ahead = look::ahead_of(claims, own.name.hash, place);
    let look = look::weigh(claim, &ahead, |other| look::inspect_inside(inside, other))?;
    Ok(Try::Joined(Joined { place: Place(place), token: Token(place), ahead: look.ahead, lifeline: None }))
}

/// Law 6: the oldest live claim's shape rules. Only if names disagree, files are opened, to find out who lives.
fn check_shape(inside: &Inside<'_>, claim: &Claim, ahead: &[ClaimName]) -> Result<(), Failure> {
    let wanted = claim.demand.shape();
    if ahead.iter().all(|other| other.demand.shape() == wanted) {
        return Ok(());
    }
    for other in ahead {
        if let Verdict::Alive(content) = look::inspect_inside(inside, other)?
            && content.name == claim.name.as_str()
        {
            return claim.check_shape(other.demand.shape()).map_err(Failure::Refused);
        }
    }
    Ok(())
}

/// Once per engine and shard: clears away claims of killed processes on locks that may never be used again.
/// (The dead of our own lock are found as blockers.) What cannot be opened is left to others.
fn sweep(inside: &Inside<'_>, hash: u64, claims: &[ClaimName]) {
    if inside.shard.swept.swap(true, SeqCst) {
        return;
    }
    for other in claims.iter().filter(|other| other.hash != hash) {
        let _ = look::inspect_inside(inside, other);
    }
}
