//! Raw floors: the requests of a lock and its release on the engine's own driver, with no lockkeeper code.

mod file;
mod redis;
mod sqlite;
mod zookeeper;

use crate::Result;
use crate::measure::{Latencies, Pace};
use futures_util::future::BoxFuture;
use lockkeeper::address::Address;
use std::sync::Arc;
use std::time::Instant;

/// Something that locks and releases; the same loops measure floors and keepers.
pub(crate) trait Pairs: Send + Sync {
    /// One lock and release of the lock with this number, which nobody else uses.
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>>;
}

/// The floor of an engine and style.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Floor {
    File,
    Sqlite,
    Redis,
    ZooKeeper,
}

impl Floor {
    /// The floor of a style, where one is known.
    pub(crate) fn of(engine: &str, _style: &str) -> Option<Self> {
        match engine {
            "file" => Some(Self::File),
            "sqlite" => Some(Self::Sqlite),
            "redis" => Some(Self::Redis),
            "zookeeper" => Some(Self::ZooKeeper),
            _ => None,
        }
    }

    /// What it does.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "raw open+flock+close",
            Self::Sqlite => "raw INSERT, DELETE",
            Self::Redis => "raw SET NX PX+EVALSHA",
            Self::ZooKeeper => "raw create+delete",
        }
    }

    /// Connects to the same server as the engine at this URL.
    pub(crate) async fn connect(self, url: &str) -> Result<Arc<dyn Pairs>> {
        let address = Address::parse(url)?;
        Ok(match self {
            Self::File => Arc::new(file::Flock::beside(&address)?),
            Self::Sqlite => Arc::new(sqlite::InsertAndDelete::beside(&address)?),
            Self::Redis => Arc::new(redis::SetAndDelete::connect(&address).await?),
            Self::ZooKeeper => Arc::new(zookeeper::CreateAndDelete::connect(&address).await?),
        })
    }
}

/// Pairs on one lock, until the pace ends.
pub(crate) async fn repeat(pairs: &dyn Pairs, lock: usize, pace: &Pace) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    while pace.take() {
        let asked = Instant::now();
        pairs.pair(lock).await?;
        if pace.ended_in_time() {
            latencies.record(asked.elapsed());
        }
    }
    Ok(latencies)
}
