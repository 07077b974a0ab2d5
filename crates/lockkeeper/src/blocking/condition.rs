//! The condition variable for plain threads.

use super::{Guard, Mutex, wait_for};
use lockkeeper_core::Result;
use std::time::Duration;

/// A condition variable across processes; see [`Keeper::condition`](super::Keeper::condition) and, for how to use one,
/// [`Condition`](crate::Condition).
///
/// A wait gives back one entry of the mutex, so the thread must not have entered it more than once.
#[derive(Debug, Clone)]
pub struct Condition(pub(super) crate::Condition);

impl Condition {
    /// Releases the mutex, waits to be notified, and locks the mutex again.
    ///
    /// # Errors
    /// As [`Condition::wait`](crate::Condition::wait); [`Error::Invalid`](crate::Error::Invalid) from async code.
    pub fn wait(&self, mutex: &Mutex, guard: Guard) -> Result<Guard> {
        wait_for(self.0.wait(&mutex.lock, guard.0))?.map(Guard)
    }

    /// Like [`wait`](Self::wait), up to `limit`; also says whether it was notified.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_within(&self, mutex: &Mutex, guard: Guard, limit: Duration) -> Result<(Guard, bool)> {
        let (guard, notified) = wait_for(self.0.wait_within(&mutex.lock, guard.0, limit))??;
        Ok((Guard(guard), notified))
    }

    /// Wakes the one who has waited longest; `false` if nobody waits. Call it while holding the mutex.
    ///
    /// # Errors
    /// As [`Condition::notify_one`](crate::Condition::notify_one).
    pub fn notify_one(&self) -> Result<bool> {
        wait_for(self.0.notify_one())?
    }

    /// Wakes everybody who waits; says how many. Call it while holding the mutex.
    ///
    /// # Errors
    /// As [`Condition::notify_all`](crate::Condition::notify_all).
    pub fn notify_all(&self) -> Result<usize> {
        wait_for(self.0.notify_all())?
    }
}
