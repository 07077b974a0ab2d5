//! A claim of this engine. Only here a claim is an open file: it stays open for writing and locked while the claim lives.

use crate::claim_file::{self, ClaimName};
use crate::shard::Shard;
use lockkeeper_core::Demand;
use lockkeeper_core::engine::{Claim, Clock, Moment, Renewal};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One of our claims. Dropped in whatever way, its file is removed first and closed after.
pub(crate) struct OwnClaim {
    pub(crate) shard: Arc<Shard>,
    pub(crate) name: ClaimName,
    pub(crate) file_name: String,
    file: OwnedFd,
    expires_at: Mutex<Moment>,
    /// Where its file says how long it survives this process.
    survival_at: u64,
    /// Its file says since when it holds.
    is_grant_noted: AtomicBool,
    /// The file was removed, or is left to others.
    removed: AtomicBool,
}

impl OwnClaim {
    /// Makes the file, locks it, and only then writes its head: a claim without a head is left alone by
    /// others, so no probe can get between the first two steps. To be called inside the gate.
    pub(crate) fn create(
        shard: &Arc<Shard>,
        claim: &Claim,
        name: ClaimName,
        holds: bool,
    ) -> Result<Self, Errno> {
        let file_name = name.file_name();
        let file = shard.open_file(&file_name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let own = Self {
            shard: Arc::clone(shard),
            name,
            file_name,
            file,
            expires_at: Mutex::new(Moment::ORIGIN),
            survival_at: claim_file::survival_at(claim.name.as_str(), &claim.holder.encode()),
            is_grant_noted: AtomicBool::new(holds),
            removed: AtomicBool::new(false),
        };
        rustix::fs::flock(&own.file, FlockOperation::NonBlockingLockExclusive)?;
        let now = Clock::Boot.now();
        let content = claim_file::encode(claim, now, now.plus(claim.ttl), holds);
        *own.expiry() = now.plus(claim.ttl);
        claim_file::write_at(&own.file, &content, 0)?;
        Ok(own)
    }

    /// Takes over a claim that was detached.
    pub(crate) fn adopt(shard: &Arc<Shard>, name: ClaimName, renewal: &Renewal) -> Result<Adopted, Errno> {
        let file_name = name.file_name();
        let file = match shard.open_file(&file_name, OFlags::RDWR) {
            Err(Errno::NOENT) => return Ok(Adopted::Gone),
            opened => opened?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(Adopted::Busy),
            locked => locked?,
        }
        let Some(content) = claim_file::read(&file)? else { return Ok(Adopted::Gone) };
        if content.name != renewal.claim.name.as_str() {
            return Ok(Adopted::Gone);
        }
        let own = Self {
            shard: Arc::clone(shard),
            name,
            file_name,
            expires_at: Mutex::new(content.expires_at.min(content.survives_until)),
            survival_at: claim_file::survival_at(&content.name, &content.holder),
            is_grant_noted: AtomicBool::new(true),
            file,
            // Left alone until it is known to be ours.
            removed: AtomicBool::new(true),
        };
        if !own.renew(renewal)? {
            return Ok(Adopted::Gone);
        }
        own.removed.store(false, SeqCst);
        Ok(Adopted::Taken(own))
    }

    /// Leaves the file to others when it is closed.
    pub(crate) fn detach(&self) {
        self.removed.store(true, SeqCst);
    }

    fn expiry(&self) -> MutexGuard<'_, Moment> {
        self.expires_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the claim still stands where others see it: not expired, not removed by somebody.
    pub(crate) fn stands(&self) -> Result<bool, Errno> {
        let unexpired = Clock::Boot.now() < *self.expiry();
        Ok(unexpired && rustix::fs::fstat(&self.file)?.st_nlink > 0)
    }

    /// Lets the claim live that long from now on, and for a part of it even if this process ends; `false` if it is dead.
    ///
    /// Law 2: the renewal counts only if it was finished before the claim would have expired. A client that judges it
    /// expired read the file after that moment, on the same clock, and so would have seen the renewal.
    pub(crate) fn renew(&self, renewal: &Renewal) -> Result<bool, Errno> {
        let Renewal { ttl, outlives, held_for, .. } = *renewal;
        let mut expires_at = self.expiry();
        let now = Clock::Boot.now();
        if now >= *expires_at {
            return Ok(false);
        }
        #[cfg(test)]
        crate::tests::stall::here(&self.shard.path);
        if !outlives.is_zero() {
            claim_file::write_survival(&self.file, self.survival_at, now.plus(outlives))?;
        }
        if let Some(held_for) = held_for
            && !self.is_grant_noted.swap(true, SeqCst)
        {
            claim_file::write_grant(&self.file, self.survival_at, now.minus(held_for))?;
        }
        claim_file::write_expiry(&self.file, now.plus(ttl))?;
        if Clock::Boot.now() >= *expires_at {
            *expires_at = Moment::ORIGIN;
            return Ok(false);
        }
        *expires_at = now.plus(ttl);
        Ok(rustix::fs::fstat(&self.file)?.st_nlink > 0)
    }

    /// Whether somebody has asked for it to be released.
    pub(crate) fn is_asked(&self) -> Result<bool, Errno> {
        claim_file::is_asked(&self.file, self.survival_at)
    }

    /// Takes less room from now on. The change of attributes wakes those who watch the file, as writing alone does
    /// not (or each renewal would wake them, too).
    pub(crate) fn shrink(&self, to: Demand) -> Result<(), Errno> {
        claim_file::write_demand(&self.file, to)?;
        let mode = rustix::fs::Mode::from_raw_mode(rustix::fs::fstat(&self.file)?.st_mode);
        rustix::fs::fchmod(&self.file, mode)
    }

    /// Removes the file; `false` if somebody else did before, or it had expired.
    pub(crate) fn leave(&self) -> Result<bool, Errno> {
        let stood = Clock::Boot.now() < *self.expiry();
        let was_there = self.shard.remove(&self.file_name)?;
        self.removed.store(true, SeqCst);
        Ok(was_there && stood)
    }
}

/// What came of taking over a claim.
pub(crate) enum Adopted {
    Taken(OwnClaim),
    /// Somebody has it locked: its new owner, or a look, for a moment.
    Busy,
    Gone,
}

impl Drop for OwnClaim {
    fn drop(&mut self) {
        if !self.removed.load(SeqCst) {
            let _ = self.shard.remove(&self.file_name);
        }
    }
}
