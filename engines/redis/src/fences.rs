//! Whose fences have followed the server's clock lately: those may count on, which is quicker.
//!
//! After a failover to a replica that was behind, a fence that only counted would give tokens twice. Whoever comes to the
//! new master comes over a new connection, and so takes each lock by the clock first.

use lockkeeper_core::{LockName, NameMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fence counts for so long at most. A server could have been a replica in between without ending our connection.
const COUNTS_FOR: Duration = Duration::from_secs(5);
/// How many locks are remembered. To forget costs the server a little time, no more.
const ROOM: usize = 4_096;

/// The locks this keeper has taken by the clock: over which connection, and when.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<NameMap<(u64, Instant)>>);

impl Fences {
    /// Whether the lock's fence may count, on this connection.
    pub(crate) fn may_count(&self, name: &LockName, generation: u64, now: Instant) -> bool {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(name)
            .is_some_and(|(last, when)| *last == generation && now.duration_since(*when) < COUNTS_FOR)
    }

    /// The lock was taken by the clock, on this connection or a later one, since this moment.
    pub(crate) fn followed(&self, name: &LockName, generation: u64, when: Instant) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= ROOM {
            map.clear();
        }
        map.insert(name.clone(), (generation, when));
    }
}
