//! How a message finds the claim that waits for it, and the subscription over which messages come.

use crate::connection::Connection;
use lockkeeper_core::engine::{Claim, ClaimId, Connections, background};
use rand::RngExt as _;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The keeper's own channel, to which the background connection subscribes.
pub struct Subscription {
    /// Its name.
    pub channel: String,
    /// Called with each message. Must not block.
    pub message: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({})", self.channel)
    }
}

/// Keeps a background connection open: a task opens it again as soon as it is closed or silent.
#[derive(Debug)]
pub struct Subscribed {
    current: Arc<watch::Sender<Option<Arc<Connection>>>>,
    task: AbortHandle,
}

/// A connection that was open for less than this is not reopened at once.
const SHORT_LIFE: Duration = Duration::from_millis(100);
/// The pauses between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Subscribed {
    /// Starts the task. `reconnected` is called when the connection is open again after it was lost: messages may have been
    /// missed.
    pub fn start(
        connections: Arc<Connections<Connection>>,
        reconnected: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let current = Arc::new(watch::Sender::new(None));
        let task = reconnect(connections, Arc::clone(&current), reconnected);
        Self { current, task: background::handle().spawn(task).abort_handle() }
    }

    /// The connection, if it is open now.
    pub fn current(&self) -> Option<Arc<Connection>> {
        self.current.borrow().clone()
    }

    /// Ends the task and gives the connection back.
    pub fn close(&self) {
        self.task.abort();
        self.current.send_replace(None);
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.close();
    }
}

async fn reconnect(
    connections: Arc<Connections<Connection>>,
    current: Arc<watch::Sender<Option<Arc<Connection>>>>,
    reconnected: impl Fn() + Send + Sync + 'static,
) {
    let (mut was_open, mut pause) = (false, PAUSES.0);
    loop {
        match connections.background().await {
            Ok(connection) => {
                let opened = Instant::now();
                current.send_replace(Some(Arc::clone(&connection)));
                if was_open {
                    reconnected();
                }
                connection.closed().await;
                current.send_replace(None);
                tracing::debug!(?connection, "wake connection lost; reconnecting");
                was_open = true;
                if opened.elapsed() > SHORT_LIFE {
                    pause = PAUSES.0;
                    continue;
                }
            }
            Err(error) => tracing::debug!(%error, "could not connect; trying again"),
        }
        let share = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(pause.mul_f64(share)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// What is known of a claim that has not been granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// It waits. If a claim ahead may have expired by then, it looks by itself.
    Waits {
        look_at: Option<Instant>,
    },
    Holds,
    Gone,
}

impl WaitState {
    /// Reads a script's reply: 0 gone, 1 waits, 2 holds; and in how many milliseconds to look again, if at all.
    pub(crate) fn read(number: i64, look_in_ms: i64) -> Self {
        match number {
            0 => Self::Gone,
            1 => Self::Waits {
                look_at: u64::try_from(look_in_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms)),
            },
            _ => Self::Holds,
        }
    }
}

/// One claim that is being joined or waits in the queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) claim: Claim,
    state: Mutex<WaitState>,
    changed: Notify,
}

impl Waiter {
    pub(crate) fn state(&self) -> WaitState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grant and an end are final: a late look must not take them back.
    pub(crate) fn notify(&self, news: WaitState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, WaitState::Waits { .. }) {
            *state = news;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Resolves when the state may have changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The claims of this engine that are being joined or wait. A claim is entered before its join is sent, so that no message
/// can be too early, and taken out when it is granted or leaves.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<ClaimId, Arc<Waiter>>>);

impl Waiters {
    fn map(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Waiter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, claim: &Claim) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            claim: claim.clone(),
            state: Mutex::new(WaitState::Waits { look_at: None }),
            changed: Notify::new(),
        });
        self.map().insert(claim.id, Arc::clone(&waiter));
        waiter
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Arc<Waiter>> {
        self.map().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: ClaimId) {
        self.map().remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Waiter>> {
        self.map().values().cloned().collect()
    }

    pub(crate) fn notify(&self, id: ClaimId, news: WaitState) {
        if let Some(waiter) = self.get(id) {
            waiter.notify(news);
        }
    }
}
