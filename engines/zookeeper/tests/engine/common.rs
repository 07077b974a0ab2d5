//! One server for all tests of a process, and keepers on it.

#![allow(dead_code, unreachable_pub)]

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Keeper, Result};
use lockkeeper_testkit::ZooKeeper;
use std::sync::LazyLock;
use std::time::Duration;

/// How long anything may take before a test calls it dead.
pub const LIMIT: Duration = Duration::from_secs(30);

static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

pub fn server() -> &'static ZooKeeper {
    &SERVER
}

/// A name no other test uses.
pub fn unique(stem: &str) -> String {
    format!("{stem}-{}", lockkeeper_core::engine::ClaimId::random())
}

pub async fn connect(url: &str, ttl: Duration) -> Result<Keeper> {
    let engine = lockkeeper_zookeeper::connect(Address::parse(url)?, ttl).await?;
    Keeper::builder().ttl(ttl).namespace("").build(engine)
}

/// A keeper on the shared server, with bare names.
pub async fn keeper() -> Keeper {
    keeper_with("").await
}

/// A keeper on the shared server with these parameters.
pub async fn keeper_with(query: &str) -> Keeper {
    connect(&format!("{}{query}", server().url()), Duration::from_secs(4)).await.expect("a keeper")
}
