//! Rust libraries behind one interface, lockkeeper among them; each is used as its documentation shows.

mod distributed;
mod etcd;
mod file;
mod ours;
mod postgres;
mod rslock;
mod zookeeper;

use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use std::sync::Arc;
use std::time::Duration;

/// A connection to the engine.
pub trait Client: Send + Sync {
    /// Waits for the lock; dropping the future gives up.
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>>;
}

/// A lock that is held.
pub trait Held: Send + Sync {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a;

    /// A number that grows with every grant.
    fn token(&self) -> Option<u64> {
        None
    }

    /// The library's own check; none if it has no such thing.
    fn check(&self) -> BoxFuture<'_, Option<bool>> {
        Box::pin(std::future::ready(None))
    }

    /// Resolves when the library says that the lock is lost; never if it says nothing.
    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Where a library is to lock, and how long its locks are to outlive a dead holder.
#[derive(Debug, Clone)]
pub struct Place {
    /// The engine's, as lockkeeper takes it.
    pub url: String,
    pub ttl: Duration,
}

impl Place {
    /// The server's host and port.
    pub fn host(&self) -> &str {
        let rest = self.url.split("://").nth(1).unwrap_or_default();
        let rest = rest.split(['/', '?']).next().unwrap_or_default();
        rest.rsplit('@').next().unwrap_or_default()
    }
}

/// Connects by the library of this name.
pub async fn connect(library: &str, place: &Place) -> Result<Arc<dyn Client>> {
    match library {
        "lockkeeper" => ours::connect(place, false).await,
        "lockkeeper-write" => ours::connect(place, true).await,
        "file" => file::connect(place),
        "rslock" => rslock::connect(place, false),
        "rslock-using" => rslock::connect(place, true),
        "distributed-lock-redis" => distributed::redis(place).await,
        "distributed-lock-postgres" => distributed::postgres(place).await,
        "zookeeper-client" => zookeeper::connect(place).await,
        "etcd-client" => etcd::connect(place).await,
        "sqlx" => postgres::connect(place).await,
        _ => Err(format!("unknown library {library}").into()),
    }
}
