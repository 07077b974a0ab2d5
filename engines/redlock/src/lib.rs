//! RedLock: a lock on a majority of independent Redis servers, with fencing tokens that a majority has agreed on.

mod ballot;
#[cfg(test)]
mod model;
mod nodes;
mod redlock;
mod scripts;
mod view;

use crate::nodes::Nodes;
use crate::redlock::{RedLock, Shared, Waiting};
use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, ClaimId, CrashFrees, Engine, Error, MIN_TTL, RaceEngine, Result};
use lockkeeper_redis::parts::{Ears, Greeting, HolderLine, Lookers, Spot, spot};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The name of the engine in messages.
const ENGINE: &str = "redlock";

/// What its one style can do.
pub const STYLES: &[Abilities] = &[Abilities {
    engine: ENGINE,
    style: "plain",
    url: "redlock://host1,host2,host3",
    fair: false,
    shared: true,
    permits: false,
    downgrade: false,
    push: true,
    across_processes: true,
    across_machines: true,
    token_survives_restart: true,
    crash_frees: CrashFrees::WithinTtl,
    min_ttl: MIN_TTL,
}];

/// Connects to the servers that the address names.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`] for an address that says nonsense, [`Error::Engine`] when no majority can be reached.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    address.take_style(&["plain"])?;
    let time_limit = address.take_duration("node_timeout")?.unwrap_or_else(|| default_time_limit(ttl));
    let restart_delay = address.take_duration("restart_delay")?.unwrap_or(ttl);
    let greeting = Greeting::read(&mut address)?;
    address.finish()?;
    let spots = read_spots(&address)?;
    if time_limit.is_zero() || time_limit > ttl / 4 {
        return Err(Error::invalid(format!(
            "node_timeout={time_limit:?} does not suit a TTL of {ttl:?}: give at most a quarter of it"
        )));
    }

    let channel = format!("lockkeeper:{}", ClaimId::random());
    let behind: Arc<OnceLock<Weak<RedLock>>> = Arc::default();
    let (hearing, missing) = (Arc::clone(&behind), Arc::clone(&behind));
    let ears = Arc::new(Ears {
        channel: channel.clone(),
        heard: Box::new(move |message| {
            if let Some(lock) = hearing.get().and_then(Weak::upgrade) {
                lock.hear(message);
            }
        }),
        back: Box::new(move || {
            if let Some(lock) = missing.get().and_then(Weak::upgrade) {
                lock.lookers.look_now();
            }
        }),
    });
    let nodes = Nodes::open(spots, &greeting, time_limit, restart_delay, &ears).await?;
    let lock = Arc::new(RedLock {
        nodes,
        channel,
        waiting: Waiting::default(),
        lookers: Lookers::default(),
        line: HolderLine::default(),
        attempts: AtomicU64::new(0),
    });
    let _ = behind.set(Arc::downgrade(&lock));
    Ok(Arc::new(RaceEngine(Shared(lock))))
}

/// Much smaller than the TTL: a silent node must not eat the time the lock is good for.
fn default_time_limit(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

/// An even number of servers is no better than one less, and fewer than three are no majority worth the name.
fn read_spots(address: &Address) -> Result<Vec<Spot>> {
    let mut spots: Vec<Spot> = address.hosts.iter().map(spot).collect();
    let named = spots.len();
    spots.sort_unstable();
    spots.dedup();
    if spots.len() != named {
        return Err(Error::invalid("redlock: the same server is named twice"));
    }
    if named < 3 || named.is_multiple_of(2) {
        return Err(Error::invalid(format!(
            "redlock needs an odd number of independent servers, at least 3; {named} are named"
        )));
    }
    Ok(spots)
}
