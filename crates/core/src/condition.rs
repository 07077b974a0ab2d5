//! The condition variable: wait under a mutex until somebody in another process says that things changed.
//!
//! Built of the same queues, so it works on every engine with shared claims. Each waiter has a small lock of
//! its own, in which it holds a *baton* (exclusive) and queues behind itself (shared). To notify is to evict the
//! baton; the engine then wakes the waiter as it wakes anybody whose blocker has left. The waiters' locks are
//! named by the mutex's fencing token, so they are notified in the order in which they began to wait.

use crate::claim::{ClaimId, Demand};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::keeper::Keeper;
use crate::mutex::Mutex;
use crate::views::{LockView, Standing};
use std::time::Duration;

/// A condition variable across processes; see [`Keeper::condition`].
///
/// As with any condition variable: hold the mutex while you look and while you notify, and look again in a loop
/// after each wait. A notification that reaches a waiter whose process dies is lost with it, so prefer
/// [`wait_within`](Self::wait_within) or [`notify_all`](Self::notify_all) where that matters.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let (mutex, not_empty) = (keeper.mutex("basket"), keeper.condition("basket-not-empty"));
/// let waiter = tokio::spawn({
///     let (mutex, not_empty) = (mutex.clone(), not_empty.clone());
///     async move {
///         let guard = mutex.lock().await?;
///         not_empty.wait(&mutex, guard).await
///     }
/// });
/// loop {
///     let guard = mutex.lock().await?;
///     let woken = not_empty.notify_one().await?;
///     guard.release().await?;
///     if woken { break; }
/// }
/// waiter.await.unwrap()?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Condition {
    keeper: Keeper,
    name: String,
}

impl Condition {
    pub(crate) fn new(keeper: Keeper, name: String) -> Self {
        Self { keeper, name }
    }

    /// Releases the mutex, waits to be notified, and locks the mutex again.
    ///
    /// Cancel safety: when dropped, the wait ends and the mutex is not held.
    ///
    /// # Errors
    /// As [`Mutex::lock`], and [`Error::Lost`] if the guard was lost.
    pub async fn wait(&self, mutex: &Mutex, guard: Guard) -> Result<Guard> {
        let waiter = self.enlist(&guard).await?;
        guard.release().await?;
        waiter.behind.read().await?.release().await?;
        mutex.lock().await
    }

    /// Like [`wait`](Self::wait), up to `limit`; also says whether it was notified. Locking the mutex again is
    /// not part of the limit.
    ///
    /// Cancel safety: as [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_within(&self, mutex: &Mutex, guard: Guard, limit: Duration) -> Result<(Guard, bool)> {
        let waiter = self.enlist(&guard).await?;
        guard.release().await?;
        let notified = match waiter.behind.read_within(limit).await? {
            Some(turn) => {
                turn.release().await?;
                true
            }
            // Notified in the very moment the time was over: the baton is gone already, and that counts.
            None => matches!(waiter.baton.release().await, Err(Error::Lost { .. })),
        };
        Ok((mutex.lock().await?, notified))
    }

    /// Wakes the one who has waited longest; `false` if nobody waits. Call it while holding the mutex.
    ///
    /// Cancel safety: the notification may or may not happen.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine does not reply.
    pub async fn notify_one(&self) -> Result<bool> {
        for waiter in self.waiting().await? {
            if self.wake(&waiter).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Wakes everybody who waits; says how many. Call it while holding the mutex.
    ///
    /// Cancel safety: some notifications may or may not happen.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine does not reply.
    pub async fn notify_all(&self) -> Result<usize> {
        let mut woken = 0;
        for waiter in self.waiting().await? {
            woken += usize::from(self.wake(&waiter).await?);
        }
        Ok(woken)
    }

    async fn enlist(&self, guard: &Guard) -> Result<Waiter> {
        // The random part keeps two waiters apart whose guards are of different locks.
        let name = format!("{}/{:020}-{}", self.name, guard.token()?.0, ClaimId::random());
        let behind = self.keeper.rwlock(name);
        let baton = behind.write().await?;
        baton.forget_task();
        Ok(Waiter { baton, behind })
    }

    /// The waiters who have not been notified yet, in the order they came.
    async fn waiting(&self) -> Result<Vec<LockView>> {
        let mut locks = self.keeper.inspect(&format!("{}/", self.name)).await?;
        locks.retain(|lock| lock.claims.first().is_some_and(is_baton));
        locks.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(locks)
    }

    async fn wake(&self, waiter: &LockView) -> Result<bool> {
        self.keeper.evict(&waiter.name, &waiter.claims[0].id).await
    }
}

fn is_baton(claim: &crate::views::ClaimView) -> bool {
    claim.demand == Demand::Exclusive && claim.standing == Standing::Holds
}

struct Waiter {
    baton: Guard,
    behind: crate::rwlock::RwLock,
}
