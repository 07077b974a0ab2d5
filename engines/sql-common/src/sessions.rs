//! Session locks as a race: held by a connection, freed by its end, waited for in the server.

mod upkeep;
mod waiting;

use crate::holds::{Holds, Reserved, Role};
use crate::limits::Limits;
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, Lifeline, LockName, Moment, Race, Renewal,
    background,
};
use lockkeeper_core::{Abilities, Error, LockView, Result, Token};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use upkeep::{Probed, expire, tend};
use waiting::{Settled, wait};

/// One dedicated connection. It limits the time of each of its requests itself, but for the wait.
pub trait Connection: Send + Sync + 'static {
    /// Whether its lifeline ends by itself when it breaks; if not, it is probed several times a second.
    const NOTICES_LOSS: bool;

    /// Takes the lock if it is free; `None` if somebody else has it.
    fn take(&self, claim: &Claim) -> impl Future<Output = Result<Option<Token>>> + Send;

    /// Takes the lock when it becomes free. Nothing else is sent on the connection meanwhile.
    fn wait(&self, claim: &Claim) -> impl Future<Output = Result<Token>> + Send;

    /// Frees the lock, or fails within the time of a request.
    fn free(&self, name: &LockName) -> impl Future<Output = Result<()>> + Send;

    /// Sees that it is still the same session.
    fn probe(&self) -> impl Future<Output = Result<()>> + Send;

    /// Whether another request would have to wait for one that is under way.
    fn is_busy(&self) -> bool;

    /// What ends when it breaks.
    fn lifeline(&self) -> &Lifeline;

    /// Cuts it; what it holds is free.
    fn cut(&self);
}

/// Where connections come from, and what is known beyond this process.
pub trait Connections: Send + Sync + 'static {
    /// The kind of connection.
    type Connection: Connection;

    /// Over how many connections the locks are spread, where one connection can hold many of them; 0 where it
    /// cannot.
    const SHARED: usize;

    /// What the style can do.
    fn abilities(&self) -> Abilities;

    /// Opens a connection.
    fn open(&self) -> impl Future<Output = Result<Arc<Self::Connection>>> + Send;

    /// Ends the wait that goes on in the server on this connection.
    fn interrupt(&self, connection: &Self::Connection) -> impl Future<Output = ()> + Send;

    /// The locks held, of everybody.
    fn list(&self, prefix: &str, at_most: usize) -> impl Future<Output = Result<Vec<LockView>>> + Send;

    /// Ends somebody's hold, of whatever process.
    fn evict(&self, name: &LockName, id: ClaimId) -> impl Future<Output = Result<bool>> + Send;

    /// Notes that somebody asks for a hold of another process to be released; `false` if nobody has it.
    fn ask(&self, name: &LockName, id: ClaimId) -> impl Future<Output = Result<bool>> + Send;

    /// Which of these holds of ours are asked for, where the server keeps that; nothing where a message brings it.
    fn asked(&self, ids: &[ClaimId]) -> impl Future<Output = Result<Vec<ClaimId>>> + Send;

    /// Ends what it has opened for itself.
    fn close(&self);
}

/// A wait of less than this part of the TTL leaves its hold enough time until the first renewal.
const SHORT_WAIT: u32 = 4;

/// Locks held by connections.
pub struct Sessions<S: Connections>(Arc<Inner<S>>);

struct Inner<S: Connections> {
    source: Arc<S>,
    holds: Arc<Holds<S::Connection>>,
    limits: Limits,
    /// Those that hold many locks, in a style that can.
    shared: Mutex<Vec<Arc<S::Connection>>>,
    opening: tokio::sync::Mutex<()>,
    /// Those that nobody uses, and since when.
    idle: Mutex<Vec<(Arc<S::Connection>, Moment)>>,
    /// Those that one claim uses alone.
    checked_out: Mutex<Vec<Arc<S::Connection>>>,
    /// One permit for each connection that may still be checked out.
    room: Semaphore,
    at_most: usize,
    /// How many waiters found no connection to wait on, and so poll.
    pacing: AtomicUsize,
    /// Waits in the server that are not settled yet, by the claim that waits.
    waits: Mutex<HashMap<ClaimId, Arc<tokio::sync::Mutex<()>>>>,
    closed: AtomicBool,
}

impl<S: Connections> Sessions<S> {
    /// With at most this number of connections, beside those that are shared.
    pub fn new(source: Arc<S>, holds: Arc<Holds<S::Connection>>, limits: Limits, at_most: usize) -> Self {
        let inner = Arc::new(Inner {
            source,
            holds,
            limits,
            shared: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
            checked_out: Mutex::default(),
            room: Semaphore::new(at_most),
            at_most,
            pacing: AtomicUsize::new(0),
            waits: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        background::handle().spawn(expire(Arc::downgrade(&inner)));
        background::handle().spawn(tend(Arc::downgrade(&inner), limits.look));
        Self(inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open<C: Connection>(connection: &&Arc<C>) -> bool {
    !connection.lifeline().has_ended()
}

impl<S: Connections> Inner<S> {
    /// The connection on which a claim is tried, if no shared one is open; `None` if all were in use for too long.
    async fn connection(self: &Arc<Self>, id: ClaimId) -> Result<Option<Arc<S::Connection>>> {
        if S::SHARED > 0 {
            // In the background: a caller that is not polled any more must not keep the others from opening one.
            let shared = background::handle().spawn(Arc::clone(self).shared(id)).await;
            let ended = |error| Error::temporary(self.source.abilities().engine, "connect", error);
            return shared.unwrap_or_else(|error| Err(ended(error))).map(Some);
        }
        if let Ok(room) = self.room.try_acquire() {
            return self.check_out(room).await.map(Some);
        }
        match Box::pin(Clock::Boot.timeout(self.limits.request, self.room.acquire())).await {
            Ok(Ok(room)) => self.check_out(room).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Finds or opens a connection for a claim that has reserved its lock.
    async fn connect(self: &Arc<Self>, claim: &Claim) -> Result<Arc<S::Connection>> {
        let connection = match self.connection(claim.id).await {
            Ok(Some(connection)) => connection,
            missing => {
                self.holds.remove(&claim.name, claim.id);
                return Err(missing.err().unwrap_or_else(|| self.no_room()));
            }
        };
        if self.holds.choose(claim, &connection) {
            return Ok(connection);
        }
        self.check_in(&connection);
        Err(claim.gone())
    }

    /// A shared connection: one that has nothing to do, or another one as long as there may be more.
    async fn shared(self: Arc<Self>, id: ClaimId) -> Result<Arc<S::Connection>> {
        let _one_at_a_time = self.opening.lock().await;
        if let Some(connection) = self.open_shared(id) {
            return Ok(connection);
        }
        let connection = self.source.open().await?;
        lock(&self.shared).push(Arc::clone(&connection));
        Ok(connection)
    }

    /// A shared connection that has nothing to do, or any one if there may be no more.
    fn open_shared(&self, id: ClaimId) -> Option<Arc<S::Connection>> {
        if S::SHARED == 0 {
            return None;
        }
        let mut shared = lock(&self.shared);
        shared.retain(|connection| open(&connection));
        let idle = shared.iter().find(|connection| !connection.is_busy());
        if idle.is_none() && shared.len() < S::SHARED {
            return None;
        }
        // At random, which the id is: each may be busy for long.
        let any = usize::try_from(id.0 % shared.len().max(1) as u128).unwrap_or(0);
        idle.or_else(|| shared.get(any)).cloned()
    }

    /// A connection for one claim alone. Its permit comes back when it is checked in.
    async fn check_out(&self, room: SemaphorePermit<'_>) -> Result<Arc<S::Connection>> {
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|(connection, _)| open(&connection));
            idle.pop()
        };
        let connection = match idle {
            Some((connection, _)) => connection,
            None => Box::pin(self.source.open()).await?,
        };
        room.forget();
        lock(&self.checked_out).push(Arc::clone(&connection));
        Ok(connection)
    }

    /// Gives a connection back. A shared one stays where it is.
    fn check_in(&self, connection: &Arc<S::Connection>) {
        {
            let mut checked_out = lock(&self.checked_out);
            let own = checked_out.iter().position(|known| Arc::ptr_eq(known, connection));
            let Some(own) = own else { return };
            checked_out.swap_remove(own);
        }
        if open(&connection) && !self.closed.load(SeqCst) {
            lock(&self.idle).push((Arc::clone(connection), Clock::Boot.now()));
        } else {
            connection.cut();
        }
        self.room.add_permits(1);
    }

    fn no_room(&self) -> Error {
        let why = format!(
            "all {} connections of this keeper hold or wait; allow more with ?connections=",
            self.at_most
        );
        Error::temporary(self.source.abilities().engine, "open another connection", why)
    }

    /// Frees a lock at the server; a connection that cannot is cut, which frees it, too.
    async fn free(&self, name: &LockName, connection: &Arc<S::Connection>) {
        if connection.free(name).await.is_err() {
            connection.cut();
        }
        self.check_in(connection);
    }

    /// Ends a hold: first at the server, then here. Says whether it was alive.
    async fn end(&self, name: &LockName, id: ClaimId) -> bool {
        let Some(ending) = self.holds.end(name, id).await else { return false };
        let mut alive = true;
        if let Some(connection) = &ending.connection {
            alive = open(&connection) && ending.is_held;
            connection.lifeline().untie(id);
            self.free(name, connection).await;
        }
        ending.done() && alive
    }

    /// Waits at the server for all waiters of this process.
    async fn represent(self: &Arc<Self>, claim: &Claim) -> Result<()> {
        let _stops = Representative(&self.holds, &claim.name);
        let Ok(room) = self.room.try_acquire() else { return self.pace().await };
        let connection = match self.check_out(room).await {
            Ok(connection) => connection,
            Err(error) if error.is_temporary() => return self.pace().await,
            Err(error) => return Err(error),
        };
        let (sender, receiver) = oneshot::channel();
        let settled = Settled::begin(self, claim.id).await;
        let from = Clock::Boot.now();
        background::handle().spawn(wait(Arc::clone(self), claim.clone(), connection, sender, settled));
        match receiver.await {
            Ok(Ok(mut taken)) => {
                if let Some((connection, token)) = taken.lock.take()
                    && !self.holds.enter_taken(claim, &connection, token, from)
                {
                    taken.lock = Some((connection, token));
                }
                Ok(())
            }
            Ok(Err(error)) if error.is_temporary() => self.pace().await,
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// Without a connection to wait on: all that pace together try ten times a second.
    async fn pace(&self) -> Result<()> {
        let pacing = self.pacing.fetch_add(1, SeqCst) + 1;
        let _counted = Counted(&self.pacing);
        let pause = Duration::from_millis(100).mul_f64(pacing as f64 * rand::random_range(0.5..1.5));
        Clock::Boot.sleep(pause).await;
        Ok(())
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
        for (_, hold) in self.holds.all() {
            if let Some(connection) = hold.connection {
                connection.cut();
            }
        }
        lock(&self.idle).drain(..).for_each(|(connection, _)| connection.cut());
        lock(&self.shared).drain(..).for_each(|connection| connection.cut());
        self.source.close();
    }
}

impl<S: Connections> Drop for Inner<S> {
    fn drop(&mut self) {
        self.close();
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

struct Representative<'a, C>(&'a Holds<C>, &'a LockName);

impl<C> Drop for Representative<'_, C> {
    fn drop(&mut self) {
        self.0.stop_representing(self.1);
    }
}

impl<S: Connections> Race for Sessions<S> {
    fn abilities(&self) -> Abilities {
        self.0.source.abilities()
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let inner = &self.0;
        let busy = Attempted::Busy { free_in: None };
        let shared = inner.open_shared(claim.id);
        match inner.holds.reserve(claim, shared.as_ref()) {
            Reserved::Busy => return Ok(busy),
            Reserved::Mine(connection, token, waited_from) => {
                let lifeline = connection.lifeline().clone();
                // Law 5: a short wait counts from its send, when the server had the session. The grant of a longer one is
                // confirmed, for it may be as old as the wait.
                return match waited_from {
                    Some(from) if Clock::Boot.now().since(from) < claim.ttl / SHORT_WAIT => {
                        Ok(Attempted::GrantedAsOf(Grant { token }, from, Some(lifeline)))
                    }
                    _ => {
                        Box::pin(inner.confirm(claim, &connection)).await?;
                        Ok(Attempted::GrantedOn(Grant { token }, lifeline))
                    }
                };
            }
            Reserved::Free => {}
        }
        let connection = match shared {
            Some(connection) => connection,
            None => inner.connect(claim).await?,
        };
        match connection.take(claim).await {
            Ok(Some(token)) => {
                let lifeline = connection.lifeline().clone();
                if !inner.holds.granted(claim, token) {
                    return Err(claim.gone());
                }
                Ok(Attempted::GrantedOn(Grant { token }, lifeline))
            }
            Ok(None) => {
                inner.holds.remove(&claim.name, claim.id);
                inner.check_in(&connection);
                Ok(busy)
            }
            Err(error) => {
                // Whether it was taken is not known, so it is freed.
                Box::pin(inner.free(&claim.name, &connection)).await;
                inner.holds.remove(&claim.name, claim.id);
                Err(error)
            }
        }
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        match self.0.holds.role(&claim.name) {
            Role::Listen(wake) => {
                let pause = self.0.limits.look.mul_f64(rand::random_range(1.0..2.0));
                let _ = Clock::Boot.timeout(pause, wake.notified()).await;
                Ok(())
            }
            Role::Represent => self.0.represent(claim).await,
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let inner = &self.0;
        let mut by_connection: Vec<(Arc<S::Connection>, Vec<ClaimId>)> = Vec::new();
        let mut known: HashMap<usize, usize> = HashMap::new();
        let mut dead = Vec::new();
        for Renewal { claim, ttl, .. } in renewals {
            let Some(connection) = inner.holds.renew(claim, *ttl) else {
                dead.push(claim.id);
                continue;
            };
            let index = *known.entry(Arc::as_ptr(&connection).addr()).or_insert(by_connection.len());
            if index == by_connection.len() {
                by_connection.push((connection, Vec::new()));
            }
            by_connection[index].1.push(claim.id);
        }
        let probes =
            by_connection.iter().map(|(connection, _)| inner.probe(connection, inner.limits.renewal));
        let ids: Vec<ClaimId> = renewals.iter().map(|renewal| renewal.claim.id).collect();
        let asked = Clock::Boot.timeout(inner.limits.renewal, inner.source.asked(&ids));
        let (probed, asked) = tokio::join!(futures_util::future::join_all(probes), asked);
        // A request that is not seen now is seen by the next renewal.
        let mut asked = asked.ok().and_then(Result::ok).unwrap_or_default();
        let here = renewals.iter().filter(|renewal| inner.holds.is_asked(&renewal.claim));
        asked.extend(here.map(|renewal| renewal.claim.id));
        let is_any_alive = probed.iter().any(|probed| matches!(probed, Probed::Alive));
        for ((connection, ids), probed) in by_connection.into_iter().zip(probed) {
            match probed {
                Probed::Alive => continue,
                // The network may come back before the claims' deadline.
                Probed::Silent if !is_any_alive => {
                    let engine = self.abilities().engine;
                    return Err(Error::temporary(engine, "renew", "no reply from the server"));
                }
                // This one alone is silent: it must not keep the others from being renewed.
                Probed::Silent | Probed::Dead => connection.cut(),
            }
            dead.extend(ids);
        }
        Ok(Kept::new(dead).asked(asked))
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        // One who gave up waiting must not get the lock after all, or the next one finds a ghost.
        let wait = lock(&self.0.waits).get(&claim.id).cloned();
        if let Some(wait) = wait {
            let _ = Box::pin(Clock::Boot.timeout(self.0.limits.request, wait.lock())).await;
        }
        let was_there = self.0.end(&claim.name, claim.id).await;
        Ok(if was_there { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.0.source.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        if self.0.holds.contains(name, id) {
            return Ok(self.0.end(name, id).await);
        }
        self.0.source.evict(name, id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        if self.0.holds.ask(name, id) {
            return Ok(true);
        }
        self.0.source.ask(name, id).await
    }

    async fn close(&self) {
        self.0.close();
    }
}
