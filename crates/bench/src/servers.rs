//! The servers that the bench starts, one per engine, all at the same time: runs are interleaved.

use crate::{Result, network};
use lockkeeper_testkit::{Etcd, MariaDb, Postgres, Proxy, Redis, ZooKeeper, install};
use std::any::Any;
use std::collections::HashMap;
use std::time::Duration;
use tempfile::TempDir;

/// RedLock nodes: the smallest number that outlives one.
const REDLOCK_NODES: usize = 3;

/// Running servers by engine; stopped on drop.
#[derive(Default)]
pub struct Servers {
    running: HashMap<String, Place>,
    delay: Duration,
}

/// Where an engine is reached, and what keeps it there.
struct Place {
    url: String,
    _keeps: Box<dyn Any>,
    _proxies: Vec<Proxy>,
}

impl Place {
    fn new(url: String, keeps: impl Any) -> Self {
        Self { url, _keeps: Box::new(keeps), _proxies: Vec::new() }
    }

    fn delayed(self, delay: Duration) -> Self {
        let (url, _proxies) = network::delayed(&self.url, delay);
        Self { url, _proxies, ..self }
    }
}

impl Servers {
    /// Servers that are reached over a network on which a round trip takes longer by this.
    pub fn with_delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// The engine's URL; starts its server if it does not run yet.
    ///
    /// # Errors
    /// When the server is not installed or does not start.
    pub fn url(&mut self, engine: &str) -> Result<String> {
        if !self.running.contains_key(engine) {
            self.running.insert(engine.into(), start(engine)?.delayed(self.delay));
        }
        Ok(self.running[engine].url.clone())
    }
}

fn start(engine: &str) -> Result<Place> {
    match engine {
        // Named, so that all keepers of this process meet in it.
        "memory" => Ok(Place::new("memory:bench".into(), ())),
        "file" => in_directory(|path| format!("file:{path}/locks")),
        "sqlite" => in_directory(|path| format!("sqlite:{path}/locks.db")),
        "redis" => server("redis", Redis::start, Redis::url),
        "redlock" => server("redis", || Redis::start_many(REDLOCK_NODES), |nodes| redlock_url(nodes)),
        "zookeeper" => server("zookeeper", ZooKeeper::start, ZooKeeper::url),
        "etcd" => server("etcd", Etcd::start, Etcd::url),
        // Durable, as in production: the test kit's servers do not wait for the disk unless told to.
        "postgres" => server(
            "postgres",
            || {
                let durable = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];
                // The second counts requests.
                let more = ["max_connections=1200", "shared_preload_libraries=pg_stat_statements"];
                Postgres::start_with(&[durable.as_slice(), &more].concat())
            },
            Postgres::url,
        ),
        "mysql" => server(
            "mysql",
            || {
                let durable = "--innodb-flush-log-at-trx-commit=1";
                // What MariaDB has by itself. With the test kit's 16 MB, 64 connections that update rows side by side get a
                // fifth of the pairs: the server's threads then mostly wait for each other.
                let memory = "--innodb-buffer-pool-size=128M";
                MariaDb::start_with(&[durable, memory, "--max-connections=1200"])
            },
            MariaDb::url,
        ),
        _ => Err(format!("the bench cannot start {engine:?}; give a running one with --url").into()),
    }
}

fn in_directory(url: impl FnOnce(&str) -> String) -> Result<Place> {
    let directory = TempDir::with_prefix("lockkeeper-bench-")?;
    let path = directory.path().to_str().ok_or("the temporary directory's path is not UTF-8")?;
    Ok(Place::new(url(path), directory))
}

fn server<S: Send + 'static>(
    package: &str,
    start: impl FnOnce() -> S + Send + 'static,
    url: impl FnOnce(&S) -> String,
) -> Result<Place> {
    install::check(package)?;
    // The test kit panics when a server does not start; here, the other engines are still worth measuring.
    let server = std::thread::spawn(start).join().map_err(|_| "its server did not start")?;
    Ok(Place::new(url(&server), server))
}

fn redlock_url(nodes: &[Redis]) -> String {
    let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redlock://{}", hosts.join(","))
}
