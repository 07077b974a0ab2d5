//! The claims of this keeper, which only here share a lease: their keys, their lease, and what was seen ahead of them.

use crate::keys::{self, Key};
use crate::lease::Fresh;
use crate::look::Look;
use crate::value::{self, Times};
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Lifeline, LockName, Moment};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// With more claims of this keeper on a lock, the next one waits for the last of them without a look at the queue.
const OWN_QUEUE: usize = 8;

/// The most contended locks that are remembered.
const CONTENDED_AT_MOST: usize = 10_000;

/// The claims of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<ClaimId, Entry>,
    slots: Slots,
    /// Locks that were not free when this keeper last joined them. A wrong guess costs a request, and nothing else.
    contended: HashSet<LockName>,
}

/// The slots in use of each stem. One on which a request may still be under way stays taken for good.
#[derive(Debug, Default)]
struct Slots(HashMap<String, BTreeSet<u32>>);

impl Slots {
    /// The smallest that is free.
    fn take(&mut self, stem: &str) -> u32 {
        let taken = self.0.entry(stem.to_owned()).or_default();
        let gap = (0..).zip(taken.iter()).find(|(number, slot)| number != *slot);
        let slot = gap.map_or(taken.len() as u32, |(number, _)| number);
        taken.insert(slot);
        slot
    }

    fn count(&self, stem: &str) -> usize {
        self.0.get(stem).map_or(0, BTreeSet::len)
    }

    fn give_back(&mut self, stem: &str, slot: u32) {
        if let Some(taken) = self.0.get_mut(stem) {
            taken.remove(&slot);
            if taken.is_empty() {
                self.0.remove(stem);
            }
        }
    }
}

/// A lease that one claim has for itself, and that is never kept alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnLease {
    pub(crate) id: i64,
    /// Until when the claim is to live, which the lease outlasts by at most a few seconds.
    pub(crate) until: Moment,
}

/// A claim of another keeper as it stands at the server.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) place: i64,
    pub(crate) times: Times,
}

/// One claim.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) claim: Claim,
    pub(crate) key: Key,
    stem: String,
    slot: u32,
    /// The lease it is bound to.
    pub(crate) lease: i64,
    /// Ends with the lease.
    pub(crate) lifeline: Lifeline,
    /// The lease that it stands on instead, to outlive this process.
    pub(crate) own_lease: Option<OwnLease>,
    /// Its create revision, once a join had a reply.
    pub(crate) place: Option<i64>,
    /// A join was sent that had no reply, so that it may arrive yet.
    pub(crate) may_arrive: bool,
    /// When the keeper has neglected it for longer than its TTL.
    pub(crate) neglected_at: Moment,
    pub(crate) times: Times,
    /// The server has replied to the note of its grant.
    pub(crate) grant_noted: bool,
    /// Somebody asks for it, so that a key is left to delete.
    pub(crate) asked: bool,
    pub(crate) look: Option<Look>,
}

impl Claims {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A join of this claim is about to be sent: from now on it may be there.
    pub(crate) fn joining(&self, claim: &Claim, lease: &Fresh, neglected_at: Moment) -> Entry {
        let mut table = self.table();
        let Table { entries, slots, .. } = &mut *table;
        let entry = entries.entry(claim.id).or_insert_with(|| {
            let stem = keys::stem(claim);
            let slot = slots.take(&stem);
            Entry {
                claim: claim.clone(),
                key: keys::claim(&stem, slot),
                stem,
                slot,
                lease: lease.id,
                lifeline: lease.lifeline.clone(),
                own_lease: None,
                place: None,
                may_arrive: false,
                neglected_at,
                times: Times { since_ms: value::now_ms(), granted_ms: None },
                grant_noted: false,
                asked: false,
                look: None,
            }
        });
        let before = entry.clone();
        entry.may_arrive = true;
        if entry.place.is_none() {
            entry.lease = lease.id;
            entry.lifeline = lease.lifeline.clone();
        }
        entry.neglected_at = neglected_at;
        before
    }

    /// Enters a claim that another keeper has made and detached.
    pub(crate) fn attached(&self, claim: &Claim, lease: &Fresh, found: Found) {
        let entry = Entry {
            claim: claim.clone(),
            key: found.key,
            // Never the stem of a claim that this keeper makes, so that its slots are not touched.
            stem: String::new(),
            slot: 0,
            lease: lease.id,
            lifeline: lease.lifeline.clone(),
            own_lease: None,
            place: Some(found.place),
            may_arrive: false,
            neglected_at: Moment::NEVER,
            grant_noted: found.times.granted_ms.is_some(),
            asked: false,
            times: found.times,
            look: None,
        };
        self.table().entries.insert(claim.id, entry);
    }

    /// Forgets a claim that was detached. Its key stays in use.
    pub(crate) fn detached(&self, id: ClaimId) {
        let entry = self.table().entries.remove(&id);
        if let Some(entry) = entry {
            entry.lifeline.untie(id);
        }
    }

    /// Changes what is known of a claim, if it is known.
    pub(crate) fn change(&self, id: ClaimId, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.table().entries.get_mut(&id) {
            change(entry);
        }
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Entry> {
        self.table().entries.get(&id).cloned()
    }

    /// The claim has left. Its key is used again, unless a join or a delete of it may still be under way: a delete
    /// names the place, if that is known, and so spares a later claim.
    pub(crate) fn remove(&self, id: ClaimId) {
        let mut table = self.table();
        let Some(entry) = table.entries.remove(&id) else { return };
        if entry.place.is_some() && !entry.may_arrive {
            table.slots.give_back(&entry.stem, entry.slot);
        }
        drop(table);
        entry.lifeline.untie(id);
    }

    /// Whether this keeper has a queue of its own on the lock, so that the claim can wait for its own predecessor first.
    pub(crate) fn has_queue(&self, entry: &Entry) -> bool {
        self.table().slots.count(&entry.stem) > OWN_QUEUE
    }

    /// The keeper's last claim on the lock ahead of this place: its key and its own place.
    pub(crate) fn predecessor(&self, entry: &Entry, place: i64) -> Option<(Key, i64)> {
        let table = self.table();
        let ours =
            table.entries.values().filter(|other| other.lease == entry.lease && other.stem == entry.stem);
        let ahead = ours.filter_map(|other| Some((other.place.filter(|ahead| *ahead < place)?, other)));
        ahead.max_by_key(|(ahead, _)| *ahead).map(|(ahead, other)| (other.key.clone(), ahead))
    }

    /// Whether the lock was not free when this keeper last joined it.
    pub(crate) fn was_contended(&self, name: &LockName) -> bool {
        self.table().contended.contains(name)
    }

    /// Remembers whether the lock was not free.
    pub(crate) fn note_contended(&self, name: &LockName, is_contended: bool) {
        let contended = &mut self.table().contended;
        if !is_contended {
            contended.remove(name);
        } else if !contended.contains(name) {
            if contended.len() >= CONTENDED_AT_MOST {
                contended.clear();
            }
            contended.insert(name.clone());
        }
    }

    /// The claims that their keeper has not renewed in time.
    pub(crate) fn neglected(&self) -> Vec<Claim> {
        let now = Clock::Boot.now();
        let table = self.table();
        let neglected = table.entries.values().filter(|entry| entry.neglected_at <= now);
        neglected.map(|entry| entry.claim.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::{Demand, Holder};
    use std::sync::Arc;
    use std::time::Duration;

    fn a_claim() -> Claim {
        Claim {
            id: ClaimId::random(),
            name: LockName::from_engine("a"),
            demand: Demand::Exclusive,
            holder: Arc::new(Holder::here("test")),
            keeper: ClaimId(7),
            ttl: Duration::from_secs(10),
        }
    }

    /// Joins, with or without a reply.
    fn join(claims: &Claims, has_reply: bool) -> (ClaimId, Key) {
        let claim = a_claim();
        let lease = Fresh { id: 1, lifeline: Lifeline::new(), as_of: Moment::ORIGIN };
        let entry = claims.joining(&claim, &lease, Moment::NEVER);
        if has_reply {
            claims.change(claim.id, |entry| (entry.may_arrive, entry.place) = (false, Some(5)));
        }
        (claim.id, entry.key)
    }

    #[test]
    fn a_key_is_used_again_when_its_claim_has_left() {
        let claims = Claims::default();
        let (first, key) = join(&claims, true);
        let (second, other) = join(&claims, true);
        assert_ne!(key, other);
        claims.remove(first);
        let (third, again) = join(&claims, true);
        assert_eq!(again, key);
        claims.remove(second);
        claims.remove(third);
        assert!(claims.table().slots.0.is_empty(), "nothing is remembered of an idle lock");
    }

    #[test]
    fn a_lock_is_remembered_as_it_was_last_and_the_number_is_limited() {
        let (claims, name) = (Claims::default(), LockName::from_engine("a"));
        for is_contended in [true, true, false, false, true] {
            claims.note_contended(&name, is_contended);
            assert_eq!(claims.was_contended(&name), is_contended);
        }
        let names = (0..CONTENDED_AT_MOST).map(|number| LockName::from_engine(&number.to_string()));
        names.for_each(|name| claims.note_contended(&name, true));
        assert!(claims.table().contended.len() <= CONTENDED_AT_MOST);
    }

    #[test]
    fn a_key_on_which_something_may_be_under_way_is_not_used_again() {
        let claims = Claims::default();
        let (without_reply, key) = join(&claims, false);
        claims.remove(without_reply);
        assert_ne!(join(&claims, true).1, key);
    }
}
