//! The same locks without async, for plain threads. The owner is the thread: it may enter again what it holds.
//!
//! ```
//! use lockkeeper::blocking::Keeper;
//! # fn main() -> lockkeeper::Result<()> {
//! let keeper = Keeper::connect("memory:")?;
//! let outer = keeper.mutex("orders/42").lock()?;
//! let inner = keeper.mutex("orders/42").lock()?; // the same thread does not wait for itself
//! inner.release()?;
//! outer.release()?;
//! # Ok(()) }
//! ```

mod cancel;
mod condition;
mod election;
mod guard;
mod locks;

pub use cancel::Cancel;
pub use condition::Condition;
pub use election::{Election, Leaders};
pub use guard::{Guard, LostSignal};
pub use locks::{MultiLock, Mutex, RwLock, Semaphore};

use crate::Connect;
use lockkeeper_core::engine::background;
use lockkeeper_core::{Abilities, Error, Handle, Holder, LockView, Owner, Result};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// One handle to an engine, for plain threads. Cheap to clone; clones share the owners.
#[derive(Debug, Clone)]
pub struct Keeper {
    keeper: lockkeeper_core::Keeper,
    owners: Arc<std::sync::Mutex<HashMap<ThreadId, Owner>>>,
}

impl Keeper {
    /// Connects to the engine that the URL names, with the default settings.
    ///
    /// # Errors
    /// As [`connect`](crate::connect()); [`Error::Invalid`] from async code.
    pub fn connect(url: impl Into<String>) -> Result<Self> {
        Self::connect_with(Connect::to(url))
    }

    /// Connects with settings of one's own.
    ///
    /// # Errors
    /// As [`connect`](crate::connect()); [`Error::Invalid`] from async code.
    pub fn connect_with(settings: Connect) -> Result<Self> {
        let keeper = wait_for(settings.connect())??;
        Ok(Self { keeper, owners: Arc::default() })
    }

    /// The thread's owner.
    fn owner(&self) -> Owner {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = std::thread::current().id();
        if let Some(owner) = owners.get(&thread) {
            return owner.clone();
        }
        // Threads end without telling us; an owner that holds nothing need not be remembered.
        owners.retain(|_, owner| !owner.is_idle());
        owners.entry(thread).or_insert_with(|| self.keeper.owner()).clone()
    }

    /// A lock that one thread holds at a time.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex { lock: self.owner().mutex(name) }
    }

    /// A lock that readers share, and that is exclusive to a writer.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock { lock: self.owner().rwlock(name) }
    }

    /// A lock of `of` permits.
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore { lock: self.owner().semaphore(name, of) }
    }

    /// Several locks as one. Not reentrant.
    pub fn all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock { lock: self.keeper.all(names) }
    }

    /// An election: one candidate at a time leads. Not reentrant.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election { lock: self.keeper.election(name) }
    }

    /// A condition variable across processes.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        Condition(self.keeper.condition(name))
    }

    /// The locks in use whose name begins with the prefix, with holders and waiters in order.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine does not reply; [`Error::Invalid`] from async code.
    pub fn inspect(&self, prefix: &str) -> Result<Vec<LockView>> {
        wait_for(self.keeper.inspect(prefix))?
    }

    /// Takes over a detached hold. Not reentrant: the thread that attached it does not enter it again.
    ///
    /// ```
    /// # use lockkeeper::blocking::Keeper;
    /// # use std::time::Duration;
    /// # fn main() -> lockkeeper::Result<()> {
    /// let keeper = Keeper::connect("memory:")?;
    /// let handle = keeper.mutex("deploy").lock()?.detach(Duration::from_secs(1800))?;
    /// keeper.attach(&handle)?.release()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keeper::attach`](crate::Keeper::attach); [`Error::Invalid`] from async code.
    pub fn attach(&self, handle: &Handle) -> Result<Guard> {
        wait_for(self.keeper.attach(handle))?.map(Guard)
    }

    /// Like [`inspect`](Self::inspect), for at most `at_most` locks.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn inspect_at_most(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        wait_for(self.keeper.inspect_at_most(prefix, at_most))?
    }

    /// The lock of exactly this name, with holders and waiters in order; `None` if it is free.
    ///
    /// # Errors
    /// As [`Keeper::look`](crate::Keeper::look); [`Error::Invalid`] from async code.
    pub fn look(&self, name: &str) -> Result<Option<LockView>> {
        wait_for(self.keeper.look(name))?
    }

    /// Removes somebody's claim by force, as [`inspect`](Self::inspect) names it; `false` if it was not there.
    ///
    /// # Errors
    /// As [`Keeper::evict`](crate::Keeper::evict); [`Error::Invalid`] from async code.
    pub fn evict(&self, name: &str, claim: &str) -> Result<bool> {
        wait_for(self.keeper.evict(name, claim))?
    }

    /// Asks the owner of a claim to release it, and waits up to `limit` until it is gone; `false` if it is still there.
    ///
    /// # Errors
    /// As [`Keeper::ask`](crate::Keeper::ask); [`Error::Invalid`] from async code.
    pub fn ask(&self, name: &str, claim: &str, limit: Duration) -> Result<bool> {
        wait_for(self.keeper.ask(name, claim, limit))?
    }

    /// Whether a guard of this keeper, of any thread, holds the lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name.
    pub fn holds(&self, name: &str) -> Result<bool> {
        self.keeper.holds(name)
    }

    /// Says before anything is claimed whether the engine can keep a hold for this long without its process:
    /// [`Guard::detach`] refuses the same.
    ///
    /// # Errors
    /// As [`Keeper::check_detach`](crate::Keeper::check_detach).
    pub fn check_detach(&self, duration: Duration) -> Result<()> {
        self.keeper.check_detach(duration)
    }

    /// What the engine and style can do.
    pub fn abilities(&self) -> Abilities {
        self.keeper.abilities()
    }

    /// This keeper for claims of another holder: they are shown to operators as this one's, and everything else is shared.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an overlong text or host, or control characters in them.
    pub fn for_holder(&self, holder: Holder) -> Result<Self> {
        Ok(Self { keeper: self.keeper.for_holder(holder)?, owners: Arc::default() })
    }

    /// The namespace of its locks; empty for bare names.
    pub fn namespace(&self) -> &str {
        self.keeper.namespace()
    }

    /// How long a claim lives without a renewal.
    pub fn ttl(&self) -> Duration {
        self.keeper.ttl()
    }

    /// The keeper for async code.
    pub fn as_async(&self) -> &lockkeeper_core::Keeper {
        &self.keeper
    }

    /// Ends every claim of this keeper, waits until they have left, and stops.
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn close(self) -> Result<()> {
        wait_for(self.keeper.close())
    }
}

/// Runs a future on this thread; its connections live on the background runtime.
fn wait_for<T>(future: impl Future<Output = T>) -> Result<T> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::invalid(
            "lockkeeper::blocking was called from async code, where it would block the executor: \
             use lockkeeper::connect there",
        ));
    }
    Ok(background::handle().block_on(future))
}

/// Runs a future on this thread until it is done or cancelled; `None` when cancelled.
fn wait_unless<T>(cancel: &Cancel, future: impl Future<Output = T>) -> Result<Option<T>> {
    wait_for(async {
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            done = future => Some(done),
        }
    })
}
