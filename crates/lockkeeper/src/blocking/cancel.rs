//! The handle that interrupts a wait.

use std::sync::Arc;
use tokio::sync::watch;

/// Interrupts waits from another thread. Clones are the same handle.
///
/// ```
/// use lockkeeper::blocking::{Cancel, Keeper};
/// # fn main() -> lockkeeper::Result<()> {
/// let keeper = Keeper::connect("memory:")?;
/// let cancel = Cancel::new();
/// let held = keeper.mutex("busy").lock()?;
/// let waiter = std::thread::spawn({
///     let (keeper, cancel) = (keeper.clone(), cancel.clone());
///     move || keeper.mutex("busy").lock_unless(&cancel).map(|guard| guard.is_none())
/// });
/// cancel.cancel();
/// assert!(waiter.join().unwrap()?, "interrupted");
/// # drop(held); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A handle that has not been used yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Ends every wait that was given this handle, now and later.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has been used.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) async fn cancelled(&self) {
        // The sender lives in `self`, so this ends only when the value is set.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}
