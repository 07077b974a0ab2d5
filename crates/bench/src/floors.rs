//! Raw floors: the requests of a lock and its release on the engine's own driver, with no lockkeeper code.

mod etcd;
mod file;
mod mysql;
mod postgres;
mod redis;
mod redlock;
mod sqlite;
mod zookeeper;

use crate::Result;
use crate::measure::Pace;
use crate::workload::contended::Turns;
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
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
    RedLock,
    ZooKeeper,
    Etcd,
    PostgresRow,
    PostgresAdvisory,
    MySqlRow,
    MySqlAdvisory,
}

impl Floor {
    /// The floor of a style, where one is known.
    pub(crate) fn of(engine: &str, style: &str) -> Option<Self> {
        match (engine, style) {
            ("file", _) => Some(Self::File),
            ("sqlite", _) => Some(Self::Sqlite),
            ("redis", _) => Some(Self::Redis),
            ("zookeeper", _) => Some(Self::ZooKeeper),
            ("redlock", _) => Some(Self::RedLock),
            ("etcd", _) => Some(Self::Etcd),
            ("postgres", "advisory") => Some(Self::PostgresAdvisory),
            ("postgres", _) => Some(Self::PostgresRow),
            ("mysql", "advisory") => Some(Self::MySqlAdvisory),
            ("mysql", _) => Some(Self::MySqlRow),
            _ => None,
        }
    }

    /// What it does.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "raw open+flock+close",
            Self::Sqlite => "raw INSERT, DELETE (SQLite)",
            Self::Redis => "raw SET NX PX+EVALSHA",
            Self::RedLock => "raw SET+EVALSHA, all nodes",
            Self::ZooKeeper => "raw create+delete",
            Self::Etcd => "raw Txn put+Txn delete",
            Self::PostgresRow => "raw INSERT, DELETE (PG)",
            Self::PostgresAdvisory => "raw pg_advisory_lock",
            Self::MySqlRow => "raw INSERT, DELETE (My)",
            Self::MySqlAdvisory => "raw GET_LOCK",
        }
    }

    /// Connects to the same server as the engine at this URL.
    pub(crate) async fn connect(self, url: &str) -> Result<Arc<dyn Pairs>> {
        let address = Address::parse(url)?;
        Ok(match self {
            Self::File => Arc::new(file::Flock::beside(&address)?),
            Self::Sqlite => Arc::new(sqlite::InsertAndDelete::beside(&address)?),
            Self::Redis => Arc::new(redis::SetAndDelete::connect(&address).await?),
            Self::RedLock => Arc::new(redlock::OnAllNodes::connect(&address).await?),
            Self::Etcd => Arc::new(etcd::TwoTransactions::connect(&address).await?),
            Self::PostgresRow => Arc::new(postgres::TwoStatements::rows(&address).await?),
            Self::PostgresAdvisory => Arc::new(postgres::TwoStatements::advisory(&address).await?),
            Self::MySqlRow => Arc::new(mysql::TwoStatements::rows(&address).await?),
            Self::MySqlAdvisory => Arc::new(mysql::TwoStatements::advisory(&address).await?),
            Self::ZooKeeper => Arc::new(zookeeper::CreateAndDelete::connect(&address).await?),
        })
    }
}

/// Pairs on one lock, until the pace ends.
pub(crate) async fn repeat(pairs: &dyn Pairs, lock: usize, pace: &Pace) -> Result<Turns> {
    let mut turns = Turns::default();
    while pace.take() {
        let asked = Instant::now();
        pairs.pair(lock).await?;
        let took = asked.elapsed();
        turns.all += 1;
        if pace.ended_in_time() {
            turns.waits.record(took);
        }
    }
    turns.seconds = pace.seconds();
    Ok(turns)
}
