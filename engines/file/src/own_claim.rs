//! A claim of this engine. Only here a claim is an open file: it stays open for writing and locked while the claim lives.

use crate::claim_file::{self, ClaimName};
use crate::shard::Shard;
use lockkeeper_core::Demand;
use lockkeeper_core::engine::{Claim, Clock, Moment};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One of our claims. Dropped in whatever way, its file is removed first and closed after.
pub(crate) struct OwnClaim {
    pub(crate) shard: Arc<Shard>,
    pub(crate) name: ClaimName,
    pub(crate) file_name: String,
    file: OwnedFd,
    expires_at: Mutex<Moment>,
    removed: AtomicBool,
}

impl OwnClaim {
    /// Makes the file, locks it, and only then writes its head: a claim without a head is left alone by
    /// others, so no probe can get between the first two steps. To be called inside the gate.
    pub(crate) fn create(shard: &Arc<Shard>, claim: &Claim, name: ClaimName) -> Result<Self, Errno> {
        let file_name = name.file_name();
        let file = shard.open_file(&file_name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let own = Self {
            shard: Arc::clone(shard),
            name,
            file_name,
            file,
            expires_at: Mutex::new(Moment::ORIGIN),
            removed: AtomicBool::new(false),
        };
        rustix::fs::flock(&own.file, FlockOperation::NonBlockingLockExclusive)?;
        let now = Clock::Boot.now();
        *own.expiry() = now.plus(claim.ttl);
        claim_file::write_at(&own.file, &claim_file::encode(claim, now, now.plus(claim.ttl)), 0)?;
        Ok(own)
    }

    fn expiry(&self) -> MutexGuard<'_, Moment> {
        self.expires_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the claim still stands where others see it: not expired, not removed by somebody.
    pub(crate) fn stands(&self) -> Result<bool, Errno> {
        let unexpired = Clock::Boot.now() < *self.expiry();
        Ok(unexpired && rustix::fs::fstat(&self.file)?.st_nlink > 0)
    }

    /// Lets the claim live that long from now on; `false` if it is dead.
    ///
    /// Law 2: the renewal counts only if it was finished before the claim would have expired. A client that judges it
    /// expired read the file after that moment, on the same clock, and so would have seen the renewal.
    pub(crate) fn renew(&self, ttl: Duration) -> Result<bool, Errno> {
        let mut expires_at = self.expiry();
        let now = Clock::Boot.now();
        if now >= *expires_at {
            return Ok(false);
        }
        #[cfg(test)]
        crate::tests::stall::here(&self.shard.path);
        claim_file::write_expiry(&self.file, now.plus(ttl))?;
        if Clock::Boot.now() >= *expires_at {
            *expires_at = Moment::ORIGIN;
            return Ok(false);
        }
        *expires_at = now.plus(ttl);
        Ok(rustix::fs::fstat(&self.file)?.st_nlink > 0)
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

impl Drop for OwnClaim {
    fn drop(&mut self) {
        if !self.removed.load(SeqCst) {
            let _ = self.shard.remove(&self.file_name);
        }
    }
}
