//! How many requests a server has served, in its own words.

mod ask;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod redis;

use crate::Result;
use ::redis::aio::MultiplexedConnection;
use lockkeeper_core::engine::Address;
use tokio::sync::Mutex;

/// Asks a server for its count of requests.
pub(crate) enum Counter {
    /// INFO commandstats, of every node.
    Redis(Vec<MultiplexedConnection>),
    /// `mntr`: packets received.
    ZooKeeper(Vec<String>),
    /// `/metrics`: messages received by the services.
    Etcd(Vec<String>),
    /// pg_stat_statements.
    Postgres(tokio_postgres::Client),
    /// SHOW STATUS: Questions.
    MySql(Mutex<mysql_async::Conn>),
}

impl Counter {
    /// For the engine at this URL; `None` if it has no server, or its server no count.
    pub(crate) async fn open(url: &str) -> Result<Option<Self>> {
        let address = Address::parse(url)?;
        let hosts = |port: u16| address.hosts.iter().map(|host| host.with_port(port)).collect();
        Ok(match address.scheme.as_str() {
            "redis" | "redlock" => {
                let mut nodes = Vec::new();
                for node in redis::nodes(&address) {
                    nodes.push(redis::connect(&node).await?);
                }
                Some(Self::Redis(nodes))
            }
            "zookeeper" => Some(Self::ZooKeeper(hosts(2181))),
            "etcd" => Some(Self::Etcd(hosts(2379))),
            "postgres" => postgres::counter(&address).await?.map(Self::Postgres),
            "mysql" => Some(Self::MySql(Mutex::new(mysql::connect(&address).await?))),
            _ => None,
        })
    }

    /// The requests since the server started. `direct` as in [`Count::start_for`].
    async fn requests(&self, direct: &[&str]) -> Result<u64> {
        match self {
            Self::Redis(nodes) => redis::requests(nodes, direct).await,
            Self::ZooKeeper(hosts) => ask::zookeeper_packets(hosts).await,
            Self::Etcd(hosts) => ask::etcd_messages(hosts).await,
            Self::Postgres(client) => postgres::requests(client).await,
            Self::MySql(connection) => mysql::requests(connection).await,
        }
    }
}

/// Counts the requests between two moments.
pub struct Count {
    counter: Option<Counter>,
    direct: &'static [&'static str],
    before: u64,
}

impl Count {
    /// From now on.
    ///
    /// # Errors
    /// When the server does not tell.
    pub async fn start(url: &str) -> Result<Self> {
        Self::start_for(url, &[]).await
    }

    /// From now on, for clients of Redis that send these commands themselves: lower-case names of commands that their
    /// scripts do not run.
    ///
    /// # Errors
    /// When the server does not tell.
    pub async fn start_for(url: &str, direct: &'static [&'static str]) -> Result<Self> {
        let counter = Counter::open(url).await?;
        let before = match &counter {
            Some(counter) => counter.requests(direct).await?,
            None => 0,
        };
        Ok(Self { counter, direct, before })
    }

    /// Until now; `None` if nobody counts.
    ///
    /// # Errors
    /// When the server does not tell.
    pub async fn so_far(&self) -> Result<Option<f64>> {
        match &self.counter {
            Some(counter) => {
                let requests = counter.requests(self.direct).await?;
                Ok(Some(requests.saturating_sub(self.before) as f64))
            }
            None => Ok(None),
        }
    }
}
