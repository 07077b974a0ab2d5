//! The 256 directories of claims. Only this engine has them: they bound what a look must read, and what idle locks leave.

use crate::claim_file::ClaimName;
use crate::config::Config;
use crate::gate::Gate;
use crate::listing::Listing;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many shards stay open when idle; each takes two descriptors.
const OPEN_IDLE: usize = 64;

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self::in_stat(&rustix::fs::fstat(file)?))
    }

    #[allow(clippy::unnecessary_cast)] // their types differ between systems
    fn in_stat(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }
}

/// An open shard.
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) directory: OwnedFd,
    identity: Identity,
    config: Arc<Config>,
    /// The mutex comes before the gate's file lock, which does not keep the tasks of one engine apart.
    pub(crate) gate: Mutex<Option<Gate>>,
    listing: Mutex<Listing>,
    /// Whether the dead of other locks were cleared away since this engine opened the shard.
    pub(crate) swept: AtomicBool,
}

impl Shard {
    /// Opens a shard, and makes it (and a root that was removed) if it is not there.
    pub(crate) fn open_or_make(config: &Arc<Config>, index: u8) -> Result<Self, Errno> {
        match Self::open(config, index) {
            Err(Errno::NOENT) => {
                let path = Self::path(config, index);
                config.make_root()?;
                config.make_directory(&path)?;
                Self::open(config, index)
            }
            settled => settled,
        }
    }

    /// Opens a shard that is there.
    pub(crate) fn open(config: &Arc<Config>, index: u8) -> Result<Self, Errno> {
        let path = Self::path(config, index);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = config.open_root()?;
        let directory = rustix::fs::openat(&root, Self::name(index), flags, Mode::empty())?;
        Ok(Self {
            path,
            identity: Identity::of(&directory)?,
            directory,
            config: Arc::clone(config),
            gate: Mutex::new(None),
            listing: Mutex::new(Listing::new()),
            swept: AtomicBool::new(false),
        })
    }

    pub(crate) fn path(config: &Config, index: u8) -> PathBuf {
        config.root.join(Self::name(index))
    }

    fn name(index: u8) -> String {
        format!("{index:02x}")
    }

    /// Whether the path still leads here. If somebody removed or moved the directory, others use a new one, and
    /// the claims in this one mean nothing any more.
    pub(crate) fn is_in_place(&self) -> Result<bool, Errno> {
        #[cfg(test)]
        crate::tests::stall::here(&self.path);
        match rustix::fs::stat(&self.path) {
            Ok(stat) => Ok(Identity::in_stat(&stat) == self.identity),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Which file has this name, if any.
    pub(crate) fn identity_of(&self, file_name: &str) -> Result<Option<Identity>, Errno> {
        match rustix::fs::statat(&self.directory, file_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Identity::in_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a file in the shard. Never inherited by other programs (`CLOEXEC`), or they would hold our locks.
    pub(crate) fn open_file(&self, file_name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mode = self.config.file_mode();
        let flags_too = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.directory, file_name, flags | flags_too, mode)?;
        if self.config.is_shared() && flags.contains(OFlags::CREATE) {
            // The umask must not shut out those whom the URL lets in. A gate that another user made is right
            // already, and not ours to change.
            match rustix::fs::fchmod(&file, mode) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(file)
    }

    /// Removes a claim; `false` if it was not there.
    pub(crate) fn remove(&self, file_name: &str) -> Result<bool, Errno> {
        #[cfg(test)]
        crate::tests::stall::here(&self.path);
        match rustix::fs::unlinkat(&self.directory, file_name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// All claims in the shard, in no order.
    pub(crate) fn claims(&self) -> Result<Vec<ClaimName>, Errno> {
        let mut claims = Vec::new();
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        listing.read(&self.directory, |name| claims.extend(ClaimName::parse(name)))?;
        Ok(claims)
    }
}

/// Opens shards when they are needed and keeps them open.
pub(crate) struct Shards {
    pub(crate) config: Arc<Config>,
    open: Mutex<HashMap<u8, Arc<Shard>>>,
}

impl Shards {
    pub(crate) fn new(config: Config) -> Self {
        Self { config: Arc::new(config), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u8, Arc<Shard>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of a lock, by the hash of its name. Makes it if it is not there.
    pub(crate) fn of(&self, hash: u64) -> Result<Arc<Shard>, Errno> {
        let index = index(hash);
        let mut open = self.open();
        if let Some(shard) = open.get(&index) {
            return Ok(Arc::clone(shard));
        }
        if open.len() >= OPEN_IDLE {
            open.retain(|_, shard| Arc::strong_count(shard) > 1);
        }
        let shard = Arc::new(Shard::open_or_make(&self.config, index)?);
        open.insert(index, Arc::clone(&shard));
        Ok(shard)
    }

    /// The shard of a lock if it is there.
    pub(crate) fn existing(&self, hash: u64) -> Result<Option<Shard>, Errno> {
        match Shard::open(&self.config, index(hash)) {
            Ok(shard) => Ok(Some(shard)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Forgets a shard that is not in its place any more; the next call opens the one that is.
    pub(crate) fn forget(&self, hash: u64, stale: &Arc<Shard>) {
        let mut open = self.open();
        if open.get(&index(hash)).is_some_and(|shard| Arc::ptr_eq(shard, stale)) {
            open.remove(&index(hash));
        }
    }

    /// Closes the idle ones.
    pub(crate) fn close_idle(&self) {
        self.open().retain(|_, shard| Arc::strong_count(shard) > 1);
    }
}

/// The last two digits: of this hash they are spread best.
pub(crate) fn index(hash: u64) -> u8 {
    hash as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim_file::hash_of;

    #[test]
    fn names_that_differ_little_are_spread_over_all_shards() {
        let mut counts = [0; 256];
        (0..10_000).for_each(|number| counts[usize::from(index(hash_of(&format!("orders/{number}"))))] += 1);
        assert!(counts.iter().all(|count| (20..80).contains(count)), "{counts:?}");
    }
}
