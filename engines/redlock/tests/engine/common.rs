//! What the tests of this engine share: keepers on several servers.

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Keeper, Result};
use lockkeeper_testkit::{Redis, Server};
use std::time::Duration;

pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) fn url(nodes: &[Redis], parameters: &str) -> String {
    let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redlock://{}?{parameters}", hosts.join(","))
}

pub(crate) async fn keeper(nodes: &[Redis], ttl: Duration, parameters: &str) -> Result<Keeper> {
    let engine = lockkeeper_redlock::connect(Address::parse(&url(nodes, parameters))?, ttl).await?;
    Keeper::builder().ttl(ttl).namespace("").build(engine)
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// A connection without the engine.
pub(crate) async fn direct(node: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", node.port())).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}
