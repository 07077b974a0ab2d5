//! zookeeper-client's lock, in Curator's layout.

use super::{Client, Held, Place};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use std::sync::Arc;
use zookeeper_client as zk;

struct Session(zk::Client);

/// The lock's client is dropped with it: its release is a delete in the background, which nobody can wait for.
struct Lock<'c>(#[expect(dead_code, reason = "its drop releases")] zk::LockClient<'c>);

pub async fn connect(place: &Place) -> Result<Arc<dyn Client>> {
    let session = zk::Client::connector().with_session_timeout(place.ttl).connect(place.host()).await?;
    Ok(Arc::new(Session(session)))
}

impl Client for Session {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let directory = format!("/{name}");
            let prefix = zk::LockPrefix::new_curator(&directory, "lock-")?;
            let options = zk::LockOptions::new(zk::Acls::anyone_all())
                .with_ancestor_options(zk::CreateMode::Container.with_acls(zk::Acls::anyone_all()))?;
            let lock = self.0.lock(prefix, b"", options).await?;
            Ok(Box::new(Lock(lock)) as Box<dyn Held + 'a>)
        })
    }
}

impl Held for Lock<'_> {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(std::future::ready(Ok(())))
    }
}
