//! Locks on Redis: a fair queue, a plain lock or the locks of Redisson, on one server, behind Sentinel or in a Cluster.

mod cluster;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod plain;
mod poller;
mod queue;
mod redisson;
mod sentinel;
mod servers;
mod view;
mod wake;

/// The parts that other engines on Redis servers are built of.
pub mod parts {
    pub use crate::config::ConnectOptions;
    pub use crate::connection::{Call, Connection, Script, Server, milliseconds};
    pub use crate::error::error;
    pub use crate::keys::PlainKeys;
    pub use crate::poller::{Pace, Pollers, Wakes};
    pub use crate::servers::server;
    pub use crate::view::{HolderText, foreign_bytes, foreign_text, integer, text};
    pub use crate::wake::{Subscribed, Subscription};
}

use crate::config::{Config, ENGINE};
use crate::plain::RedisPlain;
use crate::queue::RedisQueue;
use crate::redisson::Redisson;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine, RaceEngine};
use lockkeeper_core::{Abilities, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[
    Abilities::new(ENGINE, "queue", "redis://host:6379").queue().push().detach().ask(),
    Abilities::new(ENGINE, "plain", "redis://host:6379?style=plain").push().detach().ask(),
    Abilities::new(ENGINE, "redisson", "redis://host:6379?style=redisson&namespace=").push().detach().ask(),
    Abilities::new(ENGINE, "redisson-rw", "redis://host:6379?style=redisson-rw&namespace=")
        .shared()
        .downgrade()
        .push()
        .detach()
        .ask(),
];

/// Connects to the servers that the address names.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad address,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when a server cannot be reached, is not a master or is too old.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let config = Config::read(address)?;
    match config.style {
        "plain" => Ok(Arc::new(RaceEngine(RedisPlain::connect(&config, ttl).await?))),
        "redisson" | "redisson-rw" => Ok(Arc::new(RaceEngine(Redisson::connect(&config, ttl).await?))),
        _ => Ok(Arc::new(QueueEngine(RedisQueue::connect(&config, ttl).await?))),
    }
}
