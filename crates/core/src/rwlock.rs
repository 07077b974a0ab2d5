//! The read-write lock: readers share it, a writer has it exclusively, first come, first served.

use crate::acquire::{Request, Requester, Terms, Wait};
use crate::claim::Demand;
use crate::error::Result;
use crate::guard::Guard;
use std::time::Duration;

/// A lock that readers share and a writer has exclusively; see [`Keeper::rwlock`](crate::Keeper::rwlock).
///
/// On a fair engine a reader waits for the last writer before it, a writer for everybody before it, so neither
/// starves. A writer may become a reader: [`Guard::downgrade`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let stock = keeper.rwlock("stock");
/// let (one, other) = (stock.read().await?, stock.read().await?);
/// assert!(stock.try_write().await?.is_none());
/// one.release().await?;
/// other.release().await?;
/// let writer = stock.write().await?;
/// writer.downgrade().await?;
/// assert!(stock.try_read().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct RwLock {
    requester: Requester,
    name: String,
    terms: Terms,
}

impl RwLock {
    pub(crate) fn new(requester: Requester, name: String) -> Self {
        Self { requester, name, terms: Terms::default() }
    }

    /// Holds free themselves after this time, however long the work takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Holds last for at least this time, however short the work is: a release before is a promise to leave then, and a
    /// killed process keeps it as long, too. The engine's clock decides. [`Guard::release_at_once`] gives it back earlier.
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where locks end with a connection or a session.
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

    fn demand_of(&self, demand: Demand, wait: Wait) -> Request<'_> {
        Request { name: &self.name, demand, terms: self.terms, wait }
    }

    async fn request(&self, demand: Demand, wait: Wait) -> Result<Option<Guard>> {
        Ok(self.requester.request(self.demand_of(demand, wait)).await?.map(Guard::new))
    }

    /// Waits to read.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read(&self) -> Result<Guard> {
        self.requester
            .request_without_limit(self.demand_of(Demand::Shared, Wait::Forever))
            .await
            .map(Guard::new)
    }

    /// Waits to write.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write(&self) -> Result<Guard> {
        self.requester
            .request_without_limit(self.demand_of(Demand::Exclusive, Wait::Forever))
            .await
            .map(Guard::new)
    }

    /// Reads if nobody writes or waits to write before us.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.request(Demand::Shared, Wait::Try).await
    }

    /// Writes if nobody else is there.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.request(Demand::Exclusive, Wait::Try).await
    }

    /// Waits to read, up to `limit`; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.request(Demand::Shared, Wait::Within(limit)).await
    }

    /// Waits to write, up to `limit`; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.request(Demand::Exclusive, Wait::Within(limit)).await
    }
}
