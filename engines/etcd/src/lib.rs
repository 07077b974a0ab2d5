//! Locks on etcd: claims on one lease, in the order of their creation.
#![doc = ""]
#![doc = include_str!("../README.md")]

mod claims;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod generated;
mod join;
mod keys;
mod lease;
mod leases;
mod look;
mod prefix;
mod queue;
mod requests;
mod turns;
mod value;
mod view;
mod wake;

use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine};
use lockkeeper_core::{Abilities, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[Abilities::new("etcd", "queue", "etcd://host1:2379,host2:2379")
    .queue()
    .push()
    .detach()
    .ask()
    .min_ttl(config::MIN_TTL)];

/// Connects to the cluster that the address names and takes a lease that fits the TTL.
///
/// Cancel safety: dropping the future closes what was opened; a lease that was just granted expires by itself.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad address or a TTL of less than 2 s,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when no member replies or the login is refused.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let mut config = config::Config::new(address, ttl)?;
    let prefix = std::mem::take(&mut config.prefix);
    let queue = queue::Etcd::connect(config).await?;
    if prefix.is_empty() {
        return Ok(Arc::new(QueueEngine(queue)));
    }
    Ok(Arc::new(QueueEngine(prefix::Prefixed { prefix, queue })))
}
