//! The claims this keeper has at etcd: where they stand, on which lease, and what was seen ahead of them.

use crate::keys::{self, Key};
use crate::look::Look;
use crate::value;
use lockkeeper_core::{Claim, ClaimId, Clock, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The claims of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<ClaimId, Entry>>);

/// One claim.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) claim: Claim,
    pub(crate) key: Key,
    /// The lease it is bound to.
    pub(crate) lease: i64,
    /// Its create revision, once a join was answered.
    pub(crate) place: Option<i64>,
    /// A join was sent whose answer never came, so that it may arrive yet.
    pub(crate) may_arrive: bool,
    /// When the keeper has neglected it for longer than its TTL.
    pub(crate) neglected_at: Moment,
    pub(crate) since_ms: u64,
    pub(crate) look: Option<Look>,
}

impl Claims {
    fn entries(&self) -> MutexGuard<'_, HashMap<ClaimId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A join of this claim is about to be sent: from now on it may be there.
    pub(crate) fn joining(&self, claim: &Claim, lease: i64, neglected_at: Moment) -> Entry {
        let mut entries = self.entries();
        let entry = entries.entry(claim.id).or_insert_with(|| Entry {
            claim: claim.clone(),
            key: keys::claim(claim),
            lease,
            place: None,
            may_arrive: false,
            neglected_at,
            since_ms: value::now_ms(),
            look: None,
        });
        let before = entry.clone();
        entry.may_arrive = true;
        if entry.place.is_none() {
            entry.lease = lease;
        }
        entry.neglected_at = neglected_at;
        before
    }

    /// Changes what is known of a claim, if it is known.
    pub(crate) fn change(&self, id: ClaimId, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries().get_mut(&id) {
            change(entry);
        }
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Entry> {
        self.entries().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: ClaimId) {
        self.entries().remove(&id);
    }

    /// The claims that their keeper has not renewed in time.
    pub(crate) fn neglected(&self) -> Vec<Claim> {
        let now = Clock::Boot.now();
        let entries = self.entries();
        let neglected = entries.values().filter(|entry| entry.neglected_at <= now);
        neglected.map(|entry| entry.claim.clone()).collect()
    }
}
