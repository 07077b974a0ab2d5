//! The gate of a shard: its file lock is the right to add a claim. Only this engine has no server that orders joins.

use crate::claim_file::write_at;
use crate::counter::{self, Counter};
use crate::shard::{Identity, Shard};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

const GATE: &str = "gate";
/// A gate whose holder had stopped inside: it still says which places are used up.
const SET_ASIDE: &str = "gate.old";

/// How often a busy gate is tried before the caller's task is given to others, and the pause between.
const KNOCKS: u32 = 10;
const BETWEEN_KNOCKS: Duration = Duration::from_micros(20);

/// An open gate. Locks belong to the open file, so each engine has its own, with a mutex in front.
#[derive(Debug)]
pub(crate) struct Gate {
    file: OwnedFd,
    identity: Identity,
}

/// What came of trying to enter.
pub(crate) enum Entrance<'a> {
    Inside(Inside<'a>),
    Busy(Busy),
}

/// Who was found inside: if nothing of this changes for long, that one has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy {
    gate: Identity,
    next: Option<u64>,
}

/// The right to add a claim, until it is dropped.
pub(crate) struct Inside<'a> {
    pub(crate) shard: &'a Shard,
    gate: MutexGuard<'a, Option<Gate>>,
}

/// Tries to enter, for less than a millisecond: the one inside needs a few microseconds.
pub(crate) fn enter(shard: &Shard) -> Result<Entrance<'_>, Errno> {
    let mut slot = shard.gate.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = match slot.take() {
        Some(gate) => gate,
        None => open(shard)?,
    };
    let gate = slot.insert(gate);
    for _ in 0..KNOCKS {
        match rustix::fs::flock(&gate.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Entrance::Inside(Inside { shard, gate: slot })),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(BETWEEN_KNOCKS),
            Err(errno) => return Err(errno),
        }
    }
    let busy = Busy { gate: gate.identity, next: read(&gate.file)?.map(|counter| counter.next) };
    if shard.identity_of(GATE)? != Some(busy.gate) {
        // It was set aside; the next try opens the one that is there.
        *slot = None;
    }
    Ok(Entrance::Busy(busy))
}

/// Puts another gate in the place of one whose holder has stopped (paused by a signal, a debugger, a freezer) in
/// the few microseconds inside. Safe at any moment: the process inside checks the gate once more *after* adding its
/// claim, and takes the claim back if the gate is not the same.
pub(crate) fn set_aside(shard: &Shard, busy: Busy) -> Result<(), Errno> {
    if shard.identity_of(GATE)? == Some(busy.gate) {
        tracing::warn!(shard = %shard.path.display(), "a process has stopped inside the gate; making a new gate");
        rustix::fs::renameat(&shard.directory, GATE, &shard.directory, SET_ASIDE)?;
    }
    Ok(())
}

fn open(shard: &Shard) -> Result<Gate, Errno> {
    let file = shard.open_file(GATE, OFlags::RDWR | OFlags::CREATE)?;
    let identity = Identity::of(&file)?;
    Ok(Gate { file, identity })
}

fn read(file: &OwnedFd) -> Result<Option<Counter>, Errno> {
    let mut bytes = [0; counter::SIZE];
    let length = rustix::io::pread(file, &mut bytes, 0)?;
    Ok(Counter::decode(&bytes[..length]))
}

impl Inside<'_> {
    /// Takes the next place. A gate that is new or unreadable starts behind `highest`, the largest place that
    /// stands in the shard, behind the gate it replaces, and behind the time of day in microseconds.
    pub(crate) fn take_place(&mut self, highest: impl FnOnce() -> u64) -> Result<u64, Errno> {
        let Some(gate) = self.gate.as_ref() else { return Err(Errno::STALE) };
        let boot = counter::boot();
        let before = read(&gate.file)?;
        let mut counter = match before {
            Some(counter) => counter.in_boot(boot),
            None => {
                let used = highest().max(self.used_up_before()?);
                Counter::starting_at(boot, counter::wall_microseconds().max(used + 1))
            }
        };
        let (place, reserve_moved) = counter.take();
        write_at(&gate.file, &counter.encode(), 0)?;
        if reserve_moved || boot == 0 {
            self.reach_the_disk(gate, before)?;
        }
        Ok(place)
    }

    /// Law 8: the disk must know the reserve before a number of it is used. If that fails, it does not count.
    fn reach_the_disk(&self, gate: &Gate, before: Option<Counter>) -> Result<(), Errno> {
        let done = rustix::fs::fdatasync(&gate.file).and_then(|()| match before {
            Some(_) => Ok(()),
            None => rustix::fs::fsync(&self.shard.directory),
        });
        if done.is_err() {
            let _ = match before {
                Some(counter) => write_at(&gate.file, &counter.encode(), 0),
                None => rustix::fs::ftruncate(&gate.file, 0),
            };
        }
        done
    }

    /// The reserve of a gate that was set aside, if there is one. A process that was stopped inside may have moved it once.
    fn used_up_before(&self) -> Result<u64, Errno> {
        match self.shard.open_file(SET_ASIDE, OFlags::RDONLY) {
            Ok(file) => Ok(read(&file)?.map_or(0, |counter| counter.reserved + counter::BLOCK)),
            Err(Errno::NOENT) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// Whether this is still the gate that everybody uses. If so, nobody else can have added a claim since we came
    /// in (Law 1); so it is checked after our own was added.
    pub(crate) fn is_the_gate(&self) -> Result<bool, Errno> {
        let Some(gate) = self.gate.as_ref() else { return Ok(false) };
        Ok(self.shard.identity_of(GATE)? == Some(gate.identity) && self.shard.is_in_place()?)
    }

    /// Leaves a gate that nobody uses any more; the next one to enter opens the right one.
    pub(crate) fn abandon(mut self) {
        *self.gate = None;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.as_ref()
            && rustix::fs::flock(&gate.file, FlockOperation::Unlock).is_err()
        {
            // Closing unlocks for certain.
            *self.gate = None;
        }
    }
}
