//! The claims this keeper has at etcd: where they stand, on which lease, and what was seen ahead of them.

use crate::keys::{self, Key};
use crate::look::Look;
use crate::value;
use lockkeeper_core::{Claim, ClaimId, ClaimMap, Clock, Moment};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The claims of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    entries: ClaimMap<Entry>,
    slots: Slots,
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

    fn give_back(&mut self, stem: &str, slot: u32) {
        if let Some(taken) = self.0.get_mut(stem) {
            taken.remove(&slot);
            if taken.is_empty() {
                self.0.remove(stem);
            }
        }
    }
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
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A join of this claim is about to be sent: from now on it may be there.
    pub(crate) fn joining(&self, claim: &Claim, lease: i64, neglected_at: Moment) -> Entry {
        let mut book = self.book();
        let Book { entries, slots } = &mut *book;
        let entry = entries.entry(claim.id).or_insert_with(|| {
            let stem = keys::stem(claim);
            let slot = slots.take(&stem);
            Entry {
                claim: claim.clone(),
                key: keys::claim(&stem, slot),
                stem,
                slot,
                lease,
                place: None,
                may_arrive: false,
                neglected_at,
                since_ms: value::now_ms(),
                look: None,
            }
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
        if let Some(entry) = self.book().entries.get_mut(&id) {
            change(entry);
        }
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Entry> {
        self.book().entries.get(&id).cloned()
    }

    /// The claim has left. Its key is used again, unless a join or a delete of it may still be under way: a delete
    /// names the place, if that is known, and so spares who comes later.
    pub(crate) fn remove(&self, id: ClaimId) {
        let mut book = self.book();
        if let Some(entry) = book.entries.remove(&id)
            && entry.place.is_some()
            && !entry.may_arrive
        {
            book.slots.give_back(&entry.stem, entry.slot);
        }
    }

    /// The claims that their keeper has not renewed in time.
    pub(crate) fn neglected(&self) -> Vec<Claim> {
        let now = Clock::Boot.now();
        let book = self.book();
        let neglected = book.entries.values().filter(|entry| entry.neglected_at <= now);
        neglected.map(|entry| entry.claim.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::{Demand, Holder, LockName};
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

    /// Joins; answered or not.
    fn join(claims: &Claims, answered: bool) -> (ClaimId, Key) {
        let claim = a_claim();
        let entry = claims.joining(&claim, 1, Moment::NEVER);
        if answered {
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
        assert!(claims.book().slots.0.is_empty(), "nothing is remembered of an idle lock");
    }

    #[test]
    fn a_key_on_which_something_may_be_under_way_is_not_used_again() {
        let claims = Claims::default();
        let (unanswered, key) = join(&claims, false);
        claims.remove(unanswered);
        assert_ne!(join(&claims, true).1, key);
    }
}
