//! etcd-client's Lock and Unlock calls, with a lease that its user keeps alive.

use super::{Client, Held, Place};
use etcd_client::{Client as Connection, LockOptions};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

struct Leased {
    connection: Connection,
    lease: i64,
    _renewals: AbortOnDropHandle<()>,
}

pub async fn connect(place: &Place) -> Result<Arc<dyn Client>> {
    let mut connection = Connection::connect([place.host()], None).await?;
    let seconds = i64::try_from(place.ttl.as_secs())?.max(1);
    let lease = connection.lease_grant(seconds, None).await?.id();
    let (mut keeper, mut replies) = connection.lease_keep_alive(lease).await?;
    let pause = Duration::from_secs(1).min(place.ttl / 3);
    let renewals = tokio::spawn(async move {
        while keeper.keep_alive().await.is_ok() && replies.message().await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    });
    Ok(Arc::new(Leased { connection, lease, _renewals: AbortOnDropHandle::new(renewals) }))
}

impl Client for Leased {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let options = LockOptions::new().with_lease(self.lease);
            let key = connection.lock(name, Some(options)).await?.key().to_vec();
            Ok(Box::new(Key { connection, key }) as Box<dyn Held + 'a>)
        })
    }
}

struct Key {
    connection: Connection,
    key: Vec<u8>,
}

impl Held for Key {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let Self { mut connection, key } = *self;
            connection.unlock(key).await?;
            Ok(())
        })
    }
}
