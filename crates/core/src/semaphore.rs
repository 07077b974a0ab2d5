//! The semaphore: so many permits, taken one or several at a time, first come, first served.

use crate::claim::Demand;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::keeper::{Ask, Asker, Patience};
use std::time::Duration;

/// A lock of several permits; see [`Keeper::semaphore`](crate::Keeper::semaphore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, Memory};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let gpus = keeper.semaphore("gpu", 4);
/// let three = gpus.acquire(3).await?;
/// assert!(gpus.try_acquire(2).await?.is_none());
/// assert!(gpus.try_acquire(1).await?.is_some());
/// # drop(three); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    asker: Asker,
    name: String,
    of: u32,
    lease: Option<Duration>,
}

impl Semaphore {
    pub(crate) fn new(asker: Asker, name: String, of: u32) -> Self {
        Self { asker, name, of, lease: None }
    }

    /// Holds free themselves after this time, however long the work takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    fn asking(&self, want: u32, patience: Patience) -> Result<Ask<'_>> {
        let of = self.of;
        if want == 0 || want > of {
            return Err(Error::invalid(format!("cannot take {want} of {of} permits: take 1 to {of}")));
        }
        Ok(Ask { name: &self.name, demand: Demand::Permits { want, of }, lease: self.lease, patience })
    }

    async fn ask(&self, want: u32, patience: Patience) -> Result<Option<Guard>> {
        Ok(self.asker.ask(self.asking(want, patience)?).await?.map(Guard::new))
    }

    /// Waits for so many permits.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`Error::Invalid`] for no permit or more than there are.
    pub async fn acquire(&self, want: u32) -> Result<Guard> {
        self.asker.ask_forever(self.asking(want, Patience::Forever)?).await.map(Guard::new)
    }

    /// Takes so many permits if they are free now and nobody waits before us.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, want: u32) -> Result<Option<Guard>> {
        self.ask(want, Patience::Try).await
    }

    /// Waits for so many permits at most so long; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, want: u32, limit: Duration) -> Result<Option<Guard>> {
        self.ask(want, Patience::Within(limit)).await
    }
}
