//! What the tests of this engine share: keepers on real servers, and what the server counts.

use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::Engine;
use lockkeeper_core::{Keeper, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) async fn engine(url: &str, ttl: Duration) -> Result<Arc<dyn Engine>> {
    lockkeeper_redis::connect(Address::parse(url)?, ttl).await
}

pub(crate) async fn try_keeper(url: &str, ttl: Duration) -> Result<Keeper> {
    Keeper::builder().ttl(ttl).build(engine(url, ttl).await?)
}

pub(crate) async fn keeper(url: &str) -> Keeper {
    try_keeper(url, Duration::from_secs(10)).await.unwrap()
}

pub(crate) async fn bare_keeper(url: &str) -> Keeper {
    let ttl = Duration::from_secs(10);
    Keeper::builder().ttl(ttl).namespace("").build(engine(url, ttl).await.unwrap()).unwrap()
}

/// Within 30 s, or the test fails: for what must happen, but not at a certain moment.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A connection of the test's own.
pub(crate) async fn direct(port: u16) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// How often each command was called, by INFO commandstats; calls from within scripts are counted there, too.
pub(crate) async fn calls(connection: &mut redis::aio::MultiplexedConnection) -> HashMap<String, u64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    info.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        })
        .collect()
}

/// How many waiters a lock has.
pub(crate) async fn waiters(keeper: &Keeper, name: &str) -> usize {
    keeper.inspect(name).await.unwrap().first().map_or(0, |lock| lock.waiters().count())
}
