//! What sees that connections are alive: probes at grants and renewals, and the background tasks of a keeper.

use super::{Connection, Connections, Inner, lock, open};
use crate::holds::Hold;
use lockkeeper_core::engine::{Claim, Clock, LockName, Moment};
use lockkeeper_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// What a probe found.
pub(super) enum Probed {
    Alive,
    Dead,
    /// No reply yet: the session may be alive.
    Silent,
}

impl<S: Connections> Inner<S> {
    /// Sends a request over the connection, to see whether it is still the same session.
    pub(super) async fn probe(&self, connection: &Arc<S::Connection>, limit: Duration) -> Probed {
        let reply = Clock::Boot.timeout(limit, connection.probe()).await;
        match reply {
            Ok(Ok(())) if open(&connection) => Probed::Alive,
            Err(_) if open(&connection) => Probed::Silent,
            _ => Probed::Dead,
        }
    }

    /// Cuts the connection unless its session is known to be alive.
    async fn cut_unless_alive(&self, connection: Arc<S::Connection>) {
        if !matches!(self.probe(&connection, self.limits.request).await, Probed::Alive) {
            connection.cut();
        }
    }

    /// Makes sure that the server has the session of a claim that holds, from now on for the claim's TTL: its grant may
    /// be as old as the wait that it came from.
    pub(super) async fn confirm(&self, claim: &Claim, connection: &Arc<S::Connection>) -> Result<()> {
        if matches!(self.probe(connection, self.limits.request).await, Probed::Alive) {
            return Ok(());
        }
        connection.cut();
        self.end(&claim.name, claim.id).await;
        let engine = self.source.abilities().engine;
        Err(Error::temporary(engine, "take the lock", "the connection that was granted it is lost"))
    }

    /// Probes every connection that holds something.
    async fn probe_all(&self, holds: &[(LockName, Hold<S::Connection>)]) {
        let mut asked: Vec<Arc<S::Connection>> = Vec::new();
        for connection in holds
            .iter()
            .filter(|(_, hold)| hold.token.is_some())
            .filter_map(|(_, hold)| hold.connection.as_ref())
        {
            if !asked.iter().any(|known| Arc::ptr_eq(known, connection)) {
                asked.push(Arc::clone(connection));
            }
        }
        let probes = asked.into_iter().map(|connection| self.cut_unless_alive(connection));
        futures_util::future::join_all(probes).await;
    }
}

/// Ends holds that their keeper has not renewed: a keeper that hangs must not hold for ever.
pub(super) async fn expire<S: Connections>(inner: std::sync::Weak<Inner<S>>) {
    const TICK: Duration = Duration::from_millis(250);
    loop {
        let Some(inner) = inner.upgrade() else { return };
        if inner.closed.load(SeqCst) {
            return;
        }
        let now = Clock::Boot.now();
        let all = inner.holds.all();
        let mut next = now.plus(TICK);
        for (name, hold) in all.iter().filter(|(_, hold)| hold.token.is_some()) {
            if hold.expires_at <= now {
                inner.end(name, hold.id).await;
            } else {
                next = next.min(hold.expires_at);
            }
        }
        if !S::Connection::NOTICES_LOSS {
            inner.probe_all(&all).await;
        }
        drop(inner);
        Clock::Boot.sleep(next.since(now)).await;
    }
}

/// Keeps shared connections in use, and closes others that nobody uses, before the server ends them as idle.
pub(super) async fn tend<S: Connections>(inner: std::sync::Weak<Inner<S>>, every: Duration) {
    loop {
        Clock::Boot.sleep(every).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.closed.load(SeqCst) {
            return;
        }
        let unused_since = Clock::Boot.now().minus(inner.limits.takeover / 2);
        let unused = |(_, since): &mut (_, Moment)| *since < unused_since;
        let unused: Vec<_> = lock(&inner.idle).extract_if(.., unused).collect();
        unused.iter().for_each(|(connection, _)| connection.cut());
        let shared: Vec<_> = lock(&inner.shared).iter().filter(|it| !it.is_busy()).cloned().collect();
        let probes = shared.iter().map(|connection| inner.probe(connection, inner.limits.renewal));
        futures_util::future::join_all(probes).await;
    }
}
