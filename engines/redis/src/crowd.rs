//! Which locks have company: where the short way, which asks one key only, would be in vain.

use lockkeeper_core::{ClaimId, ClaimMap, LockName, NameMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often in a row a lock must be found free before the short way is tried again.
const CALM: u8 = 4;
/// How many locks are remembered. To forget costs one request, no more.
const ROOM: usize = 4_096;

/// The locks that somebody contended for lately.
#[derive(Debug, Default)]
pub(crate) struct Crowds(Mutex<NameMap<u8>>);

impl Crowds {
    fn map(&self) -> MutexGuard<'_, NameMap<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has(&self, name: &LockName) -> bool {
        let map = self.map();
        !map.is_empty() && map.contains_key(name)
    }

    pub(crate) fn found_company(&self, name: &LockName) {
        let mut map = self.map();
        if map.len() >= ROOM {
            map.clear();
        }
        map.insert(name.clone(), CALM);
    }

    pub(crate) fn found_free(&self, name: &LockName) {
        let mut map = self.map();
        if let Some(calm) = map.get_mut(name) {
            *calm -= 1;
            if *calm == 0 {
                map.remove(name);
            }
        }
    }
}

/// The places of claims that were alone when they were granted: a leave on the short way brings it along.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<ClaimMap<u64>>);

impl Places {
    fn map(&self) -> MutexGuard<'_, ClaimMap<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, id: ClaimId, place: u64) {
        self.map().insert(id, place);
    }

    pub(crate) fn take(&self, id: ClaimId) -> Option<u64> {
        self.map().remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_crowded_until_it_was_found_free_some_times() {
        let (crowds, name) = (Crowds::default(), LockName::from_engine("lock"));
        crowds.found_free(&name);
        assert!(!crowds.has(&name));
        crowds.found_company(&name);
        for _ in 0..CALM {
            assert!(crowds.has(&name));
            crowds.found_free(&name);
        }
        assert!(!crowds.has(&name));
    }
}
