//! Locks that were not free when this keeper last joined them: what to expect of the next join.

use crate::by_name::NameSet;
use crate::name::LockName;
use std::sync::{Mutex, PoisonError};

/// So many are remembered at most.
const AT_MOST: usize = 10_000;

/// The locks. It may be wrong in both ways: that costs a request or a larger one, and nothing else.
#[derive(Debug, Default)]
pub struct Crowded(Mutex<NameSet>);

impl Crowded {
    /// Whether this one was not free.
    pub fn contains(&self, name: &LockName) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Whether something stood ahead of a claim that has joined.
    pub fn note(&self, name: &LockName, is_crowded: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_crowded {
            all.remove(name);
        } else if !all.contains(name) {
            if all.len() >= AT_MOST {
                all.clear();
            }
            all.insert(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_remembered_as_it_was_last_and_not_too_many_are() {
        let (crowded, name) = (Crowded::default(), LockName::from_engine("a"));
        for is_crowded in [true, true, false, false, true] {
            crowded.note(&name, is_crowded);
            assert_eq!(crowded.contains(&name), is_crowded);
        }
        (0..AT_MOST).for_each(|number| crowded.note(&LockName::from_engine(&number.to_string()), true));
        assert!(crowded.0.lock().unwrap().len() <= AT_MOST);
    }
}
