//! The faces for plain threads: each waits on the calling thread for its async twin.

use super::{Cancel, Guard, wait_for, wait_unless};
use lockkeeper_core::{Result, Wanted};
use std::time::Duration;

/// The four ways to ask, on top of the async twin's three: wait, try, wait for a time, wait unless cancelled.
macro_rules! ways_to_ask {
    ($wait:ident, $try:ident, $within:ident, $unless:ident ($($arg:ident: $type:ty),*), $what:literal) => {
        #[doc = concat!("Waits ", $what, ".")]
        ///
        /// # Errors
        /// As [`Mutex::lock`](crate::Mutex::lock); [`Error::Invalid`](crate::Error::Invalid) from async code.
        pub fn $wait(&self, $($arg: $type),*) -> Result<Guard> {
            wait_for(self.lock.$wait($($arg),*))?.map(Guard)
        }

        #[doc = concat!("Does not wait ", $what, ": `None` if it cannot be had now.")]
        ///
        /// # Errors
        /// As the waiting way.
        pub fn $try(&self, $($arg: $type),*) -> Result<Option<Guard>> {
            Ok(wait_for(self.lock.$try($($arg),*))??.map(Guard))
        }

        #[doc = concat!("Waits ", $what, ", up to `limit`; `None` when the time is over.")]
        ///
        /// # Errors
        /// As the waiting way.
        pub fn $within(&self, $($arg: $type,)* limit: Duration) -> Result<Option<Guard>> {
            Ok(wait_for(self.lock.$within($($arg,)* limit))??.map(Guard))
        }

        #[doc = concat!("Waits ", $what, " unless another thread cancels; `None` then.")]
        ///
        /// # Errors
        /// As the waiting way.
        pub fn $unless(&self, $($arg: $type,)* cancel: &Cancel) -> Result<Option<Guard>> {
            wait_unless(cancel, self.lock.$wait($($arg),*))?.transpose().map(|guard| guard.map(Guard))
        }
    };
}

pub(super) use ways_to_ask;

/// A lock that one thread holds at a time; see [`Keeper::mutex`](super::Keeper::mutex).
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct Mutex {
    pub(super) lock: crate::Mutex,
}

impl Mutex {
    /// The hold frees itself after this time, however long the work takes.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease) }
    }

    /// Holds last for at least this time, however short the work is; see [`Mutex::hold_at_least`](crate::Mutex::hold_at_least).
    pub fn hold_at_least(self, least: Duration) -> Self {
        Self { lock: self.lock.hold_at_least(least) }
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    ways_to_ask!(lock, try_lock, lock_within, lock_unless(), "for the lock");
}

/// A lock that readers share, and that is exclusive to a writer; see [`Keeper::rwlock`](super::Keeper::rwlock).
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct RwLock {
    pub(super) lock: crate::RwLock,
}

impl RwLock {
    /// Holds free themselves after this time, however long the work takes.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease) }
    }

    /// Holds last for at least this time, however short the work is; see [`Mutex::hold_at_least`](crate::Mutex::hold_at_least).
    pub fn hold_at_least(self, least: Duration) -> Self {
        Self { lock: self.lock.hold_at_least(least) }
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    ways_to_ask!(read, try_read, read_within, read_unless(), "to read");
    ways_to_ask!(write, try_write, write_within, write_unless(), "to write");
}

/// A lock of several permits; see [`Keeper::semaphore`](super::Keeper::semaphore).
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct Semaphore {
    pub(super) lock: crate::Semaphore,
}

impl Semaphore {
    /// Holds free themselves after this time, however long the work takes.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease) }
    }

    /// Holds last for at least this time, however short the work is; see [`Mutex::hold_at_least`](crate::Mutex::hold_at_least).
    pub fn hold_at_least(self, least: Duration) -> Self {
        Self { lock: self.lock.hold_at_least(least) }
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    ways_to_ask!(acquire, try_acquire, acquire_within, acquire_unless (want: u32), "for `want` permits");
}

/// Several locks as one; see [`Keeper::all`](super::Keeper::all).
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct MultiLock {
    pub(super) lock: crate::MultiLock,
}

impl MultiLock {
    /// Several locks as one, of one keeper or of several, each by its demand:
    /// `Wanted::shared(keeper.as_async(), "stock")`.
    pub fn new(wanted: impl IntoIterator<Item = Wanted>) -> Self {
        Self { lock: crate::MultiLock::new(wanted) }
    }

    /// The holds free themselves after this time, however long the work takes.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease) }
    }

    /// Holds last for at least this time, however short the work is; see [`Mutex::hold_at_least`](crate::Mutex::hold_at_least).
    pub fn hold_at_least(self, least: Duration) -> Self {
        Self { lock: self.lock.hold_at_least(least) }
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    ways_to_ask!(lock, try_lock, lock_within, lock_unless(), "for all");
}
