//! RedLock: a lock on a majority of independent Redis servers, with fencing tokens that a majority has agreed on.

mod ballot;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod model;
mod nodes;
mod redlock;
mod regain;
mod scripts;
mod view;

use crate::nodes::Nodes;
use crate::redlock::{Inner, RedLock};
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{ClaimId, Engine, RaceEngine};
use lockkeeper_core::{Abilities, Error, Result};
use lockkeeper_redis::parts::{ConnectOptions, Server, Subscription, server};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The name of the engine in messages.
const ENGINE: &str = "redlock";

/// What its one style can do.
pub const STYLES: &[Abilities] =
    &[Abilities::new(ENGINE, "plain", "redlock://host1,host2,host3").shared().push().detach().ask()];

/// Connects to the servers that the address names.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`] for a bad address, [`Error::Engine`] when no majority can be reached.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let Settings { servers, options, limit, restart_delay } = read(address, ttl)?;
    let channel = format!("lockkeeper:{}", ClaimId::random());
    let lock: Arc<OnceLock<Weak<Inner>>> = Arc::default();
    let (receiver, missing) = (Arc::clone(&lock), Arc::clone(&lock));
    let message = move |message: &str| {
        if let Some(lock) = receiver.get().and_then(Weak::upgrade) {
            lock.receive(message);
        }
    };
    let reconnected = move || {
        if let Some(lock) = missing.get().and_then(Weak::upgrade) {
            lock.pollers.poll_now();
        }
    };
    let subscription = Arc::new(Subscription::to(channel.clone(), message));
    let nodes = Nodes::open(servers, &options, limit, restart_delay, &subscription, reconnected).await?;
    let inner = Arc::new(Inner::new(nodes, channel));
    let _ = lock.set(Arc::downgrade(&inner));
    Ok(Arc::new(RaceEngine(RedLock(inner))))
}

/// What the URL says.
struct Settings {
    servers: Vec<Server>,
    options: ConnectOptions,
    /// How long one server may take for a reply.
    limit: Duration,
    restart_delay: Duration,
}

fn read(mut address: Address, ttl: Duration) -> Result<Settings> {
    address.take_style(&["plain"])?;
    let limit = address.take_duration("node_timeout")?.unwrap_or_else(|| default_limit(ttl));
    let restart_delay = address.take_duration("restart_delay")?.unwrap_or(ttl);
    let options = ConnectOptions::read(&mut address)?;
    address.finish()?;
    let servers = read_servers(&address)?;
    if limit.is_zero() || limit > ttl / 4 {
        return Err(Error::invalid(format!(
            "node_timeout={limit:?} does not suit a TTL of {ttl:?}: give at most a quarter of it"
        )));
    }
    Ok(Settings { servers, options, limit, restart_delay })
}

/// Much smaller than the TTL: a silent node must not eat the time the lock is good for.
fn default_limit(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

/// An even number of servers is no better than one less, and fewer than three are no majority worth the name.
fn read_servers(address: &Address) -> Result<Vec<Server>> {
    let mut servers: Vec<Server> = address.hosts.iter().map(server).collect();
    let named = servers.len();
    servers.sort_unstable();
    servers.dedup();
    if servers.len() != named {
        return Err(Error::invalid("redlock: the same server is named twice"));
    }
    if named < 3 || named.is_multiple_of(2) {
        return Err(Error::invalid(format!(
            "redlock needs an odd number of independent servers, at least 3; {named} are named"
        )));
    }
    Ok(servers)
}
