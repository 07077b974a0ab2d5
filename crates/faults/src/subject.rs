//! What is tested: an engine's style on servers of its own.

use crate::{Error, Result};
use lockkeeper_testkit::{Etcd, MariaDb, Postgres, Redis, Sentinel, Server, ZooKeeper, install};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NODES: usize = 5;
const MEMBERS: usize = 3;
/// How long a cluster may take to choose another leader or master.
const ELECTION: Duration = Duration::from_secs(30);

/// An engine, a style and a topology, by the name of its row in the table of outcomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// The style, if it is not the engine's default.
    style: Option<&'static str>,
    /// Whose servers must be installed, by the name the test kit knows.
    pub(crate) package: Option<&'static str>,
    start: fn() -> Servers,
}

macro_rules! subjects {
    ($($name:literal $style:expr, $package:expr, $start:expr;)*) => {
        /// All subjects, in the order of the tables.
        pub(crate) const SUBJECTS: &[Subject] = &[
            $(Subject { name: $name, style: $style, package: $package, start: $start },)*
        ];
    };
}

subjects! {
    "file" None, None, || Servers::Folder("file", folder());
    "sqlite" None, None, || Servers::Folder("sqlite", folder());
    "sqlite:row" Some("row"), None, || Servers::Folder("sqlite", folder());
    "postgres" None, Some("postgres"), postgres;
    "postgres:row" Some("row"), Some("postgres"), postgres;
    "postgres:session" Some("session"), Some("postgres"), postgres;
    "postgres:advisory" Some("advisory"), Some("postgres"), postgres;
    "mysql" None, Some("mysql"), mysql;
    "mysql:row" Some("row"), Some("mysql"), mysql;
    "mysql:session" Some("session"), Some("mysql"), mysql;
    "mysql:advisory" Some("advisory"), Some("mysql"), mysql;
    "redis" None, Some("redis"), || Servers::Redis(Redis::start());
    "redis:plain" Some("plain"), Some("redis"), || Servers::Redis(Redis::start());
    "redis:redisson" Some("redisson"), Some("redis"), || Servers::Redis(Redis::start());
    "redis:redisson-rw" Some("redisson-rw"), Some("redis"), || Servers::Redis(Redis::start());
    "redis, on disk" None, Some("redis"), || Servers::Redis(Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]));
    "redis, sentinel" None, Some("redis"), || Servers::Sentinel(Sentinel::start());
    "redlock" None, Some("redis"), || Servers::Nodes(Redis::start_many(NODES));
    "zookeeper" None, Some("zookeeper"), || Servers::ZooKeeper(ZooKeeper::start());
    "zookeeper:plain" Some("plain"), Some("zookeeper"), || Servers::ZooKeeper(ZooKeeper::start());
    "zookeeper, three" None, Some("zookeeper"), || Servers::ZooKeeper(ZooKeeper::ensemble(MEMBERS));
    "etcd" None, Some("etcd"), || Servers::Etcd(Etcd::start());
    "etcd, three" None, Some("etcd"), || Servers::Etcd(Etcd::cluster(MEMBERS));
}

fn folder() -> TempDir {
    TempDir::with_prefix("lockkeeper-faults-").expect("a temporary folder")
}

/// Durable, as in production: a server that is killed must not forget what it has acknowledged.
fn postgres() -> Servers {
    Servers::Postgres(Postgres::start_with(&["synchronous_commit=on", "max_connections=400"]))
}

fn mysql() -> Servers {
    Servers::MariaDb(MariaDb::start_with(&["--innodb-flush-log-at-trx-commit=1", "--max-connections=600"]))
}

impl Subject {
    pub(crate) fn find(name: &str) -> Result<&'static Self> {
        let found = SUBJECTS.iter().find(|subject| subject.name == name);
        found.ok_or_else(|| Error::new(format!("there is no subject {name:?}")))
    }

    /// Its servers, started.
    pub(crate) fn start(&self) -> Result<Servers> {
        if let Some(package) = self.package {
            install::check(package)?;
        }
        Ok((self.start)())
    }

    pub(crate) fn url(&self, servers: &Servers) -> String {
        let url = servers.url();
        self.style.map_or_else(|| url.clone(), |style| format!("{url}?style={style}"))
    }
}

/// Running servers; stopped on drop.
pub(crate) enum Servers {
    Folder(&'static str, TempDir),
    Redis(Redis),
    Nodes(Vec<Redis>),
    Sentinel(Sentinel),
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::Folder("sqlite", folder) => format!("sqlite:{}/locks.db", folder.path().display()),
            Self::Folder(_, folder) => format!("file:{}/locks", folder.path().display()),
            Self::Redis(redis) => redis.url(),
            Self::Nodes(nodes) => {
                let hosts: Vec<String> =
                    nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
                format!("redlock://{}", hosts.join(","))
            }
            Self::Sentinel(sentinel) => sentinel.url(),
            Self::ZooKeeper(zookeeper) => zookeeper.url(),
            Self::Etcd(etcd) => etcd.url(),
            Self::Postgres(postgres) => postgres.url(),
            Self::MariaDb(mariadb) => mariadb.url(),
        }
    }

    /// Those that keep the locks.
    pub(crate) fn all(&self) -> Vec<&Server> {
        match self {
            Self::Folder(..) => Vec::new(),
            Self::Redis(redis) => vec![redis],
            Self::Nodes(nodes) => nodes.iter().map(|node| &**node).collect(),
            Self::Sentinel(sentinel) => sentinel.servers().iter().collect(),
            Self::ZooKeeper(zookeeper) => zookeeper.servers().iter().collect(),
            Self::Etcd(etcd) => etcd.servers().iter().collect(),
            Self::Postgres(postgres) => vec![postgres],
            Self::MariaDb(mariadb) => vec![mariadb],
        }
    }

    /// Starts those again that do not run, and waits until they answer.
    pub(crate) fn restart(&self, servers: &[&Server]) {
        // A member is ready when the others are there, too.
        servers.iter().skip(1).for_each(|server| server.restart_without_waiting());
        if let Some(first) = servers.first() {
            first.restart();
        }
    }

    /// The member that leads, once there is one; the master of a group.
    pub(crate) fn leader(&self) -> Option<&Server> {
        let deadline = Instant::now() + ELECTION;
        while Instant::now() < deadline {
            let (servers, leader) = match self {
                Self::ZooKeeper(zookeeper) => (zookeeper.servers(), zookeeper.leader()),
                Self::Etcd(etcd) => (etcd.servers(), etcd.leader()),
                Self::Sentinel(sentinel) => return Some(sentinel.master()),
                _ => return None,
            };
            if let Some(leader) = leader {
                return Some(&servers[leader]);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Waits until another server than this one is the master.
    pub(crate) fn is_replaced(&self, old: &Server) -> bool {
        let Self::Sentinel(sentinel) = self else { return false };
        let deadline = Instant::now() + ELECTION;
        while Instant::now() < deadline {
            if sentinel.master_port() != old.port() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}
