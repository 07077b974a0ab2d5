//! distributed-lock, which has the same interface on every engine.

use super::{Client, Held, Place};
use distributed_lock::{DistributedLock, LockHandle, LockProvider, PostgresLockProvider, RedisLockProvider};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any run. Without a time it does not wait on Redis.
const PATIENCE: Duration = Duration::from_secs(60);

struct Distributed<P>(P);

pub async fn redis(place: &Place) -> Result<Arc<dyn Client>> {
    let builder = RedisLockProvider::builder().url(format!("redis://{}", place.host())).expiry(place.ttl);
    let builder = builder.min_validity(place.ttl * 9 / 10);
    Ok(Arc::new(Distributed(builder.extension_cadence(place.ttl / 3).build().await?)))
}

pub async fn postgres(place: &Place) -> Result<Arc<dyn Client>> {
    let builder = PostgresLockProvider::builder().connection_string(&place.url);
    Ok(Arc::new(Distributed(builder.keepalive_cadence(place.ttl / 3).build().await?)))
}

impl<P> Client for Distributed<P>
where
    P: LockProvider + Send + Sync,
    P::Lock: Send + Sync,
    <P::Lock as DistributedLock>::Handle: Send + Sync + 'static,
{
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let handle = self.0.create_lock(name).acquire(Some(PATIENCE)).await?;
            Ok(Box::new(Handle(handle)) as Box<dyn Held + 'a>)
        })
    }
}

struct Handle<H>(H);

impl<H: LockHandle + Send + Sync + 'static> Held for Handle<H> {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.0.release().await?) })
    }

    fn check(&self) -> BoxFuture<'_, Option<bool>> {
        Box::pin(std::future::ready(Some(!*self.0.lost_token().borrow())))
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let mut lost = self.0.lost_token().clone();
        Box::pin(async move {
            // Where its sender is gone, it says nothing.
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
