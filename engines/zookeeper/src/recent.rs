//! Locks that this keeper was the last to use: whoever comes back to such a lock knows from its own node that it is alone.
//!
//! The server numbers the nodes of a directory one after the other, whoever makes them and whatever is removed. If
//! a claim was alone in its directory and has left, and the next claim's number follows its own, then nobody has
//! come in between: the next claim is alone, too, and need not look.
//!
//! One thing could deceive: the directory is removed and made again, so that the numbers begin anew, and others
//! have come up to the same number. But each of these steps is a transaction, and so is every claim, and transactions are
//! numbered as well. With fewer of them between the two claims than that would have taken, it has not happened.

use crate::book::Node;
use crate::keys::Sequence;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many locks are remembered at most.
const AT_MOST: usize = 10_000;

/// The last claims that were alone on their locks, by directory.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<String, Last>>);

/// A claim that was alone and has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Last {
    session: i64,
    sequence: Sequence,
    czxid: i64,
}

impl Recent {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim that was alone in its directory has left; its node is gone.
    pub(crate) fn left_alone(&self, node: &Node) {
        let Some((directory, sequence)) = node.place() else { return };
        let last = Last { session: node.session, sequence, czxid: node.czxid };
        let mut all = self.all();
        if all.len() >= AT_MOST && !all.contains_key(directory) {
            all.clear();
        }
        all.insert(directory.to_owned(), last);
    }

    /// The last claim on a lock, if the next one can probably do without a look. It is forgotten, until the next one
    /// has left as well.
    pub(crate) fn take(&self, directory: &str, session: i64, latest_zxid: i64) -> Option<Last> {
        let last = self.all().remove(directory)?;
        let proves_until = last.czxid.checked_add(i64::from(last.sequence.0))?;
        (last.session == session && latest_zxid <= proves_until).then_some(last)
    }
}

impl Last {
    /// Whether nobody was in this directory between that claim, which was alone, and this one.
    pub(crate) fn is_followed_by(&self, node: &Node) -> bool {
        let Some((_, sequence)) = node.place() else { return false };
        let is_next = self.sequence.0 >= 0 && self.sequence.0.checked_add(1) == Some(sequence.0);
        // The counter begins anew in each of the ensemble's epochs.
        let same_epoch = self.czxid >> 32 == node.czxid >> 32;
        // For other nodes with these numbers: the old claim's removal, the directory's, its creation, and each of them.
        let least = i64::from(sequence.0) + 3;
        let between = node.czxid - self.czxid - 1;
        is_next && same_epoch && self.session == node.session && (0..least).contains(&between)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(sequence: i32, czxid: i64) -> Node {
        let path = format!("/a/_c_-lock-{}", Sequence(sequence));
        Node { session: 7, path, czxid, version: None, token: czxid }
    }

    fn last(sequence: i32, czxid: i64) -> Last {
        Last { session: 7, sequence: Sequence(sequence), czxid }
    }

    #[test]
    fn the_next_number_is_alone_and_any_other_may_not_be() {
        let last = last(10, 100);
        assert!(last.is_followed_by(&node(11, 102)));
        assert!(!last.is_followed_by(&node(12, 104)), "somebody came in between");
        assert!(!last.is_followed_by(&node(0, 104)), "the directory is another one");
        assert!(!last.is_followed_by(&Node { session: 8, ..node(11, 102) }), "the old node may still stand");
    }

    #[test]
    fn a_number_that_others_could_have_come_up_to_proves_nothing() {
        // Removed, directory removed and made, 0 to 10 made by others: 14 transactions, 101 to 114.
        assert!(last(10, 100).is_followed_by(&node(11, 114)));
        assert!(!last(10, 100).is_followed_by(&node(11, 115)));
        assert!(!last(10, 100).is_followed_by(&node(11, (1 << 32) + 102)), "another epoch counts anew");
        assert!(!last(i32::MAX, 100).is_followed_by(&node(i32::MIN, 102)));
    }

    #[test]
    fn a_lock_is_remembered_until_it_is_used_again_or_too_much_has_happened() {
        let recent = Recent::default();
        recent.left_alone(&node(1000, 5000));
        assert_eq!(recent.take("/b", 7, 5002), None);
        assert_eq!(recent.take("/a", 7, 5002), Some(last(1000, 5000)));
        assert_eq!(recent.take("/a", 7, 5002), None);
        recent.left_alone(&node(1000, 5000));
        assert_eq!(recent.take("/a", 7, 6001), None);
        recent.left_alone(&node(1000, 5000));
        assert_eq!(recent.take("/a", 8, 5002), None);
    }
}
