//! Locks on ZooKeeper: claims are ephemeral nodes, named so that Curator and kazoo contend with them correctly.
//!
//! The page about this engine, its parameters and its limits is the README of this crate.

mod batch;
mod claims;
mod client;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod join;
mod jute;
mod keys;
mod leave;
mod plain;
mod protocol;
mod queue;
mod session;
mod shared;
mod view;
mod wake;

use config::{PLAIN, QUEUE, Settings};
use error::ENGINE;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine, RaceEngine};
use lockkeeper_core::{Abilities, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[
    Abilities::new(ENGINE, QUEUE, "zookeeper://host1,host2/chroot").queue().push().ask(),
    Abilities::new(ENGINE, PLAIN, "zookeeper://host1,host2/chroot?style=plain").push().ask(),
];

/// Opens a session with the ensemble that the address names.
///
/// The TTL is requested when the session is opened; the server may give more or less, see [`Engine::ttl`].
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad address,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when no server replies or it refuses us.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let settings = Arc::new(Settings::from_address(address, ttl)?);
    let style = settings.style;
    let sessions = session::Sessions::open(settings).await.map_err(|error| error.into_error("connect"))?;
    Ok(if style == PLAIN {
        Arc::new(RaceEngine(plain::ZooKeeperPlain::new(sessions)))
    } else {
        Arc::new(QueueEngine(queue::ZooKeeperQueue::new(sessions)))
    })
}
