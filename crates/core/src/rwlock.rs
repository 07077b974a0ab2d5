//! The read-write lock: readers share, a writer is alone, and whoever came first goes first.

use crate::claim::Demand;
use crate::error::Result;
use crate::guard::Guard;
use crate::keeper::{Ask, Asker, Patience};
use std::time::Duration;

/// A lock that readers share and a writer has alone; see [`Keeper::rwlock`](crate::Keeper::rwlock).
///
/// On a fair engine a reader waits for the last writer before it, a writer for everybody before it, so neither
/// starves. A writer may become a reader: [`Guard::downgrade`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, Memory};
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
pub struct RwLock {
    asker: Asker,
    name: String,
    lease: Option<Duration>,
}

impl RwLock {
    pub(crate) fn new(asker: Asker, name: String) -> Self {
        Self { asker, name, lease: None }
    }

    /// Holds free themselves after this time, however long the work takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    fn asking(&self, demand: Demand, patience: Patience) -> Ask<'_> {
        Ask { name: &self.name, demand, lease: self.lease, patience }
    }

    async fn ask(&self, demand: Demand, patience: Patience) -> Result<Option<Guard>> {
        Ok(self.asker.ask(self.asking(demand, patience)).await?.map(Guard::new))
    }

    /// Waits to read.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read(&self) -> Result<Guard> {
        self.asker.ask_forever(self.asking(Demand::Shared, Patience::Forever)).await.map(Guard::new)
    }

    /// Waits to write.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write(&self) -> Result<Guard> {
        self.asker.ask_forever(self.asking(Demand::Exclusive, Patience::Forever)).await.map(Guard::new)
    }

    /// Reads if nobody writes or waits to write before us.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.ask(Demand::Shared, Patience::Try).await
    }

    /// Writes if nobody else is there.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.ask(Demand::Exclusive, Patience::Try).await
    }

    /// Waits to read at most so long; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.ask(Demand::Shared, Patience::Within(limit)).await
    }

    /// Waits to write at most so long; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.ask(Demand::Exclusive, Patience::Within(limit)).await
    }
}
