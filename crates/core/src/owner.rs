//! The owner: explicit reentrancy, not guessed from a thread or a task.

use crate::acquire::{Request, Requester, Wait};
use crate::claim::Demand;
use crate::error::{Error, Result};
use crate::guard::Hold;
use crate::keeper::Keeper;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// What an owner holds of one name, if anything; locked while it acquires.
type Slot = Arc<AsyncMutex<Weak<Hold>>>;

/// One owner of locks, such as a request or a thread: its second `lock()` of a name shares the hold it already
/// has, without a round trip, and the lock is free when every guard is gone. Clones are the same owner.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let owner = keeper.owner();
/// let outer = owner.mutex("orders/42").lock().await?;
/// let inner = owner.mutex("orders/42").lock().await?; // does not wait for itself
/// assert_eq!(outer.token()?, inner.token()?);
/// inner.release().await?;
/// assert!(keeper.mutex("orders/42").try_lock().await?.is_none()); // still held once
/// outer.release().await?;
/// assert!(keeper.mutex("orders/42").try_lock().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Owner {
    keeper: Keeper,
    slots: Arc<std::sync::Mutex<HashMap<String, Slot>>>,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({})", self.demand())
    }
}

impl Owner {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self { keeper, slots: Arc::default() }
    }

    fn requester(&self) -> Requester {
        Requester { keeper: self.keeper.clone(), owner: Some(self.clone()) }
    }

    /// A mutex that this owner may enter again.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.requester(), name.into())
    }

    /// A read-write lock that this owner may enter again: a writer also as a reader, a reader not as a writer.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.requester(), name.into())
    }

    /// A semaphore whose permits this owner may enter again, up to as many as it holds.
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore::new(self.requester(), name.into(), of)
    }

    /// Whether this owner holds nothing and is acquiring nothing, so that it may be forgotten.
    pub fn is_idle(&self) -> bool {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).values().all(is_idle)
    }

    /// Shares the hold this owner has, or acquires one.
    pub(crate) async fn enter(&self, request: Request<'_>) -> Result<Option<Arc<Hold>>> {
        let Some(mut slot) = self.slot(request).await else { return Ok(None) };
        if let Some(hold) = slot.upgrade() {
            // Lost: the owner must stop, not start over in the middle of what it did under the lock.
            hold.check()?;
            covers(&hold, request.demand, request.name)?;
            return Ok(Some(hold));
        }
        let hold = self.keeper.acquire(request).await?;
        if let Some(hold) = &hold {
            *slot = Arc::downgrade(hold);
        }
        Ok(hold)
    }

    /// The name's slot, once no other task of this owner is acquiring it.
    async fn slot(&self, request: Request<'_>) -> Option<OwnedMutexGuard<Weak<Hold>>> {
        let slot = self.find_slot(request.name);
        match request.wait {
            Wait::Try => slot.try_lock_owned().ok(),
            Wait::Forever => Some(slot.lock_owned().await),
            Wait::Within(limit) => self.keeper.0.clock.timeout(limit, slot.lock_owned()).await.ok(),
        }
    }

    fn find_slot(&self, name: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        // Forget names that are neither held nor being acquired, so that the map does not grow for ever.
        slots.retain(|_, slot| !is_idle(slot));
        Arc::clone(slots.entry(name.to_owned()).or_default())
    }
}

fn is_idle(slot: &Slot) -> bool {
    Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|held| held.strong_count() == 0)
}

/// A hold covers a smaller demand; a larger one would wait for itself.
fn covers(hold: &Hold, wanted: Demand, name: &str) -> Result<()> {
    let held = hold.demand();
    if held.may_shrink_to(wanted) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "this owner holds '{name}' as {held} and cannot enter it as {wanted}: it would wait for itself; \
         release it first"
    )))
}
