//! The semaphore: a number of permits, taken one or several at a time, first come, first served.

use crate::acquire::{Request, Requester, Terms, Wait};
use crate::claim::Demand;
use crate::error::{Error, Result};
use crate::guard::Guard;
use std::time::Duration;

/// A lock of several permits; see [`Keeper::semaphore`](crate::Keeper::semaphore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let gpus = keeper.semaphore("gpu", 4);
/// let three = gpus.acquire(3).await?;
/// assert!(gpus.try_acquire(2).await?.is_none());
/// assert!(gpus.try_acquire(1).await?.is_some());
/// # drop(three); Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct Semaphore {
    requester: Requester,
    name: String,
    of: u32,
    terms: Terms,
}

impl Semaphore {
    pub(crate) fn new(requester: Requester, name: String, of: u32) -> Self {
        Self { requester, name, of, terms: Terms::default() }
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

    fn demand_of(&self, want: u32, wait: Wait) -> Result<Request<'_>> {
        let of = self.of;
        if want == 0 || want > of {
            return Err(Error::invalid(format!("cannot take {want} of {of} permits: take 1 to {of}")));
        }
        Ok(Request { name: &self.name, demand: Demand::Permits { want, of }, terms: self.terms, wait })
    }

    async fn request(&self, want: u32, wait: Wait) -> Result<Option<Guard>> {
        Ok(self.requester.request(self.demand_of(want, wait)?).await?.map(Guard::new))
    }

    /// Waits for `want` permits.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`Error::Invalid`] for no permit or more than there are.
    pub async fn acquire(&self, want: u32) -> Result<Guard> {
        self.requester.request_without_limit(self.demand_of(want, Wait::Forever)?).await.map(Guard::new)
    }

    /// Takes `want` permits if they are free now and nobody waits for them.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, want: u32) -> Result<Option<Guard>> {
        self.request(want, Wait::Try).await
    }

    /// Waits for `want` permits up to `limit`; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future leaves the queue.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, want: u32, limit: Duration) -> Result<Option<Guard>> {
        self.request(want, Wait::Within(limit)).await
    }
}
