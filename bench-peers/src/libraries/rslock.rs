//! rslock: `acquire` and `release`, or `using`, which renews and gives up the routine when it cannot.

use super::{Client, Held, Place};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use rslock::{LockGuard, LockManager};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

struct Rslock {
    manager: LockManager,
    ttl: Duration,
    renews: bool,
}

pub fn connect(place: &Place, renews: bool) -> Result<Arc<dyn Client>> {
    let manager = LockManager::new(vec![format!("redis://{}", place.host())]);
    Ok(Arc::new(Rslock { manager, ttl: place.ttl, renews }))
}

impl Client for Rslock {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            if self.renews {
                return self.using(name).await;
            }
            let guard = self.manager.acquire(name.as_bytes(), self.ttl).await?;
            Ok(Box::new(Acquired(guard)) as Box<dyn Held + 'a>)
        })
    }
}

impl Rslock {
    async fn using(&self, name: &str) -> Result<Box<dyn Held + '_>> {
        let (entered, enters) = oneshot::channel();
        let (end, ends) = oneshot::channel::<()>();
        let (manager, name, ttl) = (self.manager.clone(), name.to_owned(), self.ttl);
        let lost = CancellationToken::new();
        let told = lost.clone();
        let task = tokio::spawn(async move {
            let routine = async move || {
                let _ = entered.send(());
                let _ = ends.await;
            };
            if manager.using(name.as_bytes(), ttl, routine).await.is_err() {
                told.cancel();
            }
        });
        // Dropped with this future, as a user's own call would be.
        let task = AbortOnDropHandle::new(task);
        enters.await?;
        Ok(Box::new(Using { end, task, lost }))
    }
}

struct Acquired(LockGuard);

impl Held for Acquired {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            self.0.release().await;
            Ok(())
        })
    }
}

/// A routine that runs until the lock is to be released.
struct Using {
    end: oneshot::Sender<()>,
    task: AbortOnDropHandle<()>,
    lost: CancellationToken,
}

impl Held for Using {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let _ = self.end.send(());
            Ok(self.task.await?)
        })
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.lost.clone().cancelled_owned())
    }
}
