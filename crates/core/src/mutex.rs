//! The mutex: one claim holds at a time.

use crate::acquire::{Request, Requester, Terms, Wait};
use crate::claim::Demand;
use crate::error::Result;
use crate::guard::Guard;
use std::time::Duration;

/// A lock that one claim holds at a time; see [`Keeper::mutex`](crate::Keeper::mutex).
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct Mutex {
    requester: Requester,
    name: String,
    terms: Terms,
}

impl Mutex {
    pub(crate) fn new(requester: Requester, name: String) -> Self {
        Self { requester, name, terms: Terms::default() }
    }

    /// The hold frees itself after this time, however long the work takes (Q9).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// The hold lasts for at least this time, however short the work is: a release before is a promise to leave then, and a
    /// killed process keeps it as long, too. The engine's clock decides. [`Guard::release_at_once`] gives it back earlier.
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where locks end with a connection or a session.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # use std::time::Duration;
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let report = keeper.mutex("report").hold_at_least(Duration::from_secs(300));
    /// if let Some(guard) = report.try_lock().await? {
    ///     // Sent at most once in five minutes, by whichever machine came first.
    ///     guard.release().await?;
    /// }
    /// assert!(report.try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.terms.at_least = Some(least);
        self
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where locks end with a connection or a session, which has one TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = Some(ttl);
        self
    }

    fn demand_of(&self, wait: Wait) -> Request<'_> {
        Request { name: &self.name, demand: Demand::Exclusive, terms: self.terms, wait }
    }

    /// Waits for the lock.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory, State};
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("orders/42").lock().await?;
    /// assert_eq!(guard.state(), State::Held);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a bad name, [`Error::Mismatch`](crate::Error::Mismatch) if the name is in use as
    /// another kind of lock, [`Error::Lost`](crate::Error::Lost) if its owner has entered it before and has lost that hold,
    /// [`Error::Engine`](crate::Error::Engine) if the engine stays away for longer than the outage limit, or fails for good.
    pub async fn lock(&self) -> Result<Guard> {
        self.requester.request_without_limit(self.demand_of(Wait::Forever)).await.map(Guard::new)
    }

    /// Takes the lock if it is free now.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("orders/42").try_lock().await?.expect("nobody else is here");
    /// assert!(keeper.mutex("orders/42").try_lock().await?.is_none());
    /// # drop(guard); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(self.requester.request(self.demand_of(Wait::Try)).await?.map(Guard::new))
    }

    /// Waits for the lock up to `limit`; `None` when the time is over. If the engine does not reply at that moment, or never did,
    /// it is an [`Error::Engine`](crate::Error::Engine): nobody knows whether the lock is held.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # use std::time::Duration;
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("orders/42").lock_within(Duration::from_secs(1)).await?;
    /// assert!(guard.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<Guard>> {
        Ok(self.requester.request(self.demand_of(Wait::Within(limit))).await?.map(Guard::new))
    }
}
