//! The shards an engine has open.

use crate::config::Config;
use crate::shard::Shard;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many shards stay open when idle; each takes two descriptors.
const OPEN_AT_MOST: usize = 64;

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
        if open.len() >= OPEN_AT_MOST {
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

    /// Forgets a shard that is not in its place any more; the next one to ask gets the one that is.
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
