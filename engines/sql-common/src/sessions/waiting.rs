//! One wait for a session lock: in the server, and on the background runtime for a waiter that may go away.

use super::{Connection, Connections, Inner, lock};
use lockkeeper_core::engine::{Claim, ClaimId, Clock, LockName, background};
use lockkeeper_core::{Error, Result, Token};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A lock that was waited for and that nobody has claimed yet. Dropped, it is freed.
pub(super) struct Taken<S: Connections> {
    pub(super) inner: Arc<Inner<S>>,
    pub(super) name: LockName,
    pub(super) lock: Option<(Arc<S::Connection>, Token)>,
}

impl<S: Connections> Drop for Taken<S> {
    fn drop(&mut self) {
        if let Some((connection, _)) = self.lock.take() {
            let (inner, name) = (Arc::clone(&self.inner), self.name.clone());
            background::handle().spawn(async move { inner.free(&name, &connection).await });
        }
    }
}

/// Alive as long as a wait in the server may still get the lock.
pub(super) struct Settled<S: Connections> {
    inner: Arc<Inner<S>>,
    id: ClaimId,
    _held: tokio::sync::OwnedMutexGuard<()>,
}

impl<S: Connections> Settled<S> {
    pub(super) async fn begin(inner: &Arc<Inner<S>>, id: ClaimId) -> Self {
        let wait: Arc<tokio::sync::Mutex<()>> = Arc::default();
        let held = Arc::clone(&wait).lock_owned().await;
        lock(&inner.waits).insert(id, wait);
        Self { inner: Arc::clone(inner), id, _held: held }
    }
}

impl<S: Connections> Drop for Settled<S> {
    fn drop(&mut self) {
        lock(&self.inner.waits).remove(&self.id);
    }
}

/// The wait itself, on the background runtime: when the waiter is gone, the wait is ended in the server.
pub(super) async fn wait<S: Connections>(
    inner: Arc<Inner<S>>,
    claim: Claim,
    connection: Arc<S::Connection>,
    mut waiter: oneshot::Sender<Result<Taken<S>>>,
    _settled: Settled<S>,
) {
    let outcome = {
        let waiting = connection.wait(&claim);
        tokio::pin!(waiting);
        tokio::select! {
            outcome = &mut waiting => outcome,
            () = waiter.closed() => {
                inner.source.interrupt(&connection).await;
                match Clock::Boot.timeout(inner.limits.request, &mut waiting).await {
                    Ok(outcome) => outcome,
                    Err(late) => Err(Error::temporary(inner.source.abilities().engine, "end a wait", late)),
                }
            }
        }
    };
    match outcome {
        Ok(token) => {
            let lock = Some((connection, token));
            let taken = Taken { inner: Arc::clone(&inner), name: claim.name.clone(), lock };
            if let Err(Ok(mut unwanted)) = waiter.send(Ok(taken))
                && let Some((connection, _)) = unwanted.lock.take()
            {
                inner.free(&claim.name, &connection).await;
            }
        }
        Err(error) => {
            // What became of the wait is not known for certain, so the connection is not used again.
            connection.cut();
            inner.check_in(&connection);
            let _ = waiter.send(Err(error));
        }
    }
}
