//! One connection per runtime: opened when a runtime first asks, reopened when it is closed, dropped with its runtime.
//!
//! A driver's connection is polled by the runtime that opened it, so a request over it must come from that runtime: a
//! blocked or ended runtime would else block the caller. Nothing moves between runtimes. The background runtime is one
//! of them, and serves callers that have no runtime of their own.

mod replies;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use replies::{NoReply, Replies};

#[cfg(not(shuttle))]
use crate::background;
use crate::engine::BoxFuture;
use crate::error::{Error, Result};
use crate::sync::{AbortHandle, Handle, Id, Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, PoisonError, Weak};
use tokio::sync::watch;

/// A connection that can say whether it is still of use.
pub trait Connection: Send + Sync + 'static {
    /// Whether it is closed or silent, so that requests over it are in vain.
    fn is_closed(&self) -> bool;
}

/// The connections of one engine, at most one for each runtime.
pub struct Connections<C>(Arc<Inner<C>>);

struct Inner<C> {
    open: Box<dyn Fn() -> BoxFuture<'static, Result<C>> + Send + Sync>,
    slots: Mutex<HashMap<Id, Slot<C>>>,
}

struct Slot<C> {
    state: State<C>,
    opening: Opening<C>,
    /// The task that opened the connection; it removes the slot when its runtime ends.
    task: Option<AbortHandle>,
}

enum State<C> {
    Open(Arc<C>),
    Opening(Opening<C>),
}

/// Says how an opening ended.
type Opening<C> = watch::Receiver<Option<Opened<C>>>;

/// How an opening ended, for everybody who waits for it.
type Opened<C> = Result<Weak<C>, Arc<Error>>;

impl<C: Connection> Connections<C> {
    /// Connections made by `open`, which is polled on the runtime that will use the connection and must limit its own
    /// time. None is opened yet.
    pub fn new<F>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C>> + Send + 'static,
    {
        let open = Box::new(move || -> BoxFuture<'static, Result<C>> { Box::pin(open()) });
        Self(Arc::new(Inner { open, slots: Mutex::default() }))
    }

    /// Closes all connections, as soon as their last request has ended. Later calls open new ones.
    pub fn close(&self) {
        let slots = std::mem::take(&mut *self.0.slots());
        slots.into_values().filter_map(|slot| slot.task).for_each(|task| task.abort());
    }
}

#[cfg(not(shuttle))]
impl<C: Connection> Connections<C> {
    /// The connection of the caller's runtime, or the background's if the caller has none.
    ///
    /// Cancel safety: the opening goes on, for the next caller.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn foreground(&self) -> Result<Arc<C>> {
        match Handle::try_current() {
            Ok(runtime) => self.on(&runtime).await,
            Err(_) => self.background().await,
        }
    }

    /// The connection of the background runtime.
    ///
    /// Cancel safety: the opening goes on, for the next caller.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn background(&self) -> Result<Arc<C>> {
        self.on(background::handle()).await
    }
}

impl<C: Connection> Connections<C> {
    pub(crate) async fn on(&self, runtime: &Handle) -> Result<Arc<C>> {
        let mut opening = match self.0.find_or_open(runtime) {
            State::Open(connection) => return Ok(connection),
            State::Opening(opening) => opening,
        };
        let opened = opening.wait_for(Option::is_some).await.ok().and_then(|opened| opened.clone());
        match opened {
            Some(Ok(connection)) => connection.upgrade().ok_or_else(|| {
                Error::temporary("lockkeeper", "use a new connection", "it was closed at once")
            }),
            Some(Err(error)) => Err(error.copy()),
            None => Err(Error::invalid(
                "no connection could be opened on this tokio runtime: it has ended, or has I/O or timers disabled \
                 (build it with enable_all)",
            )),
        }
    }
}

impl<C: Connection> Inner<C> {
    fn find_or_open(self: &Arc<Self>, runtime: &Handle) -> State<C> {
        let (sender, opening) = {
            let mut slots = self.slots();
            match slots.get(&runtime.id()).map(|slot| &slot.state) {
                Some(State::Open(connection)) if !connection.is_closed() => {
                    return State::Open(Arc::clone(connection));
                }
                Some(State::Opening(opening)) => return State::Opening(opening.clone()),
                _ => {}
            }
            let (sender, opening) = watch::channel(None);
            let slot = Slot { state: State::Opening(opening.clone()), opening: opening.clone(), task: None };
            if let Some(Slot { task: Some(task), .. }) = slots.insert(runtime.id(), slot) {
                task.abort();
            }
            (sender, opening)
        };
        // A runtime that has ended drops the task at once, and that removes the slot: it must not be locked here.
        let removes = Removes { inner: Arc::downgrade(self), id: runtime.id(), opening: opening.clone() };
        let task = runtime.spawn(open(Arc::clone(self), removes, sender)).abort_handle();
        if let Some(slot) = self.slots().get_mut(&runtime.id()).filter(|slot| slot.is_of(&opening)) {
            slot.task = Some(task);
        }
        State::Opening(opening)
    }
}

impl<C> Inner<C> {
    fn slots(&self) -> MutexGuard<'_, HashMap<Id, Slot<C>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Slot<C> {
    /// Whether it was made by this opening, and not by a later one of the same runtime.
    fn is_of(&self, opening: &Opening<C>) -> bool {
        self.opening.same_channel(opening)
    }
}

impl<C> Drop for Inner<C> {
    fn drop(&mut self) {
        self.slots().values().filter_map(|slot| slot.task.as_ref()).for_each(AbortHandle::abort);
    }
}

/// Removes the slot when it is dropped: because the opening failed, or because the runtime ends.
struct Removes<C> {
    inner: Weak<Inner<C>>,
    id: Id,
    opening: Opening<C>,
}

impl<C> Drop for Removes<C> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let removed = {
            let mut slots = inner.slots();
            if slots.get(&self.id).is_some_and(|slot| slot.is_of(&self.opening)) {
                slots.remove(&self.id)
            } else {
                None
            }
        };
        drop(removed);
    }
}

/// Opens a connection on the runtime that polls this, and stays there until that runtime ends or the connection is replaced.
async fn open<C: Connection>(
    inner: Arc<Inner<C>>,
    removes: Removes<C>,
    waiting: watch::Sender<Option<Opened<C>>>,
) {
    match (inner.open)().await {
        Ok(connection) => {
            let connection = Arc::new(connection);
            if let Some(slot) = inner.slots().get_mut(&removes.id).filter(|slot| slot.is_of(&removes.opening))
            {
                slot.state = State::Open(Arc::clone(&connection));
            }
            waiting.send_replace(Some(Ok(Arc::downgrade(&connection))));
            drop((inner, waiting, connection));
            pending::<()>().await;
        }
        Err(error) => {
            drop(removes);
            waiting.send_replace(Some(Err(Arc::new(error))));
        }
    }
}

impl<C> fmt::Debug for Connections<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("runtimes", &self.0.slots().len()).finish()
    }
}
