//! The mutex: one claim holds at a time.

use crate::acquire::{Request, Requester, Wait};
use crate::claim::Demand;
use crate::error::Result;
use crate::guard::Guard;
use std::time::Duration;

/// A lock that one claim holds at a time; see [`Keeper::mutex`](crate::Keeper::mutex).
#[derive(Debug, Clone)]
pub struct Mutex {
    requester: Requester,
    name: String,
    lease: Option<Duration>,
}

impl Mutex {
    pub(crate) fn new(requester: Requester, name: String) -> Self {
        Self { requester, name, lease: None }
    }

    /// The hold frees itself after this time, however long the work takes (Q9).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    fn demand_of(&self, wait: Wait) -> Request<'_> {
        Request { name: &self.name, demand: Demand::Exclusive, lease: self.lease, wait }
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
    /// another kind of lock, [`Error::Lost`](crate::Error::Lost) if the claim died while it waited,
    /// [`Error::Engine`](crate::Error::Engine).
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

    /// Waits for the lock up to `limit`; `None` when the time is over.
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
