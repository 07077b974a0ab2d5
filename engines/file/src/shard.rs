//! One of the 256 directories of claims. They stay for ever, so that storage is bounded whatever names were used.

use crate::claim_file::ClaimName;
use crate::config::Config;
use crate::gate::Gate;
use crate::listing::Listing;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// The mutex stands in front of the gate's file lock, which does not keep the tasks of one engine apart.
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
        let directory = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
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
        config.root.join(format!("{index:02x}"))
    }

    /// Whether the path still leads here. If somebody removed or moved the directory, others use a new one, and
    /// the claims in this one mean nothing any more.
    pub(crate) fn is_in_place(&self) -> Result<bool, Errno> {
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
