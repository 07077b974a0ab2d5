//! How a message finds the claim that waits for it, and the subscription over which messages come.

use crate::connection::Connection;
use crate::servers::Servers;
use lockkeeper_core::Result;
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Connection as _, Connections, background};
use rand::RngExt as _;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What comes on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News<'a> {
    /// A message.
    Message(&'a str),
    /// Nothing will come any more: the subscription has ended, or its slot of a Cluster has moved.
    Ended,
}

type Receive = dyn Fn(&str, News<'_>) + Send + Sync;

/// What the background connection does with messages.
pub struct Subscription {
    /// The keeper's own channel, to which it subscribes when it is opened.
    pub(crate) own_channel: Option<String>,
    /// Called with a channel and what comes on it. Must not block.
    pub(crate) receive: Box<Receive>,
}

impl Subscription {
    /// To the keeper's own channel. `message` is called with each message, and must not block.
    pub fn to(channel: String, message: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let receive = move |_: &str, news: News<'_>| {
            if let News::Message(text) = news {
                message(text);
            }
        };
        Self { own_channel: Some(channel), receive: Box::new(receive) }
    }

    /// To channels that are named later. `receive` must not block.
    pub(crate) fn to_any(receive: impl Fn(&str, News<'_>) + Send + Sync + 'static) -> Self {
        Self { own_channel: None, receive: Box::new(receive) }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({:?})", self.own_channel)
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
        Clock::Boot.sleep(pause.mul_f64(share)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// A waiter that is this late is one whose future nobody polls; others look after the lock instead of it.
const OVERDUE: Duration = Duration::from_secs(5);

/// The channels of locks whose releases are published to everybody, and the claims that wait for a message on them.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<HashMap<String, Arc<Channel>>>);

/// One channel.
#[derive(Debug)]
struct Channel {
    name: String,
    state: Mutex<ChannelState>,
    /// The connection that subscribes to it, if one does.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

#[derive(Debug)]
struct ChannelState {
    waiting: VecDeque<Arc<WaitingClaim>>,
    /// A message that came when nobody waited: the next one to wait takes it.
    message: bool,
    /// The subscription has ended by itself.
    ended: bool,
    /// When the lock is free at the latest, unless its holder renews it: then somebody must look, since no message says so.
    free_at: Instant,
}

#[derive(Debug)]
struct WaitingClaim {
    id: ClaimId,
    woken: AtomicBool,
    changed: Notify,
}

impl WaitingClaim {
    fn wake(&self) {
        self.woken.store(true, Relaxed);
        self.changed.notify_one();
    }
}

impl Channel {
    fn new(name: &str) -> Arc<Self> {
        let state =
            ChannelState { waiting: VecDeque::new(), message: false, ended: false, free_at: Instant::now() };
        Arc::new(Self {
            name: name.to_owned(),
            state: Mutex::new(state),
            connection: tokio::sync::Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes, unless that is done. Says over which connection, and whether messages may have been missed.
    async fn subscribe(&self, servers: &Servers) -> Result<(Arc<Connection>, bool)> {
        let mut connection = self.connection.lock().await;
        let has_ended = std::mem::take(&mut self.state().ended);
        match &*connection {
            Some(connection) if !has_ended && !connection.is_closed() => Ok((Arc::clone(connection), false)),
            _ => {
                let subscribed = servers.subscribe(&self.name).await?;
                *connection = Some(Arc::clone(&subscribed));
                Ok((subscribed, true))
            }
        }
    }
}

impl Channels {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Arc<Channel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives what comes on a channel. One claim tries to take the lock then, or every one that waits.
    pub(crate) fn receive(&self, name: &str, news: News<'_>, wakes_all: bool) {
        let Some(channel) = self.map().get(name).cloned() else { return };
        let mut state = channel.state();
        state.ended |= news == News::Ended;
        let awake = if wakes_all { state.waiting.len() } else { 1 };
        state.waiting.iter().take(awake).for_each(|claim| claim.wake());
        state.message |= state.waiting.is_empty();
    }

    /// A claim that may have been woken has left without a look at the lock: another one looks.
    pub(crate) fn pass_on(&self, name: &str) {
        self.receive(name, News::Message(""), false);
    }

    /// Enters a claim behind those that wait already, which has found that the lock is free after the pause at the latest. Also
    /// says whether it is the first to use the channel; then the caller starts a task that ends the subscription some time.
    pub(crate) fn enter(&self, name: &str, id: ClaimId, pause: Duration) -> (Waiting, bool) {
        let claim = Arc::new(WaitingClaim { id, woken: AtomicBool::new(false), changed: Notify::new() });
        let mut map = self.map();
        let is_new = !map.contains_key(name);
        let channel = map.entry(name.to_owned()).or_insert_with(|| Channel::new(name));
        let channel = Arc::clone(channel);
        let mut state = channel.state();
        if std::mem::take(&mut state.message) {
            claim.wake();
        }
        state.waiting.push_back(Arc::clone(&claim));
        state.free_at = Instant::now() + pause;
        drop(state);
        (Waiting { channel, claim }, is_new)
    }

    /// Ends the subscription to a channel if nobody waits there; says whether that is done.
    pub(crate) async fn end_unused(&self, name: &str, servers: &Servers) -> bool {
        let Some(channel) = self.map().get(name).cloned() else { return true };
        if !channel.state().waiting.is_empty() {
            return false;
        }
        // Who comes meanwhile waits for this, and subscribes again.
        let mut connection = channel.connection.lock().await;
        if let Some(connection) = connection.take() {
            let _ = servers.unsubscribe(&connection, name).await;
        }
        let mut map = self.map();
        let is_unused = channel.state().waiting.is_empty();
        if is_unused {
            map.remove(name);
        }
        is_unused
    }
}

/// A claim that waits for a message on a channel. Dropped, it passes on what it has not used.
#[derive(Debug)]
pub(crate) struct Waiting {
    channel: Arc<Channel>,
    claim: Arc<WaitingClaim>,
}

impl Waiting {
    /// Subscribes to the channel. Says over which connection, and whether messages may have been missed.
    pub(crate) async fn subscribe(&self, servers: &Servers) -> Result<(Arc<Connection>, bool)> {
        self.channel.subscribe(servers).await
    }

    /// Resolves when this claim should try to take the lock: a message has come, the connection is lost, or the lock may have
    /// expired. Of all that wait here, the first looks after the last. If it gets the lock, that is for `ttl` at least.
    pub(crate) async fn message(&self, connection: &Connection, ttl: Duration) {
        while !self.claim.woken.swap(false, Relaxed) {
            let (is_first, free_at) = {
                let state = self.channel.state();
                (state.waiting.front().is_some_and(|first| first.id == self.claim.id), state.free_at)
            };
            let due = if is_first { free_at } else { free_at + OVERDUE };
            if due <= Instant::now() {
                break;
            }
            tokio::select! {
                () = self.claim.changed.notified() => {}
                // Each wait has a limit of its own, and must know whether the server is away.
                () = connection.closed() => break,
                () = Clock::Boot.sleep(due.saturating_duration_since(Instant::now())) => {}
            }
        }
        self.channel.state().free_at = Instant::now() + ttl;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        let was_first = state.waiting.front().is_some_and(|first| first.id == self.claim.id);
        state.waiting.retain(|claim| claim.id != self.claim.id);
        let woken = self.claim.woken.load(Relaxed);
        match state.waiting.front() {
            Some(next) if woken => next.wake(),
            // It is the first now.
            Some(next) if was_first => next.changed.notify_one(),
            Some(_) => {}
            None => state.message |= woken,
        }
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
